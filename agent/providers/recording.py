"""Saved conversations: replayed as if the model answered, always judged afresh.

A recording is a JSON file of one op: where the replies came from (`source`, in words a reader can
check), who gave them (`model`), and each reply under its lane (`sample`) and its number in the lane
(`attempt`), with the hash of the task it answered. Nothing here writes a reply: recordings are made
from finished runs.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from nkismith.agent.prices import FREE, Usage
from nkismith.agent.providers import Limits, ProviderError, Reply, Request
from nkismith.prompts.render import Prompt
from nkismith.results.store import RunStore, content_hash, write_text

BUNDLED = Path(__file__).resolve().parent.parent / "recordings"


class RecordedReply(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)
    sample: int
    attempt: int
    prompt: str
    reply: str


class Recording(BaseModel):
    """`source` says honestly where the replies came from, for example "hand-off to Claude Opus 5.5, 2026-11-29"."""

    model_config = ConfigDict(extra="forbid", frozen=True)
    op: str
    model: str
    source: str
    replies: list[RecordedReply]


def load(op: str, where: Path | None = None) -> Recording:
    """The recording of `op` in a file or folder (default: the bundled ones). Raises ProviderError."""
    where = where or BUNDLED
    path = where / f"{op}.json" if where.is_dir() else where
    try:
        recording = Recording.model_validate_json(path.read_text())
    except OSError:
        known = ", ".join(sorted(found.stem for found in BUNDLED.glob("*.json"))) or "none"
        raise ProviderError(
            f"No recording of {op}: {path} is missing. Recorded ops: {known}. Make one from a finished run with "
            "`nkismith record RUN`, or use --provider anthropic or handoff."
        ) from None
    except ValidationError as error:
        first = error.errors()[0]
        raise ProviderError(
            f"{path} is no recording: {'.'.join(map(str, first['loc']))}: {first['msg']}. "
            "Make recordings with `nkismith record RUN`."
        ) from None
    if recording.op != op:
        raise ProviderError(f"{path} is a recording of {recording.op}, not of {op}.")
    return recording


def save(store: RunStore, source: str, path: Path, *, model: str | None = None) -> Recording:
    """Turn the replies of a finished run into a recording at `path`."""
    run = store.run
    replies = [
        RecordedReply(
            sample=row["sample"],
            attempt=row["attempt"],
            prompt=_told(Prompt.from_json(store.text(row["prompt"]))),
            reply=store.text(row["reply"]),
        )
        for row in store.attempts()
        if row["reply"]
    ]
    if not replies:
        raise ProviderError(
            f"Run {store.id} holds no reply yet; finish it first: `nkismith draft --resume {store.id}`."
        )
    recording = Recording(op=run["op"], model=model or run["config"]["model"], source=source, replies=replies)
    write_text(path, json.dumps(recording.model_dump(), indent=1, ensure_ascii=False) + "\n")
    return recording


class RecordingModel:
    """Answers from a recording; a prompt that is no longer the recorded one is a warning."""

    provider = "recording"
    price = FREE

    def __init__(self, recording: Recording):
        self.recording = recording
        self.model = f"{recording.model} (recorded: {recording.source})"
        self.options: dict[str, Any] = {}
        self.warnings: list[str] = []

    def input_bound(self, prompt: Prompt) -> int:
        return 0

    def complete(self, request: Request, limits: Limits) -> Reply:
        found = _find(self.recording.replies, request.sample, request.attempt)
        if found is None:
            raise ProviderError(
                f"The recording of {self.recording.op} ({self.recording.source}) has no reply for sample "
                f"{request.sample}, attempt {request.attempt}: what it does hold was not accepted today. "
                "Use --provider anthropic or handoff, or record a new conversation."
            )
        if found.prompt != _told(request.prompt):
            lane = f"sample {request.sample}, " if request.sample else ""
            self.warnings.append(
                f"{request.op}, {lane}attempt {request.attempt}: the prompt changed since this reply was recorded"
            )
        return Reply(found.reply, Usage(), "end_turn")


def _told(prompt: Prompt) -> str:
    """Hash of what a prompt tells about the task. A revision's turn quotes numbers of that day's secret inputs."""
    return content_hash(f"{prompt.system}\n\n{prompt.task}")


def _find(replies: Sequence[RecordedReply], sample: int, attempt: int) -> RecordedReply | None:
    return next((reply for reply in replies if (reply.sample, reply.attempt) == (sample, attempt)), None)
