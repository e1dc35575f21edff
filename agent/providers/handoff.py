"""Any coding agent or person as the model: the prompt in a file, the reply in the file beside it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from nkismith.agent.prices import FREE, Usage
from nkismith.agent.providers import Limits, Reply, Request, Unavailable, Waiting
from nkismith.prompts.render import Prompt
from nkismith.results.store import write_text


class HandoffModel:
    """Writes `attempt-NN/prompt.md` below `folder` and takes `attempt-NN/reply.md` as the reply.

    With a beam, each lane has its own `sample-S/`. With `step`, a reply that is not there yet raises
    Waiting at once; else the provider looks for it every `poll_s` seconds.
    """

    provider = "handoff"
    price = FREE

    def __init__(self, folder: Path, *, model: str = "handoff", step: bool = False, poll_s: float = 1.0):
        self.folder, self.model, self.step, self.poll_s = folder, model, step, poll_s
        self.options: dict[str, Any] = {}
        self.warnings: list[str] = []

    def input_bound(self, prompt: Prompt) -> int:
        return 0

    def complete(self, request: Request, limits: Limits) -> Reply:
        lane = self.folder if request.sample == 0 else self.folder / f"sample-{request.sample}"
        prompt = lane / f"attempt-{request.attempt:02d}" / "prompt.md"
        reply = prompt.with_name("reply.md")
        if not prompt.is_file() or prompt.read_text() != request.prompt.text:
            write_text(prompt, request.prompt.text)
        deadline = time.monotonic() + limits.seconds if limits.seconds is not None else None
        seen = ""
        while True:
            text = reply.read_text(errors="replace") if reply.is_file() else ""
            # A reply that is still being written differs from one look to the next.
            if text.strip() and (self.step or text == seen):
                return Reply(text, Usage(), "end_turn")
            if self.step:
                raise Waiting(prompt)
            if deadline is not None and time.monotonic() > deadline:
                raise Unavailable(f"no {reply} before the run's time cap", usage=Usage())
            seen = text
            limits.progress(f"waiting for {reply}")
            time.sleep(self.poll_s)
