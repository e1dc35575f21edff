"""The trace: what a kernel recorded, as plain data.

One trace serves legality, execution on any inputs, scheduling, and the docs of a verdict. It holds no Python
objects of the kernel: buffers, and per core one program of nodes. Nodes are instructions, compiled loops whose
body stands once, and program-order blocks. Run-time scalars are SSA ids; an operand is a region of a buffer,
static or with one dynamic term.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

VERSION = 1
# What a trace can hold. The recorder refuses more at the kernel's line, the reader of its bytes does not believe it.
MAX_ELEMENTS = 1 << 40  # of a buffer, and the reach of a stride or an offset: far beyond any HBM
MAX_NESTING = 32  # loops and ordered blocks inside each other
MAX_TEXT = 4096  # characters of a name
MAX_TUPLES = 4  # inside each other, as an attribute
WORD = 1 << 63  # integers lie in -WORD .. WORD - 1


class ScalarRef(NamedTuple):
    """A run-time integer: the result of a scalar instruction, a loop index, or a register."""

    id: int


class Operand(NamedTuple):
    """A region of a buffer, in elements of `dtype` (which may reinterpret the buffer's own dtype).

    On chip, partitions `start .. start+partitions` and, in each of them, `offset` plus the pattern
    [[stride, count], ...]. In HBM `partitions` is 0 and the pattern covers every dimension, outermost first.
    """

    buffer: int
    dtype: str
    start: int
    partitions: int
    offset: int
    pattern: tuple[tuple[int, int], ...]
    dynamic: Dynamic | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Element counts, partition dimension first where there is one."""
        free = tuple(count for _, count in self.pattern)
        return (self.partitions, *free) if self.partitions else free

    @property
    def free(self) -> int:
        """Elements a partition (on chip) or in all (HBM)."""
        n = 1
        for _, count in self.pattern:
            n *= count
        return n

    @property
    def size(self) -> int:
        """Elements in all."""
        return self.free * (self.partitions or 1)


class Dynamic(NamedTuple):
    """The one dynamic term of an operand.

    kind `scalar`: adds the value of `scalar` (or of the 1x1 tile `index`) times `stride` elements to the offset.
    kind `vector`: row p of the outermost dimension starts at index[p] * stride instead of p times its own stride.
    kind `gather`: tensor indirection; free element i is taken at index element i, snaked over `group` partitions.
    `limit` is the number of addressable positions: values outside 0 .. limit-1 are out of bounds.
    """

    kind: str
    scalar: ScalarRef | None
    index: Operand | None  # type: ignore[assignment]  # the field hides tuple.index, which nobody calls
    stride: int
    limit: int
    group: int = 0


@dataclass(frozen=True, slots=True)
class Buffer:
    """Storage a kernel named. `shape` is the allocated shape, dimension 0 the partitions on chip."""

    id: int
    name: str
    space: str  # sbuf, psum, hbm
    kind: str  # input, output, internal, constant
    shared: bool  # HBM that every core sees
    dtype: str
    shape: tuple[int, ...]
    address: tuple[int, ...] | None  # (start partition, byte offset) set by the author
    core: int  # program that owns it; -1 when shared by all
    at: int  # instructions recorded before it was made
    scope: int  # id of the compiled loop whose body made it; 0 at top level
    line: int
    data: bytes = b""  # constants

    @property
    def free(self) -> int:
        """Elements a partition (on chip) or in all (HBM)."""
        n = 1
        for extent in self.shape[1:] if self.space != "hbm" else self.shape:
            n *= extent
        return n


@dataclass(slots=True)
class Instr:
    """One recorded instruction. `operands` by parameter name; `attrs` are plain values or ScalarRef."""

    id: int
    op: str
    operands: dict[str, Operand]
    attrs: dict[str, object]
    line: int
    file: int = 0
    name: str = ""

    def __str__(self) -> str:
        return f"{self.op} at line {self.line}"


@dataclass(slots=True)
class Loop:
    """A counted loop on the device (nl.fori_loop); `index` is the scalar that carries the count."""

    id: int
    index: int
    lower: int | ScalarRef
    upper: int | ScalarRef
    step: int
    body: list[Node]
    line: int
    file: int = 0


@dataclass(slots=True)
class While:
    """A loop that runs while `condition` is non-zero (nl.while_loop); the body sets it anew through `next`."""

    id: int
    condition: int
    init: ScalarRef
    next: ScalarRef | None
    body: list[Node]
    line: int
    file: int = 0


@dataclass(slots=True)
class Ordered:
    """A block whose instructions keep program order (nl.no_reorder)."""

    body: list[Node]
    line: int
    file: int = 0


Node = Instr | Loop | While | Ordered


@dataclass(frozen=True, slots=True)
class Program:
    """What one core executes. `edges` are (consumer id, producer id) pairs from depends_on."""

    core: int
    body: list[Node]
    edges: tuple[tuple[int, int], ...] = ()
    scalars: int = 0  # ids 0 .. scalars-1 are in use


@dataclass(frozen=True, slots=True)
class Trace:
    """A whole recording at one set of shapes: `inputs` are the buffers of the tensor parameters in order, `outputs`
    the HBM regions the kernel returned."""

    entry: str
    sdk: str
    target: str
    lnc: int
    buffers: tuple[Buffer, ...]
    programs: tuple[Program, ...]
    inputs: tuple[int, ...]
    outputs: tuple[Operand, ...]
    files: tuple[str, ...] = ("kernel.py",)
    warnings: tuple[tuple[int, str], ...] = field(default=())


def walk(body: list[Node]) -> Iterator[Instr]:
    """Every instruction below a body once, in program order; loop bodies are visited once."""
    for node in body:
        if isinstance(node, Instr):
            yield node
        else:
            yield from walk(node.body)


def count(trace: Trace) -> int:
    """Recorded instructions over all programs (a loop body counts once)."""
    return sum(1 for program in trace.programs for _ in walk(program.body))
