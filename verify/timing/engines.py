"""The machine that a schedule fills: engines and queues that issue in order, DMA engines, PSUM banks, the throttle."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from nkismith.verify.simulator import hardware
from nkismith.verify.simulator.hardware import TENSOR_COLD_RATE, TENSOR_WARM_NS, Target
from nkismith.verify.timing.steps import Steps, Totals
from nkismith.verify.timing.work import LANES, SCALAR, TENSOR, VECTOR, Work


class Times(NamedTuple):
    """When a step issues, frees its lane, moves its first and last byte (DMA), and has its result visible; ns."""

    start: float
    busy_end: float
    data: float
    data_end: float
    finish: float


class Lane:
    """One in-order issuer, and the instructions of the window that want it."""

    __slots__ = ("free", "last", "ready", "waiting")

    def __init__(self) -> None:
        self.free = 0.0
        self.last = -1
        self.ready: list[int] = []  # heap of steps that may start as soon as the lane is free
        self.waiting: list[tuple[float, int]] = []  # heap of (earliest start, step)


class Throttle:
    """TensorE is slowed down until it has worked for a while, and again after it idled (overview-summary-page)."""

    def __init__(self) -> None:
        self.cold = True
        self._window: deque[tuple[float, float]] = deque()
        self._busy = 0.0
        self._began = 0.0

    def slowed(self, at: float) -> bool:
        """Does work that starts now run at the reduced rate?"""
        while self._window and self._window[0][1] <= at - TENSOR_WARM_NS:
            start, end = self._window.popleft()
            self._busy -= end - start
        if not self._window:
            self._began, self._busy = at, 0.0
        enough = self._busy >= TENSOR_WARM_NS / 2
        self.cold = not enough if not self.cold else not (enough and at - self._began >= TENSOR_WARM_NS)
        return self.cold

    def worked(self, start: float, end: float) -> None:
        """TensorE was busy from start to end."""
        self._window.append((start, end))
        self._busy += end - start


class Engines:
    """State of one core's hardware as instructions are placed on it."""

    def __init__(self, target: Target, steps: Steps, totals: Totals) -> None:
        self.steps, self.totals = steps, totals
        self.lanes = [Lane() for _ in LANES]
        self.end = 0.0
        self.last = -1  # the step that ends last
        self._dma_free = [0.0] * target.dma_engines
        self._dma_last = [-1] * target.dma_engines
        self._dma_until = 0.0
        self._banks: dict[tuple[int, int], tuple[int, float, int]] = {}  # (slice, bank) -> lane, until, step
        self._rows = [(0.0, -1)] * 4  # quadrants of the array: free from, step
        self._stationary: object = None
        self._table = ""
        self._contended = 0.0  # ns that DMAs take from VectorE
        self._throttle = Throttle()

    def place(self, step: int, earliest: float, cause: int, since: float, banks: tuple[tuple[int, int], ...]) -> None:
        """Run a step: not before `earliest`, which step `cause` set at time `since`."""
        work, lane = self.steps.works[step], self.lanes[self.steps.works[step].lane]
        start = earliest
        if lane.free > earliest:
            start, cause, since = lane.free, lane.last, lane.free
        if work.transfer is not None:
            self._transfer(step, work, start, cause, since)
        elif work.lane == TENSOR:
            self._matmul(step, work, earliest, start, cause, since)
        else:
            for bank in banks:
                user, until, by = self._banks.get(bank, (work.lane, 0.0, -1))
                if user != work.lane and until > start:  # VectorE and ScalarE meet in one PSUM bank
                    start, cause, since = until, by, until
            ns = work.ns
            if work.table and work.table != self._table:
                self._table = work.table
                ns += hardware.TABLE_LOAD_NS.value
            if work.lane == VECTOR:
                ns += min(self._contended, ns * hardware.SBUF_CONTENTION.high)
                self._contended = 0.0
            self._occupy(step, work, start, start + ns, cause, since)
            if work.lane in (VECTOR, SCALAR):
                for bank in banks:
                    self._banks[bank] = (work.lane, start + ns, step)

    def _occupy(self, step: int, work: Work, start: float, end: float, cause: int, since: float) -> None:
        lane = self.lanes[work.lane]
        lane.free, lane.last = end, step
        visible = end + (work.latency.value if work.latency else 0.0)
        self._record(step, work, Times(start, end, end, end, visible), cause, since)

    def _record(self, step: int, work: Work, times: Times, cause: int, since: float) -> None:
        steps, totals, instr = self.steps, self.totals, self.steps.instrs[step]
        start, end, data, data_end, finish = times
        steps.start[step], steps.busy_end[step], steps.data[step] = start, end, data
        steps.data_end[step], steps.finish[step] = data_end, finish
        steps.cause[step], steps.since[step] = cause, since
        if finish > self.end:
            self.end, self.last = finish, step
        busy = end - start
        totals.instructions += 1
        totals.busy[work.lane] += busy
        totals.counts[work.lane] += 1
        key = (instr.file, instr.line, work.lane, instr.op)
        totals.lines[key] = totals.lines.get(key, 0.0) + (data_end - data if work.transfer else busy)

    def _matmul(self, step: int, work: Work, earliest: float, start: float, cause: int, since: float) -> None:
        """LoadStationary hides behind the previous matmul; only after a wait does it show."""
        instr, totals = self.steps.instrs[step], self.totals
        operand = instr.operands.get("stationary") or instr.operands.get("data")
        load = 0.0 if operand == self._stationary else work.load_ns
        self._stationary = operand
        lane = self.lanes[TENSOR]
        first, stop = work.rows
        for free, by in self._rows[first:stop]:
            if free > start:
                start, cause, since = free, by, free
        # The columns can be loaded once the operands are there and the previous matmul has begun.
        hidden = start - max(earliest, self.steps.start[lane.last] if lane.last >= 0 else 0.0)
        start += max(0.0, load - max(0.0, hidden))
        slow = self._throttle.slowed(start)
        ns = work.ns / TENSOR_COLD_RATE if slow else work.ns
        end = start + ns
        self._throttle.worked(start, end)
        self._rows[first:stop] = [(end, step)] * (stop - first)
        self._occupy(step, work, start, end, cause, since)
        if stop - first < 4:  # another row tile may start beside it
            lane.free = start
        totals.flops += work.flops
        totals.matmuls += 1
        totals.throttled += ns if slow else 0.0

    def _transfer(self, step: int, work: Work, start: float, cause: int, since: float) -> None:
        moved, totals, lane = work.transfer, self.totals, self.lanes[work.lane]
        assert moved is not None
        self.steps.trigger[step], self.steps.triggered[step] = cause, since
        issued = start + work.ns
        lane.free, lane.last = issued, step
        ready = start + hardware.DMA_START_NS.value
        ns = moved.overhead_ns + moved.data_ns
        first, stop = moved.engines
        busiest = max(range(first, stop), key=self._dma_free.__getitem__)
        data = max(self._dma_free[busiest], ready)
        end = data + ns
        if data > ready:
            cause, since = self._dma_last[busiest], data
        for engine in range(first, stop):
            self._dma_free[engine] = max(self._dma_free[engine], ready) + ns
            self._dma_last[engine] = step
        done = end + hardware.DMA_DONE_NS.value
        self._record(step, work, Times(start, issued, data, end, done), cause, since)
        self._contended += ns * (stop - first) / len(self._dma_free) * hardware.SBUF_CONTENTION.value
        totals.dma_active += max(0.0, end - max(data, self._dma_until))
        self._dma_until = max(self._dma_until, end)
        totals.dma_busy += ns * (stop - first)
        totals.transfers += 1
        totals.descriptors += moved.descriptors
        totals.moved += moved.bytes
        totals.hbm_read += moved.hbm_read
        totals.hbm_write += moved.hbm_write
        if moved.queue == "spill":
            totals.spill_save += moved.hbm_write
            totals.spill_reload += moved.hbm_read
