"""One run of the agent loop: what it was asked to do, what it needs for that, and how it ends.

Resuming is running again: every node first looks for what the store already holds (a prompt, a reply,
a verdict), so a run that was killed anywhere continues where it was, and buys nothing twice.
"""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, Protocol

from nkismith.agent import memory
from nkismith.agent.ledger import Caps, Ledger
from nkismith.agent.providers import ChatModel
from nkismith.agent.state import Attempt, Ended, State
from nkismith.kernels.spec import OpSpec
from nkismith.results import report
from nkismith.results.store import Index, Row, RunStore, write_text


@dataclass(frozen=True)
class Plan:
    """What a run was asked to do; kept with the run, so that resuming needs no options.

    tries: drafts in a row that may fail in a lane before it is given up (in an optimisation round half of that).
    stop_at: percent of the floor at which optimising stops; patience: rounds without gain before it stops.
    """

    op: str
    spec: str
    target: str = "trn2"
    sdk: str = "2.33"
    lnc: int = 1
    beam: int = 1
    rounds: int = 0
    tries: int = 5
    stop_at: float = 90.0
    patience: int = 2
    gain: float = 0.02
    use_lessons: bool = True
    accept: bool = True
    allow_weak_isolation: bool = False
    kernels_root: str | None = None
    provider: str = "anthropic"
    model: str = ""
    effort: str | None = None
    thinking: str | None = None
    recording: str | None = None
    step: bool = False
    caps: Caps = field(default_factory=Caps)

    def to_row(self) -> Row:
        return asdict(self)

    @classmethod
    def from_row(cls, row: Mapping[str, Any]) -> Plan:
        return cls(**{**row, "caps": Caps(**row["caps"])})


Progress = Callable[[str, str], None]
"""Called with the stage that a verdict has reached and what it is looking at."""


class Judge(Protocol):
    """What verifies: `nkismith.verify` by default."""

    def check(self, source: str, spec: OpSpec, *, target: str, sdk: str, lnc: int, progress: Progress) -> Any: ...
    def profile(self, source: str, spec: OpSpec, case: Any, *, target: str, lnc: int) -> Any: ...
    def accept(self, source: str, spec: OpSpec, evidence: dict[str, Any], root: Path | None) -> Path: ...


class Watcher(Protocol):
    """Who looks on: the live view, or nobody."""

    def note(self, sample: int, text: str) -> None: ...
    def update(self) -> None: ...


class Silent:
    def note(self, sample: int, text: str) -> None:
        pass

    def update(self) -> None:
        pass


@dataclass
class Run:
    """What the nodes work with."""

    plan: Plan
    spec: OpSpec
    store: RunStore
    index: Index
    model: ChatModel
    ledger: Ledger
    judge: Judge
    watcher: Watcher = field(default_factory=Silent)

    def note_index(self, **fields: Any) -> None:
        self.index.note(self.store.id, **fields)


@dataclass(frozen=True)
class Outcome:
    """How a run ended. Times are modelled microseconds at the production shape."""

    run: str
    op: str
    ended: Ended
    message: str
    accepted: bool
    best: int | None
    latency_us: float | None
    floor_us: float | None
    usd: float
    attempts: int
    kernel: str
    report: str
    warnings: tuple[str, ...] = ()


def new_id(op: str) -> str:
    return f"{op}-{datetime.now():%Y%m%d-%H%M%S}-{token_hex(2)}"


def start(plan: Plan, index: Index) -> RunStore:
    """A new run in the data folder of `index`."""
    store = RunStore.create(index.root, new_id(plan.op), plan.op, plan.to_row())
    index.note(
        store.id, op=plan.op, status="running", ended="", accepted=0, provider=plan.provider, model=plan.model,
        target=plan.target, usd=0.0, attempts=0, created_at=time.time(),
    )  # fmt: skip
    return store


def execute(run: Run, invoke: Callable[[Run], State]) -> Outcome:
    """Run the graph to its end, whatever end that is, and leave a report. Raises only what is a failure of ours."""
    store = run.store
    with store.session():
        if lost := store.charge_lost_calls():
            run.watcher.note(0, f"{lost} call(s) in flight at the kill are charged at their reserved maximum")
        store.update_run(status="running", ended="", message="")
        state: State = {}
        failure: BaseException | None = None
        try:
            state = invoke(run)
            ended: Ended = state.get("ended") or "done"
            message = state.get("message", "")
        except KeyboardInterrupt:
            ended, message = "interrupted", f"Interrupted. Continue with `nkismith draft --resume {store.id}`."
        except Exception as error:
            failure = error
            ended, message = "error", "".join(traceback.format_exception_only(error)).strip()
        store.charge_lost_calls()
        return _finish(run, state, ended, message, failure)


def _finish(run: Run, state: State, ended: Ended, message: str, failure: BaseException | None) -> Outcome:
    store = run.store
    attempts = [Attempt.of(row) for row in store.attempts()]
    best = next((attempt for attempt in attempts if attempt.id == (state.get("best") or store.run["best"])), None)
    accepted_path = state.get("accepted_path", "")
    accepted = bool(accepted_path) or (best is not None and not run.plan.accept)
    spent = store.spent()
    status = "waiting" if ended == "waiting" else "ended"
    kernel = accepted_path
    if best and best.source and not kernel:
        kernel = str(write_text(store.folder / "kernel.py", store.text(best.source)))
    store.update_run(
        status=status, ended=ended, accepted=int(accepted), best=best.id if best else None, kernel=kernel,
        message=message,
    )  # fmt: skip
    written = report.write(store)
    run.note_index(
        status=status, ended=ended, accepted=int(accepted), usd=spent.usd, attempts=spent.replies,
        latency_us=best.latency_us if best else None, floor_us=best.floor_us if best else None,
    )  # fmt: skip
    if ended != "waiting":
        run.index.add_lessons(memory.mine(store, run.spec))
    run.watcher.update()
    if failure is not None:
        raise failure
    return Outcome(
        run=store.id, op=run.plan.op, ended=ended, message=message, accepted=accepted, best=best.id if best else None,
        latency_us=best.latency_us if best else None, floor_us=best.floor_us if best else None, usd=spent.usd,
        attempts=spent.replies, kernel=kernel, report=str(written), warnings=tuple(run.model.warnings),
    )  # fmt: skip


def to_json(judged: Any) -> str:
    """A verdict or a profile as the store keeps it: its public fields, enumerations by value."""
    return json.dumps(judged.to_dict(), default=lambda value: getattr(value, "value", str(value)))
