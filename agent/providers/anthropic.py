"""Claude through the Messages API: Anthropic's own endpoint, or Amazon Bedrock's.

The long system part and the task are marked for prompt caching, since every attempt of a run begins
with them. Replies are streamed: a long reply does not run into idle timeouts and the person watching
sees that something happens.
"""

from __future__ import annotations

import time
from typing import Any, Literal

import anthropic
import httpx2
from anthropic.types import TextBlockParam

from nkismith.agent import prices
from nkismith.agent.prices import Usage
from nkismith.agent.providers import Limits, ProviderError, Reply, Request, Unavailable
from nkismith.prompts.render import Prompt

DEFAULT_MODEL = {"anthropic": "claude-opus-5-5", "bedrock": "anthropic.claude-opus-5-5"}
EFFORTS = ("low", "medium", "high", "xhigh", "max")

# Roles and block boundaries; the text itself has no more tokens than bytes, whatever the tokenizer.
_FRAMING_TOKENS = 200
_RETRIED_STATUS = {408, 409, 429, 500, 502, 503, 504, 529}


class AnthropicModel:
    """`thinking` is "adaptive", "off" or a number of tokens; None leaves effort and thinking to the model."""

    def __init__(
        self,
        model: str | None = None,
        *,
        provider: Literal["anthropic", "bedrock"] = "anthropic",
        effort: str | None = None,
        thinking: str | None = None,
    ):
        self.provider: str = provider
        self.model = model or DEFAULT_MODEL[provider]
        self.options = {"effort": effort, "thinking": thinking}
        self.warnings: list[str] = []
        if effort is not None and effort not in EFFORTS:
            raise ProviderError(f"Unknown effort {effort!r}. Choose one of {', '.join(EFFORTS)}.")
        if thinking is not None and thinking not in ("adaptive", "off") and not thinking.isdecimal():
            raise ProviderError(f"Unknown thinking {thinking!r}. Give adaptive, off, or a number of tokens.")
        self.price = prices.find(self.model, provider)
        self._client = _client(provider)

    def input_bound(self, prompt: Prompt) -> int:
        return len(prompt.text.encode()) + _FRAMING_TOKENS

    def complete(self, request: Request, limits: Limits) -> Reply:
        # The deadline ends a reply that streams for longer than the run may last; the client's own timeout only
        # sees silence.
        deadline = time.monotonic() + limits.seconds if limits.seconds is not None else None
        silence = min(limits.seconds or 600.0, 600.0)
        try:
            with self._client.messages.stream(
                model=self.model,
                max_tokens=limits.output_tokens,
                timeout=anthropic.Timeout(silence, connect=min(silence, 20.0)),
                **_body(request.prompt, self.options, limits.output_tokens),
            ) as stream:
                written = 0
                finished = False
                for event in stream:
                    if event.type == "text":
                        written += len(event.text)
                        limits.progress(f"{written:,} characters")
                    finished = finished or event.type == "message_stop"
                    if deadline is not None and time.monotonic() > deadline:
                        raise Unavailable("the run's time cap passed while the model was writing", usage=None)
                if not finished:
                    raise Unavailable("the reply's stream ended before its last event", usage=None)
                message = stream.get_final_message()
                usage = message.usage
                return Reply(
                    text="".join(block.text for block in message.content if block.type == "text"),
                    usage=Usage(
                        usage.input_tokens,
                        usage.cache_creation_input_tokens or 0,
                        usage.cache_read_input_tokens or 0,
                        usage.output_tokens,
                    ),
                    stop_reason=message.stop_reason or "end_turn",
                )
        except anthropic.APIStatusError as error:
            raise _status(error, self.model) from error
        except anthropic.APIConnectionError as error:
            # Only a connection that was never made is known to have cost nothing.
            refused = isinstance(error.__cause__, httpx2.ConnectError | httpx2.ConnectTimeout | httpx2.PoolTimeout)
            raise Unavailable(f"no answer: {error}", usage=Usage() if refused else None) from error
        except ImportError as error:  # signing requests with AWS credentials
            raise ProviderError(
                f"Bedrock needs a package for AWS credentials: pip install 'anthropic[bedrock]' ({error})"
            ) from None
        except (httpx2.HTTPError, ValueError, AttributeError, TypeError, RuntimeError, AssertionError) as error:
            # What the client raises on bytes that are no Messages stream.
            if "authentication" in str(error):
                raise ProviderError(_NO_KEY[self.provider]) from error
            raise Unavailable(f"unreadable reply: {type(error).__name__}: {error}", usage=None) from error


_NO_KEY = {
    "anthropic": "No API key for Anthropic. Set ANTHROPIC_API_KEY, or use --provider handoff or --provider recording.",
    "bedrock": "No credentials for Amazon Bedrock. Set AWS_REGION and either AWS_BEARER_TOKEN_BEDROCK or the usual AWS "
    "credentials, or use --provider handoff.",
}


def _client(provider: str) -> anthropic.Anthropic | anthropic.AnthropicBedrockMantle:
    # max_retries=0: a retry that the ledger does not see is a retry that no cap holds.
    try:
        if provider == "bedrock":
            return anthropic.AnthropicBedrockMantle(max_retries=0)
        client = anthropic.Anthropic(max_retries=0)
    except (anthropic.AnthropicError, ValueError) as error:
        raise ProviderError(f"{_NO_KEY[provider]} ({error})") from None
    if client.api_key is None and client.auth_token is None and client.credentials is None:
        raise ProviderError(_NO_KEY[provider])
    return client


def _body(prompt: Prompt, options: dict[str, Any], max_tokens: int) -> dict[str, Any]:
    def block(text: str, *, cached: bool) -> TextBlockParam:
        return {"type": "text", "text": text} | ({"cache_control": {"type": "ephemeral"}} if cached else {})  # type: ignore[return-value]

    content = [block(prompt.task, cached=True)] + ([block(prompt.turn, cached=False)] if prompt.turn else [])
    body: dict[str, Any] = {
        "system": [block(prompt.system, cached=True)],
        "messages": [{"role": "user", "content": content}],
    }
    if effort := options["effort"]:
        body["output_config"] = {"effort": effort}
    match options["thinking"]:
        case None:
            pass
        case "adaptive":
            body["thinking"] = {"type": "adaptive"}
        case "off":
            body["thinking"] = {"type": "disabled"}
        case tokens:
            # Thinking counts as output, and the reply needs room after it.
            body["thinking"] = {"type": "enabled", "budget_tokens": max(1024, min(int(tokens), max_tokens - 2048))}
    return body


def _status(error: anthropic.APIStatusError, model: str) -> Exception:
    status, said = error.status_code, _said(error)
    if status == 200:  # an error event inside the stream: part of the reply may be billed
        return Unavailable(f"the stream broke: {said}", usage=None)
    if status in _RETRIED_STATUS:
        wish = error.response.headers.get("retry-after", "")
        return Unavailable(
            f"HTTP {status}: {said}", usage=Usage(), retry_after_s=float(wish) if wish.isdecimal() else 0
        )
    how = {
        401: "Check ANTHROPIC_API_KEY.",
        403: "The key may not use this model.",
        404: f"Is {model!r} the model's exact name?",
    }
    return ProviderError(f"The API refused the request (HTTP {status}): {said} {how.get(status, '')}".rstrip())


def _said(error: anthropic.APIStatusError) -> str:
    body = error.body
    if isinstance(body, dict) and isinstance(body.get("error"), dict):
        return str(body["error"].get("message", body["error"]))
    return " ".join(str(error).split())[:200]
