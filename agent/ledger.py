"""Every model call is written down before it is made, at its highest possible cost, and reconciled after.

That order is what makes the caps hard: money that a call in flight might cost is already gone, so a
kill at any moment cannot hide it, and parallel calls cannot spend the same dollar. What the cap
leaves decides how many output tokens the next call may use.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from nkismith.agent.prices import Usage
from nkismith.agent.providers import ChatModel, Limits, Reply, Request, Unavailable, Waiting
from nkismith.results.store import Row, RunStore, Spent, content_hash

OUTPUT_TOKENS = 64_000
"""What a call may write when no cap is near: thinking and the kernel."""
LEAST_OUTPUT_TOKENS = 4_000
"""Below this a reply would be cut off in the middle of the kernel, so the run ends instead."""


@dataclass(frozen=True)
class Caps:
    """Hard limits of a run, over all its sessions. None means no limit."""

    usd: float | None = 5.0
    tokens: int | None = None
    minutes: float | None = None
    attempts: int | None = 12


class BudgetSpent(Exception):
    """A cap was reached; `cap` is budget (dollars or tokens), time or attempts."""

    def __init__(self, cap: str, message: str):
        super().__init__(message)
        self.cap = cap


@dataclass(frozen=True)
class Answer:
    """A reply and the ledger's line for it. `stored` says that it was not bought now."""

    call: int
    reply: str
    stop_reason: str
    stored: bool


class Ledger:
    """The only way to a model. Safe to call from several threads."""

    def __init__(
        self,
        store: RunStore,
        model: ChatModel,
        caps: Caps,
        *,
        retries: int = 6,
        first_wait_s: float = 2.0,
        longest_wait_s: float = 60.0,
        sleep: Callable[[float], None] = time.sleep,
    ):
        self.store, self.model, self.caps = store, model, caps
        self._retries, self._first_wait_s, self._longest_wait_s, self._sleep = (
            retries,
            first_wait_s,
            longest_wait_s,
            sleep,
        )
        self._settled = threading.Condition()
        self._in_flight = 0

    def ask(self, request: Request, progress: Callable[[str], None]) -> Answer:
        """The reply to a request: from the store if it is there, else from the model, within the caps.

        Raises BudgetSpent at a cap, Unavailable when the retries are used up, ProviderError and Waiting
        as the provider does.
        """
        name = self._name(request)
        if row := self.store.replied(name):
            return Answer(row["id"], row["reply"], row["stop_reason"], stored=True)
        wait_s = self._first_wait_s
        for tries in range(self._retries + 1):
            row = self._reserve(request, name, tries)
            try:
                reply = self.model.complete(request, Limits(row["reserved_output_tokens"], self._seconds(), progress))
            except Unavailable as error:
                self._settle(row, "failed", error.usage, error=str(error))
                if tries == self._retries:
                    raise
                pause_s = max(wait_s, error.retry_after_s)
                progress(f"{error}; asking again in {pause_s:.0f} s")
                self._pause(pause_s)
                wait_s = min(2 * wait_s, self._longest_wait_s)
            except Waiting:
                self._settle(row, "waiting", Usage())
                raise
            except Exception as error:
                self._settle(row, "failed", Usage(), error=str(error))
                raise
            except BaseException as error:  # Ctrl-C: the model may already be writing, and that is billed
                self._settle(row, "lost", None, error=type(error).__name__)
                raise
            else:
                return self._keep(row, reply)
        raise AssertionError("the loop returns or raises")

    def _name(self, request: Request) -> str:
        # The output limit is left out: it shrinks with what the cap leaves, and the request is still the same one.
        return content_hash(
            json.dumps(
                {
                    "provider": self.model.provider,
                    "model": self.model.model,
                    "options": self.model.options,
                    "op": request.op,
                    "sample": request.sample,
                    "attempt": request.attempt,
                    "prompt": content_hash(request.prompt.text),
                },
                sort_keys=True,
            )
        )

    def _reserve(self, request: Request, name: str, tries: int) -> Row:
        with self._settled:
            while True:
                try:
                    row = self.store.reserve(partial(self._row, request, name, tries))
                except BudgetSpent as spent:
                    # A call of another lane may turn out cheaper than what was set aside for it.
                    if not self._in_flight or spent.cap == "time":
                        raise
                    self._settled.wait(timeout=1.0)
                else:
                    self._in_flight += 1
                    return row

    def _row(self, request: Request, name: str, tries: int, spent: Spent) -> Row:
        self._check_time()
        if self.caps.attempts is not None and spent.replies + spent.in_flight >= self.caps.attempts:
            raise BudgetSpent("attempts", f"all {self.caps.attempts} attempts are used")
        input_tokens = self.model.input_bound(request.prompt)
        prompt_usd, token_usd = self.model.price.at_most(input_tokens)
        output_tokens = OUTPUT_TOKENS
        if self.caps.usd is not None and token_usd > 0:
            left_usd = self.caps.usd - spent.committed_usd - prompt_usd
            output_tokens = min(output_tokens, int(left_usd / token_usd))
        if self.caps.tokens is not None:
            output_tokens = min(output_tokens, self.caps.tokens - spent.committed_tokens - input_tokens)
        if output_tokens < LEAST_OUTPUT_TOKENS:
            raise BudgetSpent(
                "budget",
                f"${spent.committed_usd:.2f} and {spent.committed_tokens:,} tokens are spent or set aside; "
                f"what the cap leaves is not enough for a reply of {LEAST_OUTPUT_TOKENS:,} tokens",
            )
        return {
            "request": name,
            "sample": request.sample,
            "attempt": request.attempt,
            "try": tries,
            "provider": self.model.provider,
            "model": self.model.model,
            "reserved_usd": prompt_usd + output_tokens * token_usd,
            "reserved_input_tokens": input_tokens,
            "reserved_output_tokens": output_tokens,
        }

    def _settle(self, row: Row, state: str, usage: Usage | None, **fields: object) -> None:
        """usage None: what was billed cannot be known, so the reserved maximum stands."""
        if usage is None:
            usd = row["reserved_usd"]
            usage = Usage(input_tokens=row["reserved_input_tokens"], output_tokens=row["reserved_output_tokens"])
        else:
            usd = self.model.price.usd(usage)
        try:
            self.store.settle(
                row["id"],
                state=state,
                usd=usd,
                input_tokens=usage.input_tokens,
                cache_write_tokens=usage.cache_write_tokens,
                cache_read_tokens=usage.cache_read_tokens,
                output_tokens=usage.output_tokens,
                **fields,
            )
        finally:
            with self._settled:
                self._in_flight -= 1
                self._settled.notify_all()

    def _keep(self, row: Row, reply: Reply) -> Answer:
        text = self.store.put(reply.text)
        self._settle(row, "replied", reply.usage, reply=text, stop_reason=reply.stop_reason)
        return Answer(row["id"], text, reply.stop_reason, stored=False)

    def _seconds(self) -> float | None:
        if self.caps.minutes is None:
            return None
        return max(1.0, self.caps.minutes * 60 - self.store.elapsed_s)

    def _check_time(self) -> None:
        if self.caps.minutes is not None and self.store.elapsed_s >= self.caps.minutes * 60:
            raise BudgetSpent("time", f"the run's {self.caps.minutes:g} minutes are over")

    def _pause(self, seconds: float) -> None:
        left = self._seconds()
        self._sleep(seconds if left is None else min(seconds, left))
        self.store.touch()
        self._check_time()
