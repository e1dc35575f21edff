"""Who can be the model: one small protocol, three ways to answer it.

`anthropic` and `bedrock` buy a reply, `handoff` waits for whoever writes `reply.md`, `recording`
replays a saved conversation. A provider asks once and reports what that cost; retries, caps and the
ledger are the business of `agent.ledger`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from nkismith.agent.prices import Price, Usage
from nkismith.prompts.render import Prompt

NAMES = ("anthropic", "bedrock", "handoff", "recording")


class ProviderError(Exception):
    """Asking again will not help: a missing key, an unknown model, a refused request. Says how to fix it."""


class Unavailable(Exception):
    """The model could not answer this time (overload, rate limit, timeout, broken stream); nothing of the draft's.

    usage is what the failed call is billed for, None where that cannot be known;
    retry_after_s is the provider's own wish, 0 if it had none.
    """

    def __init__(self, message: str, *, usage: Usage | None, retry_after_s: float = 0.0):
        super().__init__(message)
        self.usage, self.retry_after_s = usage, retry_after_s


class Waiting(Exception):
    """A hand-off reply is not there yet; `prompt` is the file that whoever answers should read."""

    def __init__(self, prompt: Path):
        super().__init__(f"Waiting for {prompt.with_name('reply.md')}: read {prompt}, write the reply, call again.")
        self.prompt = prompt


@dataclass(frozen=True)
class Request:
    """One question to a model: the prompt, and whose turn it is (op, beam lane, attempt within the lane)."""

    op: str
    sample: int
    attempt: int
    prompt: Prompt


@dataclass(frozen=True)
class Reply:
    """A model's answer. stop_reason is the Messages API's word (end_turn, max_tokens, refusal, ...)."""

    text: str
    usage: Usage
    stop_reason: str


@dataclass(frozen=True)
class Limits:
    """What one call may use: output tokens, seconds (None: no limit), and where to report progress."""

    output_tokens: int
    seconds: float | None
    progress: Callable[[str], None]


class ChatModel(Protocol):
    """`options` is everything that makes two equal prompts different requests (effort, thinking, ...).

    `warnings` collects what the user should know at the end of the run.
    """

    provider: str
    model: str
    options: dict[str, Any]
    price: Price
    warnings: list[str]

    def input_bound(self, prompt: Prompt) -> int:
        """No fewer tokens than the provider will bill for this prompt."""

    def complete(self, request: Request, limits: Limits) -> Reply:
        """Ask once. Raises ProviderError, Unavailable or Waiting."""
