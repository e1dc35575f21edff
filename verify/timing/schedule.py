"""When each instruction runs: programs in order through a window, compiled loops, and where two cores meet.

Compiled loops are run iteration by iteration until their pace is steady, then the rest is extrapolated.
Sources: nki-loops, how-to-scheduling-apis (no_reorder), lnc.
"""

from __future__ import annotations

from collections.abc import Generator

from nkismith.verify.simulator import hardware
from nkismith.verify.simulator.capacity.allocation import Allocation
from nkismith.verify.simulator.capacity.spilling import Spill
from nkismith.verify.simulator.hardware import target
from nkismith.verify.simulator.trace import Instr, Loop, Node, Ordered, Program, ScalarRef, Trace, While, walk
from nkismith.verify.timing.critical import causes
from nkismith.verify.timing.engines import Engines
from nkismith.verify.timing.memory import TRUE, Storage
from nkismith.verify.timing.steps import CoreSchedule, Skipped, Steps, Totals
from nkismith.verify.timing.values import Values
from nkismith.verify.timing.window import ORDER, Dependency, Window
from nkismith.verify.timing.work import ENGINES, Workbook

WINDOW = 512  # instructions among which order is chosen
EXACT_TRIPS = 16  # compiled loops up to this long are simulated throughout
STEADY = 0.005  # relative difference of iterations that counts as a steady pace
STEADY_RUN = 4  # for so many iterations in a row
SIMULATED_MAX = 400_000  # instructions of one loop after which its pace is extrapolated in any case

CROSS_CORE = frozenset({"core_barrier", "sendrecv"})

Run = Generator[float, float, None]  # yields the time at which a core waits for the other, receives when both do


def schedule(
    trace: Trace, allocation: Allocation, *, control: dict[str, list[int]] | None = None, window: int = WINDOW
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


def _advance(run: Run, met: float | None, arrivals: dict[int, float], index: int) -> bool:
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
        self.trace, self.program = trace, program
        machine = target(trace.target)
        self.steps, self.totals = Steps(), Totals()
        self.engines = Engines(machine, self.steps, self.totals)
        self.values = Values(trace, control)
        self.life = allocation.life[index]
        self.storage = Storage(trace, program, machine, self.life)
        self.book = Workbook(trace, machine)
        self.window = Window(trace.buffers, self.storage, self.values, self.steps, self.engines, window)
        self.skipped: list[Skipped] = []
        self.position = 0  # in program order, loop bodies once
        self.ordered: dict[int, int] | None = None  # inside no_reorder: lane -> its last step
        self.spills: dict[int, list[Spill]] = {}
        for spill in allocation.spills[index]:
            self.spills.setdefault(spill.before, []).append(spill)
        self.edges: dict[int, list[int]] = {}  # depends_on: consumer -> producers, instruction ids
        for consumer, producer in program.edges:
            self.edges.setdefault(consumer, []).append(producer)
        self.producers: dict[int, int] = {producer: -1 for _, producer in program.edges}  # instruction id -> step

    def run(self) -> Run:
        """Schedule the program."""
        yield from self._body(self.program.body)
        self.window.drain()

    def result(self) -> CoreSchedule:
        """The finished schedule."""
        engines = self.engines
        return CoreSchedule(self.program.core, self.steps, self.totals, tuple(self.skipped), engines.end, engines.last)

    def _body(self, body: list[Node]) -> Run:
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

    def _feed(self, instr: Instr) -> int:
        """Put an instruction into the window."""
        in_loop = self.window.holding
        if self.spills and not in_loop:
            self._spill_before(instr)
        work = self.book.of(instr)
        others: list[Dependency] = [(self.producers[p], TRUE) for p in self.edges.get(instr.id, ())]
        if self.ordered is not None:
            others.append((self.ordered.get(work.lane, -1), ORDER))
        step = self.window.enter(instr, work, others)
        self.values.follow(instr, step)
        if instr.id in self.producers:
            self.producers[instr.id] = step
        if self.ordered is not None:
            self.ordered[work.lane] = step
        self.position += not in_loop
        return step

    def _meet(self, instr: Instr) -> Run:
        """An instruction that starts when both cores have come to it."""
        self.window.drain()
        step = self._feed(instr)
        skipped = self.totals.extra
        met = yield self.window.earliest(step) + skipped
        self.window.hold(step, met - skipped)
        self.window.drain()

    # -- compiled loops -------------------------------------------------------------------------------------------

    def _enter(self, loop: Loop | While) -> Run:
        """Run a compiled loop. The window does not reach across its ends, and its tiles live to its end."""
        self.window.drain()
        outermost, start = not self.window.holding, self.position
        held = self.storage.loop_slices.get(start, ()) if outermost else ()
        if outermost:
            for instr in walk(loop.body):
                self._spill_before(instr)
            self.window.drain()
            for piece in held:
                if not self.storage.claimed[piece]:
                    self.window.claim(piece)
            self.window.holding = True
        yield from self._iterate(loop) if isinstance(loop, Loop) else self._repeat(loop)
        if outermost:
            self.window.holding = False
            self.position = self.life.loops.get(start, start - 1) + 1
            for piece in held:
                self.storage.touched(piece, self.engines.end, self.engines.last)
                uses = {p for p, _ in self.storage.slices[piece].uses if start <= p < self.position}
                self.storage.used(piece, len(uses))

    def _iterate(self, loop: Loop) -> Run:
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

    def _repeat(self, loop: While) -> Run:
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

    def _once(self, loop: Loop | While) -> Run:
        for lane in self.engines.lanes[: len(ENGINES)]:
            lane.free += hardware.LOOP_NS.value
        yield from self._body(loop.body)
        self.window.drain()

    def _wait_for(self, bound: int | ScalarRef) -> None:
        """Every engine reads a loop bound before its first iteration."""
        producer = self.values.producers.get(bound.id, -1) if isinstance(bound, ScalarRef) else -1
        if producer >= 0:
            for lane in self.engines.lanes:
                if self.steps.finish[producer] > lane.free:
                    lane.free, lane.last = self.steps.finish[producer], producer

    def _skip(self, loop: Loop, before: Totals, began: float, left: int) -> None:
        """Extrapolate the rest of a loop from its last iteration."""
        engines, totals = self.engines, self.totals
        pace = engines.end - began
        whole = pace + totals.extra - before.extra
        totals.repeat(before, left)
        totals.extra += pace * left
        for cause, ns in causes(self.steps, engines.last, began).items():
            totals.extra_causes[cause] = totals.extra_causes.get(cause, 0.0) + ns * left
        self.skipped.append(Skipped(loop.line, left, engines.end, whole * left))

    # -- spills ---------------------------------------------------------------------------------------------------

    def _spill_before(self, instr: Instr) -> None:
        """Insert the DMAs that save or reload slices before an instruction."""
        for spill in self.spills.get(instr.id, ()):
            buffer = self.trace.buffers[spill.buffer]
            piece = self.storage.slice_of(buffer, spill.low)
            if spill.kind != "drop":
                save = spill.kind == "save"
                tile = self.book.whole(buffer, spill.low, spill.high)
                dma = Instr(0, f"spill_{spill.kind}", {"src" if save else "dst": tile}, {}, instr.line)
                self.storage.remaining[piece] += 1
                self.window.enter(dma, self.book.spill(buffer, spill.low, spill.high, save))
            if spill.kind != "reload":
                self.window.finish_with(piece)
                self.storage.release(piece)
