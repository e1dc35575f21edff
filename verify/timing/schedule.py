"""When each instruction runs: list scheduling in a bounded window, in-order issue on every engine and DMA queue.

Instructions enter the window in program order. Each waits for the earlier accesses of its regions and for room for
the tiles it starts; of those that wait for nothing, the one that can start first goes next. Compiled loops are run
iteration by iteration until their pace is steady, then the rest is extrapolated.
Sources: how-to-scheduling-apis (reordering, no_reorder), nki_perf_guide (semaphores), nki-loops.
"""

from __future__ import annotations

import heapq
from collections.abc import Generator

from nkismith.verify.simulator import hardware
from nkismith.verify.simulator.hardware import PSUM_BANK_BYTES, target
from nkismith.verify.simulator.trace import (
    Buffer,
    Instr,
    Loop,
    Node,
    Operand,
    Ordered,
    Program,
    ScalarRef,
    Trace,
    While,
    walk,
)
from nkismith.verify.timing.allocation import Allocation, Spill
from nkismith.verify.timing.critical import causes
from nkismith.verify.timing.engines import Engines
from nkismith.verify.timing.memory import TRUE, Storage
from nkismith.verify.timing.regions import region
from nkismith.verify.timing.steps import CoreSchedule, Skipped, Steps, Totals
from nkismith.verify.timing.values import Values
from nkismith.verify.timing.work import ENGINES, Work, Workbook

WINDOW = 512  # instructions among which order is chosen
EXACT_TRIPS = 16  # compiled loops up to this long are simulated throughout
STEADY = 0.005  # relative difference of iterations that counts as a steady pace
STEADY_RUN = 4  # for so many iterations in a row
SIMULATED_MAX = 400_000  # instructions of one loop after which its pace is extrapolated in any case

ORDER = 3  # a dependency that only asks to issue later
CROSS_CORE = frozenset({"core_barrier", "sendrecv"})


def schedule(
    trace: Trace,
    allocation: Allocation,
    *,
    control: dict[str, list[int]] | None = None,
    window: int = WINDOW,
) -> tuple[CoreSchedule, ...]:
    """Schedule every core of a legal trace.

    `control` gives values to the integer inputs that trip counts depend on. Raises LegalityError `unbound_scalar` when
    a trip count has no value.
    """
    cores = [_Core(trace, program, allocation, i, control or {}, window) for i, program in enumerate(trace.programs)]
    runs = [core.run() for core in cores]
    arrivals: dict[int, float] = {}
    alive = [i for i, run in enumerate(runs) if _advance(run, None, arrivals, i)]
    while alive:  # the cores have met: all go on from the time the last one arrived
        met = max(arrivals[i] for i in alive)
        alive = [i for i in alive if _advance(runs[i], met, arrivals, i)]
    return tuple(core.result() for core in cores)


def _advance(run: Generator[float, float, None], met: float | None, arrivals: dict[int, float], index: int) -> bool:
    try:
        arrivals[index] = next(run) if met is None else run.send(met)
    except StopIteration:
        return False
    return True


def _is_steady(paces: list[float], trips: int, instructions: float) -> bool:
    """May the rest of a compiled loop be extrapolated?"""
    if trips <= EXACT_TRIPS or len(paces) <= STEADY_RUN:
        return False
    recent = paces[-STEADY_RUN:]
    return max(recent) - min(recent) <= STEADY * max(recent) or instructions > SIMULATED_MAX


class _Pending:
    """An instruction in the window that is not placed yet."""

    __slots__ = ("banks", "cause", "earliest", "missing", "pieces", "since", "successors")

    def __init__(self) -> None:
        self.earliest, self.cause, self.since = 0.0, -1, 0.0
        self.missing = 0  # accesses it waits for that are not placed either
        self.pieces: list[int] = []  # slices it touches
        self.banks: list[tuple[int, int]] = []
        self.successors: list[tuple[int, int]] = []  # (step, kind of dependency)

    def wait(self, time: float, cause: int, since: float) -> None:
        """Not before `time`."""
        if time > self.earliest:
            self.earliest, self.cause, self.since = time, cause, since


