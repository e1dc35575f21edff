"""The timeline of a core, and sums over it."""

from __future__ import annotations

from array import array
from copy import deepcopy
from dataclasses import dataclass, field

from nkismith.verify.simulator.trace import Instr
from nkismith.verify.timing.work import LANES, Work


def _times() -> array:
    return array("d")


@dataclass(slots=True)
class Steps:
    """Simulated instructions of one core in program order; times in ns.

    An instruction issues at `start`, holds its lane until `busy_end`, and its result is visible at `finish`. A DMA
    moves bytes from `data` to `data_end`. `cause` is the step that it waited for last (-1: none), `since` the time at
    which that step let it go; following causes from the last step back to 0 gives the critical path. A DMA waits
    twice, to issue and to move: `trigger` and `triggered` are the first, `cause` and `since` the second.
    """

    instrs: list[Instr] = field(default_factory=list)
    works: list[Work] = field(default_factory=list)
    start: array = field(default_factory=_times)
    busy_end: array = field(default_factory=_times)
    data: array = field(default_factory=_times)
    data_end: array = field(default_factory=_times)
    finish: array = field(default_factory=_times)
    since: array = field(default_factory=_times)
    triggered: array = field(default_factory=_times)
    cause: array = field(default_factory=lambda: array("i"))
    trigger: array = field(default_factory=lambda: array("i"))

    def append(self, instr: Instr, work: Work) -> int:
        """Add a step that is not scheduled yet (its finish is -1)."""
        self.instrs.append(instr)
        self.works.append(work)
        for column in (
            self.start, self.busy_end, self.data, self.data_end, self.finish, self.since, self.triggered, self.cause,
            self.trigger,
        ):  # fmt: skip
            column.append(-1)
        return len(self.instrs) - 1

    def released(self, step: int) -> float:
        """When the step has read its sources: a DMA at its end, an engine when it is free again."""
        return self.finish[step] if self.works[step].transfer else self.busy_end[step]


Cause = tuple[int, int, str]  # file, line, name of the estimate ("" where the time rests on documents)


@dataclass(slots=True)
class Totals:
    """Sums over instructions; those of skipped loop iterations are scaled in. Times in ns."""

    instructions: float = 0
    busy: list[float] = field(default_factory=lambda: [0.0] * len(LANES))
    counts: list[float] = field(default_factory=lambda: [0.0] * len(LANES))
    dma_active: float = 0.0  # some DMA engine moves bytes
    dma_busy: float = 0.0  # summed over DMA engines
    transfers: float = 0
    descriptors: float = 0
    moved: float = 0  # bytes
    hbm_read: float = 0
    hbm_write: float = 0
    spill_save: float = 0
    spill_reload: float = 0
    flops: float = 0.0
    matmuls: float = 0
    throttled: float = 0.0  # TensorE at the reduced rate
    extra: float = 0.0  # time of skipped iterations
    lines: dict[tuple[int, int, int, str], float] = field(default_factory=dict)  # busy by file, line, lane, opcode
    extra_causes: dict[Cause, float] = field(default_factory=dict)

    def copy(self) -> Totals:
        """A snapshot."""
        return deepcopy(self)

    def repeat(self, before: Totals, times: float) -> None:
        """Add what happened since the snapshot `before`, `times` times over."""
        for name in self.__slots__:
            now, was = getattr(self, name), getattr(before, name)
            if isinstance(now, list):
                setattr(self, name, [n + (n - w) * times for n, w in zip(now, was, strict=True)])
            elif isinstance(now, dict):
                for key, value in now.items():
                    now[key] = value + (value - was.get(key, 0.0)) * times
            else:
                setattr(self, name, now + (now - was) * times)


@dataclass(frozen=True, slots=True)
class Skipped:
    """Iterations of a compiled loop that were extrapolated."""

    line: int
    iterations: int
    after: float  # ns on the simulated timeline
    ns: float


@dataclass(frozen=True, slots=True)
class CoreSchedule:
    """What one core does."""

    core: int
    steps: Steps
    totals: Totals
    skipped: tuple[Skipped, ...]
    end: float  # ns on the simulated timeline
    last: int  # the step that ends there

    @property
    def latency_ns(self) -> float:
        """Whole time of the core, skipped iterations included."""
        return self.end + self.totals.extra
