"""Execution: the trace's instructions as NumPy on simulated memories.

One machine is one core. Arithmetic is float32 inside an engine with one rounding on write (none where the memory
keeps low precision wide, see `memory`). Dynamic rules are raised here under the names that static legality uses:
bounds of run-time addresses, unwritten data that reaches an index, a register or an output, and the step budget.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from nkismith.verify.simulator import gather
from nkismith.verify.simulator.dtypes import STORAGE, as_float32, cast, truncate_tf32
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.hardware import PARTITIONS, Target
from nkismith.verify.simulator.instruction import define
from nkismith.verify.simulator.memory import WIDENED, Memory
from nkismith.verify.simulator.site import Site
from nkismith.verify.simulator.trace import Buffer, Instr, Loop, Node, Operand, ScalarRef, While

STEP_BUDGET = 2_000_000  # the longest bundled production case executes 240,000 instructions
STEP_ELEMENTS = 15  # log2 of the elements that an instruction may touch for one step more
FLOAT32 = STORAGE["float32"]


class Accumulator:
    """The reduce registers of an engine: one float32 a lane, and which lanes hold nothing defined."""

    __slots__ = ("undefined", "values")

    def __init__(self) -> None:
        self.values = np.zeros(PARTITIONS, FLOAT32)
        self.undefined = np.ones(PARTITIONS, bool)


class Machine:
    """Executes the program of one core."""

    def __init__(
        self,
        buffers: list[Buffer] | tuple[Buffer, ...],
        memory: Memory,
        target: Target,
        *,
        core: int = 0,
        lnc: int = 1,
        files: tuple[str, ...] = (),
        seed: int = 0,
        steps: int = STEP_BUDGET,
    ) -> None:
        self.buffers, self.memory, self.target = buffers, memory, target
        self.core, self.lnc, self.files = core, lnc, files
        self.scalars: dict[int, int] = {}
        self.tainted_scalars: set[int] = set()
        self.accumulators = {"vector": Accumulator(), "scalar": Accumulator()}
        # What matmuls wrote: PSUM buffer -> element size -> a mask, or True for all of it.
        self.matmul_written: dict[int, dict[int, np.ndarray | bool]] = {}
        self.seed = seed
        self.generators: dict[str, object] = {}  # engine -> its pseudo random number generator
        self.warnings: list[tuple[int, str]] = []
        self.post: dict = {}  # what the cores of a launch exchange
        self.console: Callable[[str], None] | None = None  # where nl.device_print goes; None: nowhere
        self.after: list[Callable[[Machine, Instr], None]] = []  # called with every instruction that is done
        self.quiet = False  # the caller has silenced NumPy's warnings already
        self._warned: set[tuple[int, int, str, str]] = set()
        self._budget = self._steps = steps
        self._costs: dict[int, int] = {}  # steps of an instruction, which a loop executes again and again
        self._site: Site | None = None
        self._resolved: dict[str, Operand] = {}
        self._taints: dict[str, np.ndarray | None] = {}
        self._scoped: dict[int, list[Buffer]] | None = None

    # -- control --------------------------------------------------------------------------------------------------

    def run(self, body: list[Node]) -> None:
        """Execute a body to its end."""
        for _ in self.steps(body):
            raise LegalityError("launch", "a cross-core wait outside a two-core launch", "launch with lnc=2")

    def steps(self, body: list[Node]) -> Iterator[object]:
        """Execute a body, yielding whenever a cross-core instruction has to wait."""
        for node in body:
            if isinstance(node, Instr):
                waiting = self.execute(node)
                while waiting is not None:
                    yield waiting
                    waiting = self.execute(node)
            elif isinstance(node, Loop):
                yield from self._loop(node)
            elif isinstance(node, While):
                yield from self._while(node)
            else:
                yield from self.steps(node.body)

    def _loop(self, loop: Loop) -> Iterator[object]:
        yield from self.iterate(loop, self.bounds(loop))

    def bounds(self, loop: Loop) -> range:
        """The index values of a counted loop. Raises LegalityError at its line for a bound that nothing wrote."""
        return range(self.value(loop.lower, loop.line), self.value(loop.upper, loop.line), loop.step)

    def iterate(self, loop: Loop, values: range) -> Iterator[object]:
        """Execute the body of a counted loop for the given index values."""
        for value in values:
            self._tick(loop)
            self.begin(loop.id)
            self.scalars[loop.index] = value
            yield from self.steps(loop.body)

    def _while(self, loop: While) -> Iterator[object]:
        self.scalars[loop.condition] = self.value(loop.init, loop.line)
        yield from self.repeat(loop)

    def repeat(self, loop: While) -> Iterator[object]:
        """Execute the body of a while loop as long as its condition is non-zero."""
        while self.scalars[loop.condition]:
            self._tick(loop)
            self.begin(loop.id)
            yield from self.steps(loop.body)
            assert loop.next is not None
            self.scalars[loop.condition] = self.value(loop.next)

    def begin(self, loop_id: int) -> None:
        """An iteration starts: tiles made in the body are fresh again."""
        if self._scoped is None:
            self._scoped = {}
            for buffer in self.buffers:
                if buffer.scope and buffer.core in (-1, self.core):
                    self._scoped.setdefault(buffer.scope, []).append(buffer)
        for buffer in self._scoped.get(loop_id, ()):
            if self.memory.holds(buffer.id):
                self.memory.forget(buffer)
                self.matmul_written.pop(buffer.id, None)

    def _cost(self, instr: Instr) -> int:
        """One step, and one more for every 32,768 elements: a budget of instructions alone bounds no time."""
        found = self._costs.get(id(instr))
        if found is None:
            largest = max((operand.size for operand in instr.operands.values()), default=0)
            found = self._costs[id(instr)] = 1 + (largest >> STEP_ELEMENTS)
        return found

    def _tick(self, node: Node, steps: int = 1) -> None:
        self._steps -= steps
        if self._steps < 0:
            raise LegalityError(
                "step_budget",
                f"the kernel executes more than the {self._budget:,} steps it may: one an instruction, and one more "
                f"for every {1 << STEP_ELEMENTS:,} elements",
                "check the bound or the condition of the loop",
                node.line,
            )

    def execute(self, instr: Instr) -> object | None:
        """Execute one instruction. Returns what it waits for, or None when it is done."""
        if self.quiet:
            return self._perform(instr)
        with np.errstate(all="ignore"):
            return self._perform(instr)

    def _perform(self, instr: Instr) -> object | None:
        self._tick(instr, self._cost(instr))
        definition = define(instr.op)
        site = self._site = Site(instr, definition, self.buffers, self.target, self.lnc, self.files)
        self._resolved = {}
        taints = self._taints = {}
        reads, memory, dirty = definition.reads, self.memory, False
        for name, operand in instr.operands.items():
            if not memory.holds(operand.buffer):
                memory.allocate(self.buffers[operand.buffer])
            term = operand.dynamic
            if term is not None and term.index is not None and not memory.holds(term.index.buffer):
                memory.allocate(self.buffers[term.index.buffer])
            if name in reads or name.rstrip("0123456789") in reads:
                taint = taints[name] = memory.taint(operand) if term is None else self.current_taint(name)
                dirty = dirty or taint is not None
        waiting = definition.run(self, site)
        if waiting is not None:
            return waiting
        if callable(definition.taint):
            definition.taint(self, site)
        elif definition.taint != "run":
            for name in definition.writes:
                if name in instr.operands:
                    self.mark(name, self.flow(name, definition.taint) if dirty else False)
        for see in self.after:
            see(self, instr)
        return None

    @property
    def site(self) -> Site:
        """The instruction that is being executed."""
        assert self._site is not None
        return self._site

    def warn(self, text: str, what: str = "") -> None:
        """Note something that hardware accepts and the documentation does not, once a line and `what` (the text)."""
        assert self._site is not None
        instr = self._site.instr
        key = (instr.file, instr.line, instr.op, what or text)
        if key not in self._warned:
            self._warned.add(key)
            self.warnings.append((instr.line, f"{instr.op}: {text}"))

    # -- values ---------------------------------------------------------------------------------------------------

    def value(self, number: int | ScalarRef, line: int | None = None) -> int:
        """A compile-time int, or the value of a run-time scalar; `line` is what a refusal blames (the instruction)."""
        if not isinstance(number, ScalarRef):
            return number
        value = self.scalars.get(number.id)
        if value is None:
            line = line or (self._site.instr.line if self._site else None)
            raise LegalityError(
                "unwritten_scalar", "reads a register that nothing wrote", "give it a value: register_alloc(0)", line
            )
        return value

    def operand(self, name: str) -> Operand:
        """The operand with its run-time scalar term added to the offset. Raises when it leaves the buffer."""
        assert self._site is not None
        operand = self._site.instr.operands[name]
        if operand.dynamic is None:
            return operand
        found = self._resolved.get(name)
        if found is None:
            found = self._resolved[name] = self._resolve(operand, name)
        return found

    def _resolve(self, operand: Operand, name: str) -> Operand:
        term = operand.dynamic
        if term is None or term.kind != "scalar":
            return operand
        assert self._site is not None
        if term.scalar is not None:
            value = self.value(term.scalar)
        else:
            assert term.index is not None
            if self.memory.taint(term.index) is not None:
                raise self._site.refuse("unwritten_index", f"{name} is addressed by an index nothing wrote", "load it")
            value = int(self.memory.view(term.index).reshape(-1)[0])
        moved = operand._replace(offset=operand.offset + value * term.stride, dynamic=None)
        low, high = extent(moved)
        buffer = self.buffers[operand.buffer]
        outside = bool(term.limit and not 0 <= value < term.limit)
        if self._site.attr("oob_mode") == "skip" and (outside or low < 0 or high > row_elements(buffer, operand.dtype)):
            return operand._replace(offset=0, pattern=((1, 0),), dynamic=None)  # nothing is moved
        if outside:
            raise self.out_of_bounds(name, f"run-time index {value}, which may be 0 to {term.limit - 1}")
        if low < 0 or high > row_elements(buffer, operand.dtype):
            raise self.out_of_bounds(
                name, f"run-time offset {value} reaches element {high - 1} of {row_elements(buffer, operand.dtype)}"
            )
        return moved

    def out_of_bounds(self, name: str, what: str) -> LegalityError:
        """The refusal of a run-time address, to raise."""
        assert self._site is not None
        return self._site.refuse("dynamic_bounds", f"{name}: {what}", "clamp the index, or pass oob_mode.skip to a DMA")

    def view(self, name: str) -> np.ndarray:
        """The storage of an operand, writable, in its own shape."""
        return self.memory.view(self.operand(name))

    def raw(self, name: str) -> np.ndarray:
        """Values of an on-chip operand as [P, N] in storage dtype; tensor indirection gathered."""
        operand = self.operand(name)
        if operand.dynamic is None:
            values = self.memory.view(operand)
            return values if values.ndim == 2 else values.reshape(operand.partitions or 1, -1)
        values = self.memory.view(gather.columns(operand)).reshape(operand.partitions or 1, -1)
        return gather.take(self, operand, values)

    def f32(self, name: str) -> np.ndarray:
        """Values of an on-chip operand as float32 [P, N]; may be a view of memory."""
        values, dtype = self.raw(name), self.operand(name).dtype
        if dtype == "tfloat32" and self.memory.precise:
            return truncate_tf32(values)
        return as_float32(values, dtype)

    def vector(self, name: str, default: float = 0.0) -> np.ndarray | np.float32:
        """A per-partition operand: float32 [P, 1] from a tile, or a float32 number."""
        assert self._site is not None
        if self._site.has(name):
            return self.f32(name).reshape(-1, 1)
        value = self._site.attr(name)
        if isinstance(value, ScalarRef):
            value = self.value(value)
        return np.float32(default if value is None else value)

    def cast(self, values: np.ndarray, dtype: str) -> np.ndarray:
        """Values rounded to a dtype, or as they are where the memory keeps that dtype wide."""
        wide = not self.memory.precise and (dtype in WIDENED or dtype == "tfloat32")
        return values.astype(FLOAT32) if wide else cast(values, dtype)

    def emit(self, name: str, function: Callable[..., np.ndarray], *inputs: object) -> np.ndarray:
        """Write function(*inputs), which takes `out=` as NumPy's own do; straight into memory if nothing rounds.

        Returns the float32 results [P, N]: a view of memory, or what was rounded.
        """
        out = self._direct(name)
        if out is not None:
            return function(*inputs, out=out)
        result = function(*inputs)
        self.put(name, result)
        return result

    def _direct(self, name: str) -> np.ndarray | None:
        """A writable float32 [P, N] view of an operand, if writing all of it needs neither cast nor scatter."""
        operand = self.operand(name)
        if operand.dynamic is not None or operand.dtype == "tfloat32":
            return None
        if any(stride == 0 and count > 1 for stride, count in operand.pattern):
            return None  # results that fall on one place would be all that the caller gets back
        view = self.memory.view(operand, overwrite=True)
        if view.dtype != FLOAT32:
            return None
        if view.ndim == 2:
            return view
        try:
            return np.reshape(view, (view.shape[0], -1), copy=False)
        except ValueError:
            return None

    def put(self, name: str, values: np.ndarray) -> None:
        """Write an operand: one rounding to its dtype. `values` has its element count (or broadcasts to [P, N])."""
        operand = self.operand(name)
        if gather.is_gather(operand):
            gather.scatter(self, operand, self.cast(values, operand.dtype))
            return
        view = self.memory.view(operand, overwrite=True)
        if view.dtype != FLOAT32 or operand.dtype == "tfloat32":
            values = self.cast(values, operand.dtype)
        if values.size == 1:
            view[...] = values.reshape(())
        elif values.size == view.size:
            view[...] = values.reshape(view.shape)
        else:
            view[...] = np.broadcast_to(values, (view.shape[0], view.size // view.shape[0])).reshape(view.shape)

    def put_raw(self, name: str, values: np.ndarray) -> None:
        """Write bits as they are; `values` has the operand's storage dtype."""
        operand = self.operand(name)
        if gather.is_gather(operand):
            gather.scatter(self, operand, values)
            return
        view = self.memory.view(operand, overwrite=True)
        view[...] = values.reshape(view.shape)

    # -- unwritten data -------------------------------------------------------------------------------------------

    def current_taint(self, name: str) -> np.ndarray | None:
        """Mask of the unwritten elements an operand holds now, in its own shape; None if clean."""
        operand = self.operand(name)
        if operand.dynamic is not None and operand.dynamic.kind == "vector":
            return None  # the DMA that reads through a vector of rows looks at them itself
        taint = self.memory.taint(gather.columns(operand))
        if taint is not None and operand.dynamic is not None:
            taken = gather.take(self, operand, taint.reshape(operand.partitions, -1))
            return taken if taken.any() else None
        return taint

    def taint(self, name: str) -> np.ndarray | None:
        """[P, N] mask of unwritten elements an input had before the instruction ran; None if clean."""
        found = self._taints.get(name)
        if found is None:
            return None
        return found.reshape(self.operand(name).partitions or 1, -1)

    def mark(self, name: str, tainted: np.ndarray | bool) -> None:
        """Say what a write left: False, or a mask with the operand's element count."""
        operand = self.operand(name)
        if operand.dynamic is not None:
            if gather.is_gather(operand):
                gather.mark(self, operand, tainted)
            return
        if isinstance(tainted, np.ndarray):
            tainted = tainted.reshape(operand.shape)
        self.memory.mark(operand, tainted)

    def flow(self, name: str, how: str = "elementwise") -> np.ndarray | bool:
        """Taint that reaches an output from the inputs' taints: False or a mask [P, N]. `how` as in `instruction`."""
        masks = [self.taint(n) for n in self._taints if self._taints[n] is not None]
        if not masks:
            return False
        operand = self.operand(name)
        rows, free = operand.partitions or 1, operand.free
        if how == "all" or not operand.partitions:
            return np.ones((rows, free), bool)
        out = np.zeros((rows, free), bool)
        for mask in masks:
            assert mask is not None
            if len(mask) != rows:
                return np.ones((rows, free), bool)
            if how == "elementwise" and mask.shape[1] in (1, free):
                out |= mask
            else:
                out |= mask.any(axis=1, keepdims=True)
        return out


def extent(operand: Operand) -> tuple[int, int]:
    """First and last+1 element (in the partition row, or in HBM) that a static operand touches."""
    low = high = operand.offset
    for stride, count in operand.pattern:
        reach = stride * (count - 1)
        low, high = low + min(reach, 0), high + max(reach, 0)
    return low, high + 1


def row_elements(buffer: Buffer, dtype: str) -> int:
    """Elements of `dtype` in a partition row of a buffer (HBM: in all of it)."""
    return buffer.free * STORAGE[buffer.dtype].itemsize // STORAGE[dtype].itemsize
