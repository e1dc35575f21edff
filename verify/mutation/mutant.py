"""What a mutant is: a kernel with one small mistake, made in its traces or in its source."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import cached_property

from nkismith.verify.simulator.errors import NkiValidationError
from nkismith.verify.simulator.hardware import target
from nkismith.verify.simulator.instruction import Definition
from nkismith.verify.simulator.legality import check_instruction
from nkismith.verify.simulator.trace import Buffer, Instr, Node, Program, Trace, walk


class Kind(StrEnum):
    """The mistakes that are made; the text is what the table of `nkismith mutate` says."""

    DROP = "drop an instruction"
    SKIP_LAST = "skip the last tile or iteration"
    SWAP = "swap operands"
    OPERATOR = "another operator or function"
    NEUTRAL = "drop a scale, eps, bias or maximum"
    NUMBER = "another number"
    FLAG = "wrong accumulate, negate or reduce flag"
    SHIFT = "shift a slice or DMA region"
    SHRINK = "leave out the last element or row"
    STALE = "read a stale or another tile"
    DTYPE = "round an intermediate to bfloat16"
    SLOT = "wrong run-time address"
    LOOP = "loop bounds off by one"
    SOURCE_NUMBER = "source: another number"
    SOURCE_OPERATOR = "source: another operator or comparison"
    SOURCE_KEYWORD = "source: a keyword left out"
    SOURCE_RANGE = "source: range bounds off"


@dataclass(frozen=True)
class Site:
    """Where a kernel's line became instructions (or a compiled loop, with op `loop`)."""

    file: int
    line: int
    op: str


class Scene:
    """A trace that mutants are made of, with what is looked up again and again."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.machine = target(trace.target)

    @cached_property
    def sites(self) -> Mapping[Site, list[Instr]]:
        """Every instruction by its site, in program order, all cores."""
        found: dict[Site, list[Instr]] = {}
        for program in self.trace.programs:
            for instr in walk(program.body):
                found.setdefault(Site(instr.file, instr.line, instr.op), []).append(instr)
        return found

    @cached_property
    def alike(self) -> Mapping[tuple[object, ...], list[Buffer]]:
        """On-chip buffers that could be mistaken for each other: same core, memory, dtype and shape; oldest first."""
        found: dict[tuple[object, ...], list[Buffer]] = {}
        for buffer in self.trace.buffers:
            if buffer.space != "hbm":
                found.setdefault(look(buffer), []).append(buffer)
        return found

    def buffer(self, instr: Instr, name: str) -> Buffer:
        """The buffer behind an operand."""
        return self.trace.buffers[instr.operands[name].buffer]

    def legal(self, instr: Instr) -> bool:
        """Would the hardware take this instruction? What it refuses is no mistake that a verdict has to find."""
        try:
            check_instruction(instr, self.trace.buffers, self.machine, self.trace.lnc, self.trace.files)
        except NkiValidationError:
            return False
        return True


def is_read(definition: Definition, name: str) -> bool:
    """Does an instruction read the operand recorded under this name? Lists are recorded as name0, name1, ..."""
    return name in definition.reads or name.rstrip("0123456789") in definition.reads


def look(buffer: Buffer) -> tuple[object, ...]:
    """What two buffers must share to be mistaken for each other."""
    return (buffer.core, buffer.space, buffer.dtype, buffer.shape)


@dataclass(frozen=True)
class Mutant:
    """One mistake. Either `change` makes it in a trace (and returns `scene.trace` itself where it changes nothing), or
    `source` is the whole changed source. A `spare` one is taken only for kernels that have few others."""

    kind: Kind
    line: int
    what: str
    change: Callable[[Scene], Trace] | None = None
    source: str = ""
    spare: bool = False

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}"

    def changes(self, scene: Scene) -> bool:
        """Does it change this trace? Of a source that is not known before it is recorded."""
        return self.change is None or self.change(scene) is not scene.trace


# Makes a mistake in one instance of a line: what it becomes (itself where the mistake cannot be made), or None to leave
# it out. The last argument is the instance before it, None at the first.
Apply = Callable[[Instr, Scene, Instr | None], Instr | None]


@dataclass(frozen=True)
class Edit:
    """One mistake in an instruction.

    It is made in every instance of the line, or in the last one only. Where the hardware would refuse the result the
    instance stays as it is, so that what is asked of the verdict is never answered by legality alone.
    """

    kind: Kind
    what: str
    apply: Apply


def with_replaced(trace: Trace, replaced: Mapping[int, Instr | None]) -> Trace:
    """The trace with instructions replaced or, for None, left out; keys are `id()` of the old ones."""
    if not replaced:
        return trace

    def edit(node: Node) -> Node | None:
        return replaced.get(id(node), node) if isinstance(node, Instr) else node

    return with_programs(trace, edit)


def with_programs(trace: Trace, edit: Callable[[Node], Node | None]) -> Trace:
    """The trace with every node, loops included, passed through `edit`; None leaves a node out."""
    programs = tuple(replace(p, body=list(_edited(p.body, edit))) for p in trace.programs)
    return replace(trace, programs=programs)


def _edited(body: list[Node], edit: Callable[[Node], Node | None]) -> Iterator[Node]:
    for node in body:
        kept = edit(node)
        if kept is None:
            continue
        yield kept if isinstance(kept, Instr) else replace(kept, body=list(_edited(kept.body, edit)))


def bodies(program: Program) -> Iterator[Node]:
    """Every node of a program, loops before what they hold."""
    stack = list(program.body)
    while stack:
        node = stack.pop()
        yield node
        if not isinstance(node, Instr):
            stack.extend(node.body)
