"""The window of instructions among which the schedule chooses: what each waits for, and which one goes next.

An instruction enters in program order. It waits for the earlier accesses of its regions, for the producers of its
run-time scalars, and for room for the tiles it starts. Of those that wait for nothing, the one that can start first
is placed; of equals, the one that comes first. Sources: how-to-scheduling-apis, nki_perf_guide (semaphores).
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from nkismith.verify.simulator import hardware
from nkismith.verify.simulator.capacity.regions import region
from nkismith.verify.simulator.hardware import PSUM_BANK_BYTES
from nkismith.verify.simulator.trace import Buffer, Instr, Operand, ScalarRef
from nkismith.verify.timing.engines import Engines
from nkismith.verify.timing.memory import TRUE, Storage
from nkismith.verify.timing.steps import Steps
from nkismith.verify.timing.values import Values
from nkismith.verify.timing.work import Work

ORDER = 3  # a dependency that only asks to issue later

Dependency = tuple[int, int]  # (step, kind)


class _Pending:
    """An instruction in the window that is not placed yet."""

    __slots__ = ("banks", "cause", "earliest", "missing", "pieces", "since", "successors")

    def __init__(self) -> None:
        self.earliest, self.cause, self.since = 0.0, -1, 0.0
        self.missing = 0  # accesses it waits for that are not placed either
        self.pieces: list[int] = []  # slices it touches
        self.banks: list[tuple[int, int]] = []
        self.successors: list[Dependency] = []

    def wait(self, time: float, cause: int, since: float) -> None:
        """Not before `time`, because of step `cause` that let go at `since`."""
        if time > self.earliest:
            self.earliest, self.cause, self.since = time, cause, since


class Window:
    """Instructions of one core between program order and their place in time."""

    def __init__(
        self, buffers: tuple[Buffer, ...], storage: Storage, values: Values, steps: Steps, engines: Engines, size: int
    ) -> None:
        self.buffers, self.storage, self.values = buffers, storage, values
        self.steps, self.engines, self.size = steps, engines, size
        self.holding = False  # inside a compiled loop, whose tiles live to its end
        self._pending: dict[int, _Pending] = {}
        self._oldest = 0  # first step that is not placed
        self._clock = 0.0  # start of the step placed last

    # -- entering -------------------------------------------------------------------------------------------------

    def enter(self, instr: Instr, work: Work, others: Iterable[Dependency] = ()) -> int:
        """Put an instruction into the window; `others` are dependencies beside memory and scalars. Returns its step."""
        while len(self.steps.instrs) - self._oldest >= self.size:
            self.place_one()
        step = self.steps.append(instr, work)
        entry = self._pending[step] = _Pending()
        found: list[Dependency] = []
        for names, writing in ((work.reads, False), (work.writes, True)):
            for name in names:
                self._access(instr.operands[name], writing, work.lane, step, entry, found)
        if work.scalars:
            found += [(producer, TRUE) for producer in self._scalar_producers(instr)]
        found += others
        for producer, kind in dict.fromkeys(found):
            if producer == step or producer < 0:
                continue
            if self.steps.finish[producer] >= 0:
                self._release(producer, step, kind, entry)
            else:
                self._pending[producer].successors.append((step, kind))
                entry.missing += 1
        if not entry.missing:
            heapq.heappush(self.engines.lanes[work.lane].waiting, (entry.earliest, step))
        return step

    def _access(
        self, operand: Operand, writing: bool, lane: int, step: int, entry: _Pending, found: list[Dependency]
    ) -> None:
        """Find what an access depends on, claiming room for a slice that is touched first."""
        storage, buffer = self.storage, self.buffers[operand.buffer]
        term = operand.dynamic
        where = region(operand, buffer, self.values.offset(term) if term else None)
        piece = -1
        if buffer.space != "hbm":
            piece = storage.slice_of(buffer, where.low)
            if piece not in entry.pieces:
                entry.pieces.append(piece)
                if not storage.claimed[piece]:
                    time, freed_by = self.claim(piece)
                    entry.wait(time, freed_by, time)
            if buffer.space == "psum":
                banks = range(where.low // PSUM_BANK_BYTES, (where.high - 1) // PSUM_BANK_BYTES + 1)
                entry.banks += [(piece, bank) for bank in banks]
        for tracker, place in storage.trackers(buffer, where, piece):
            if writing:
                tracker.write(place, step, found, self._settled)
            else:
                tracker.read(place, step, lane, found)
        if term is not None and term.index is not None:
            self._access(term.index, False, lane, step, entry, found)

    def claim(self, piece: int) -> tuple[float, int]:
        """Room for a slice: (time, step that frees it). Places instructions until enough is known to become free."""
        granted = self.storage.claim(piece)
        while granted is None and self.place_one():
            granted = self.storage.claim(piece)
        if granted is None:  # only tiles that the author placed can take more than there is; `allocate` judges them
            self.storage.claimed[piece] = True
            granted = self.engines.end, self.engines.last
        return granted

    def _scalar_producers(self, instr: Instr) -> list[int]:
        """Steps that make the run-time scalars an instruction uses."""
        used = [o.dynamic.scalar for o in instr.operands.values() if o.dynamic and o.dynamic.scalar]
        used += [v for name, v in instr.attrs.items() if isinstance(v, ScalarRef) and name != "result"]
        return [self.values.producers[s.id] for s in used if s.id in self.values.producers]

    def _settled(self, step: int) -> bool:
        """Has the step ended before anything that is still to be placed can start?"""
        return 0 <= self.steps.finish[step] <= self._clock

    def _release(self, producer: int, step: int, kind: int, entry: _Pending) -> None:
        """The earliest start that one dependency allows, now that its producer is placed."""
        steps, works = self.steps, self.steps.works
        same = works[producer].lane == works[step].lane and works[producer].transfer is None
        accumulates = same and works[step].flops > 0 and works[producer].flops > 0
        if kind == TRUE and not accumulates:
            since = steps.finish[producer]
        elif same or kind == ORDER:  # an engine accumulates and overwrites in order, without a wait
            since = steps.start[producer]
        else:
            since = steps.released(producer)
        signal = 0.0 if same or works[producer].transfer else hardware.SEMAPHORE_NS.value
        entry.wait(since + signal, producer, since)

    # -- leaving --------------------------------------------------------------------------------------------------

    def drain(self) -> None:
        """Place everything."""
        while self.place_one():
            pass
        assert not self._pending, "a dependency points forward"

    def place_one(self) -> bool:
        """Place the instruction that can start first. False if the window holds none that can."""
        best_start, best_step, best = float("inf"), -1, None
        for lane in self.engines.lanes:
            waiting, free = lane.waiting, lane.free
            while waiting and waiting[0][0] <= free:
                heapq.heappush(lane.ready, heapq.heappop(waiting)[1])
            if lane.ready:
                start, step = free, lane.ready[0]
            elif waiting:
                start, step = waiting[0]
            else:
                continue
            if start < best_start or (start == best_start and step < best_step):
                best_start, best_step, best = start, step, lane
        if best is None:
            return False
        if best.ready:
            heapq.heappop(best.ready)
        else:
            heapq.heappop(best.waiting)
        self._place(best_step)
        return True

    def _place(self, step: int) -> None:
        entry, steps = self._pending.pop(step), self.steps
        self.engines.place(step, entry.earliest, entry.cause, entry.since, tuple(entry.banks))
        self._clock = max(self._clock, steps.start[step])
        while self._oldest < len(steps.instrs) and steps.finish[self._oldest] >= 0:
            self._oldest += 1
        for successor, kind in entry.successors:
            waiting = self._pending[successor]
            self._release(step, successor, kind, waiting)
            waiting.missing -= 1
            if not waiting.missing:
                lane = self.engines.lanes[steps.works[successor].lane]
                heapq.heappush(lane.waiting, (waiting.earliest, successor))
        for piece in entry.pieces:
            self.storage.touched(piece, steps.finish[step], step)
            if not self.holding:
                self.storage.used(piece, 1)

    def finish_with(self, piece: int) -> None:
        """Place everything that touches a slice."""
        while any(piece in entry.pieces for entry in self._pending.values()):
            self.place_one()

    def earliest(self, step: int) -> float:
        """When a step that waits for nothing else could start."""
        return max(self._pending[step].earliest, self.engines.lanes[self.steps.works[step].lane].free)

    def hold(self, step: int, until: float) -> None:
        """Let the only step in the window start no earlier than `until`."""
        entry, lane = self._pending[step], self.engines.lanes[self.steps.works[step].lane]
        entry.wait(until, -1, until)
        lane.ready, lane.waiting = [], [(entry.earliest, step)]