class _Core:
    """Schedules one program."""

    def __init__(
        self,
        trace: Trace,
        program: Program,
        allocation: Allocation,
        index: int,
        control: dict[str, list[int]],
        window: int,
    ) -> None:
        self.trace, self.program, self.window = trace, program, window
        machine = target(trace.target)
        self.steps, self.totals = Steps(), Totals()
        self.engines = Engines(machine, self.steps, self.totals)
        self.lanes = self.engines.lanes
        self.values = Values(trace, control)
        self.life = allocation.life[index]
        self.storage = Storage(trace, program, machine, self.life)
        self.book = Workbook(trace, machine)
        self.skipped: list[Skipped] = []
        self.pending: dict[int, _Pending] = {}
        self.oldest = 0  # first step that is not placed
        self.clock = 0.0  # start of the step placed last
        self.position = 0  # in program order, loop bodies once
        self.in_loop = False
        self.ordered: dict[int, int] | None = None  # inside no_reorder: lane -> its last step
        self.spills: dict[int, list[Spill]] = {}
        for spill in allocation.spills[index]:
            self.spills.setdefault(spill.before, []).append(spill)
        self.edges: dict[int, list[int]] = {}
        for consumer, producer in program.edges:
            self.edges.setdefault(consumer, []).append(producer)
        self.producers: dict[int, int] = {producer: -1 for _, producer in program.edges}  # instruction id -> step

    def run(self) -> Generator[float, float, None]:
        """Schedule the program, yielding the time at which it waits for the other core."""
        yield from self._body(self.program.body)
        self._drain()

    def result(self) -> CoreSchedule:
        """The finished schedule."""
        engines = self.engines
        return CoreSchedule(self.program.core, self.steps, self.totals, tuple(self.skipped), engines.end, engines.last)

    # -- program order --------------------------------------------------------------------------------------------

    def _body(self, body: list[Node]) -> Generator[float, float, None]:
        for node in body:
            if isinstance(node, Instr):
                if node.op in CROSS_CORE and self.trace.lnc > 1:
                    yield from self._meet(node)
                else:
                    self._feed(node)
            elif isinstance(node, Ordered):
                outside, self.ordered = self.ordered, {} if self.ordered is None else self.ordered
                yield from self._body(node.body)
                self.ordered = outside
            else:
                yield from self._enter(node)

    def _meet(self, instr: Instr) -> Generator[float, float, None]:
        self._drain()
        step = self._feed(instr)
        entry, lane = self.pending[step], self.lanes[self.steps.works[step].lane]
        skipped = self.totals.extra
        met = yield max(entry.earliest, lane.free) + skipped
        entry.wait(met - skipped, -1, met - skipped)
        lane.ready, lane.waiting = [], [(entry.earliest, step)]
        self._drain()

    def _enter(self, loop: Loop | While) -> Generator[float, float, None]:
        """Run a compiled loop; the window does not reach across its ends."""
        self._drain()
        outermost, start = not self.in_loop, self.position
        if outermost:
            for instr in walk(loop.body):
                self._spill_before(instr)
            self._drain()
            for piece in self.storage.loop_slices.get(start, ()):
                if not self.storage.claimed[piece]:
                    self._claim(piece)
            self.in_loop = True
        yield from self._iterate(loop) if isinstance(loop, Loop) else self._repeat(loop)
        if outermost:
            self.in_loop = False
            self.position = self.life.loops.get(start, start - 1) + 1
            for piece in self.storage.loop_slices.get(start, ()):
                self.storage.touched(piece, self.engines.end, self.engines.last)
                uses = {p for p, _ in self.storage.slices[piece].uses if start <= p < self.position}
                self._used(piece, len(uses))

    def _iterate(self, loop: Loop) -> Generator[float, float, None]:
        lower = self.values.bound(loop.lower, "the lower bound of the loop", loop.line)
        upper = self.values.bound(loop.upper, "the upper bound of the loop", loop.line)
        self._wait_for(loop.lower)
        self._wait_for(loop.upper)
        trips = range(lower, upper, loop.step)
        paces: list[float] = []
        first = self.totals.instructions
        for done, value in enumerate(trips):
            before, began = self.totals.copy(), self.engines.end
            self.values.scalars[loop.index] = value
            yield from self._once(loop)
            paces.append(self.engines.end - began + self.totals.extra - before.extra)
            left = len(trips) - done - 1
            if left and _is_steady(paces, len(trips), self.totals.instructions - first):
                self._skip(loop, before, began, left)
                break

    def _repeat(self, loop: While) -> Generator[float, float, None]:
        going = self.values.bound(loop.init, "the condition of the loop", loop.line)
        self._wait_for(loop.init)
        first = self.totals.instructions
        while going:
            self.values.scalars[loop.condition] = going
            yield from self._once(loop)
            assert loop.next is not None
            if self.totals.instructions - first > SIMULATED_MAX:
                self.values.scalars.pop(loop.next.id, None)  # its end is out of reach: as good as unknown
            going = self.values.bound(loop.next, "the next condition of the loop", loop.line)

    def _once(self, loop: Loop | While) -> Generator[float, float, None]:
        for lane in self.lanes[: len(ENGINES)]:
            lane.free += hardware.LOOP_NS.value
        yield from self._body(loop.body)
        self._drain()

    def _wait_for(self, bound: int | ScalarRef) -> None:
        """Every engine reads a loop bound before its first iteration."""
        producer = self.values.producers.get(bound.id, -1) if isinstance(bound, ScalarRef) else -1
        if producer >= 0:
            for lane in self.lanes:
                if self.steps.finish[producer] > lane.free:
                    lane.free, lane.last = self.steps.finish[producer], producer

    def _skip(self, loop: Loop, before: Totals, began: float, left: int) -> None:
        """Extrapolate the rest of a loop from its last iteration."""
        engines, totals = self.engines, self.totals
        totals.repeat(before, left)
        pace = engines.end - began
        totals.extra += pace * left
        for cause, ns in causes(self.steps, engines.last, began).items():
            totals.extra_causes[cause] = totals.extra_causes.get(cause, 0.0) + ns * left
        self.skipped.append(Skipped(loop.line, left, engines.end, (pace + totals.extra - before.extra) * left))

    # -- entering the window --------------------------------------------------------------------------------------

    def _feed(self, instr: Instr) -> int:
        """Put an instruction into the window."""
        if self.spills and not self.in_loop:
            self._spill_before(instr)
        work = self.book.of(instr)
        step = self._admit(instr, work)
        entry = self.pending[step]
        if "result" in instr.attrs:
            self.values.producers[instr.attrs["result"].id] = step  # type: ignore[attr-defined]
        found: list[tuple[int, int]] = []
        self._access(instr, work, step, entry, found)
        self.values.follow(instr)
        if work.dynamic or "result" in instr.attrs or work.lane == len(ENGINES) - 1:
            found += [(p, TRUE) for p in self._scalar_producers(instr)]
        if instr.id in self.edges:
            found += [(self.producers[p], TRUE) for p in self.edges[instr.id]]
        if instr.id in self.producers:
            self.producers[instr.id] = step
        if self.ordered is not None:
            if work.lane in self.ordered:
                found.append((self.ordered[work.lane], ORDER))
            self.ordered[work.lane] = step
        self._depend(step, entry, found)
        if not self.in_loop:
            self.position += 1
        return step

    def _admit(self, instr: Instr, work: Work) -> int:
        while len(self.steps.instrs) - self.oldest >= self.window:
            self._place_one()
        step = self.steps.append(instr, work)
        self.pending[step] = _Pending()
        return step

    def _access(self, instr: Instr, work: Work, step: int, entry: _Pending, found: list[tuple[int, int]]) -> None:
        """Find what the instruction depends on, claiming room for the slices it is the first to touch."""
        buffers, storage = self.trace.buffers, self.storage
        for names, writing in ((work.reads, False), (work.writes, True)):
            for name in names:
                operand = instr.operands[name]
                buffer = buffers[operand.buffer]
                where = region(operand, buffer, self.values.offset(operand.dynamic) if operand.dynamic else None)
                piece = -1
                if buffer.space != "hbm":
                    piece = storage.slice_of(buffer, where.low)
                    if piece not in entry.pieces:
                        entry.pieces.append(piece)
                        if not storage.claimed[piece]:
                            self._claim(piece, entry)
                    if buffer.space == "psum":
                        banks = range(where.low // PSUM_BANK_BYTES, (where.high - 1) // PSUM_BANK_BYTES + 1)
                        entry.banks += [(piece, bank) for bank in banks]
                for tracker, place in storage.trackers(buffer, where, piece):
                    if writing:
                        tracker.write(place, step, found, self._settled)
                    else:
                        tracker.read(place, step, work.lane, found)
                if operand.dynamic is not None and operand.dynamic.index is not None:
                    self._read_index(operand.dynamic.index, work, step, entry, found)

    def _read_index(
        self, operand: Operand, work: Work, step: int, entry: _Pending, found: list[tuple[int, int]]
    ) -> None:
        buffer = self.trace.buffers[operand.buffer]
        where = region(operand, buffer)
        piece = self.storage.slice_of(buffer, where.low) if buffer.space != "hbm" else -1
        if piece >= 0 and piece not in entry.pieces:
            entry.pieces.append(piece)
        for tracker, place in self.storage.trackers(buffer, where, piece):
            tracker.read(place, step, work.lane, found)

    def _scalar_producers(self, instr: Instr) -> list[int]:
        """Steps that make the run-time scalars an instruction uses."""
        used = [o.dynamic.scalar for o in instr.operands.values() if o.dynamic and o.dynamic.scalar]
        used += [v for k, v in instr.attrs.items() if isinstance(v, ScalarRef) and k != "result"]
        return [p for p in (self.values.producers.get(s.id, -1) for s in used) if p >= 0]

    def _settled(self, step: int) -> bool:
        """Has the step ended before anything that is still to be placed can start?"""
        return 0 <= self.steps.finish[step] <= self.clock

    def _claim(self, piece: int, entry: _Pending | None = None) -> None:
        """Find room for a slice, placing instructions until enough of it is known to become free."""
        granted = self.storage.claim(piece)
        while granted is None and self._place_one():
            granted = self.storage.claim(piece)
        if granted is None:  # only tiles that the author placed can take more than there is; `allocate` judges them
            granted = self.engines.end, self.engines.last
            self.storage.claimed[piece] = True

        if entry is not None:
            time, freed_by = granted
            entry.wait(time, freed_by, time)

    def _depend(self, step: int, entry: _Pending, found: list[tuple[int, int]]) -> None:
        lane = self.steps.works[step].lane
        for producer, kind in dict.fromkeys(found):
            if producer == step or producer < 0:
                continue
            if self.steps.finish[producer] >= 0:
                self._release(producer, step, kind, entry)
            else:
                self.pending[producer].successors.append((step, kind))
                entry.missing += 1
        if not entry.missing:
            heapq.heappush(self.lanes[lane].waiting, (entry.earliest, step))

    def _release(self, producer: int, step: int, kind: int, entry: _Pending) -> None:
        """The earliest start that one dependency allows, now that its producer is placed."""
        steps = self.steps
        works = steps.works
        same = works[producer].lane == works[step].lane and works[producer].transfer is None
        if kind == TRUE and not (same and works[step].flops and works[producer].flops):
            since = steps.finish[producer]
        elif same or kind == ORDER:  # an engine accumulates and overwrites in order, without a wait
            since = steps.start[producer]
        else:
            since = steps.released(producer)
        signal = 0.0 if same or works[producer].transfer else hardware.SEMAPHORE_NS.value
        entry.wait(since + signal, producer, since)

    # -- placing --------------------------------------------------------------------------------------------------

    def _drain(self) -> None:
        while self._place_one():
            pass
        assert not self.pending, "a dependency points forward"

    def _place_one(self) -> bool:
        """Place the instruction of the window that can start first; of equals the one that comes first. False if
        none can."""
        best_start, best_step, best = float("inf"), -1, None
        for lane in self.lanes:
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
        entry = self.pending.pop(step)
        steps = self.steps
        self.engines.place(step, entry.earliest, entry.cause, entry.since, entry.banks)
        self.clock = max(self.clock, steps.start[step])
        done = len(steps.instrs)
        while self.oldest < done and steps.finish[self.oldest] >= 0:
            self.oldest += 1
        for successor, kind in entry.successors:
            waiting = self.pending[successor]
            self._release(step, successor, kind, waiting)
            waiting.missing -= 1
            if not waiting.missing:
                heapq.heappush(self.lanes[steps.works[successor].lane].waiting, (waiting.earliest, successor))
        time = steps.finish[step]
        for piece in entry.pieces:
            self.storage.touched(piece, time, step)
            if not self.in_loop:
                self._used(piece, 1)

    def _used(self, piece: int, times: int) -> None:
        self.storage.remaining[piece] -= times
        if self.storage.remaining[piece] <= 0:
            self.storage.release(piece)

    # -- spills ---------------------------------------------------------------------------------------------------

    def _spill_before(self, instr: Instr) -> None:
        """Insert the DMAs that save or reload slices before an instruction."""
        for spill in self.spills.get(instr.id, ()):
            buffer = self.trace.buffers[spill.buffer]
            piece = self.storage.slice_of(buffer, spill.low)
            if spill.kind != "drop":
                self._spill(spill, buffer, piece, instr.line)
            if spill.kind != "reload":
                while any(piece in entry.pieces for entry in self.pending.values()):
                    self._place_one()
                self.storage.release(piece)

    def _spill(self, spill: Spill, buffer: Buffer, piece: int, line: int) -> None:
        save = spill.kind == "save"
        work = self.book.spill(buffer, spill.low, spill.high, save)
        tile = self.book.whole(buffer, spill.low, spill.high)
        dma = Instr(0, f"spill_{spill.kind}", {"src" if save else "dst": tile}, {}, line)
        self.storage.remaining[piece] += 1
        step = self._admit(dma, work)
        found: list[tuple[int, int]] = []
        self._access(dma, work, step, self.pending[step], found)
        self._depend(step, self.pending[step], found)
