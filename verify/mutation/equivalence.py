"""When a mutant is no mistake: rules that prove two traces to mean the same.

Each rule rewrites a trace into one that leaves the same numbers behind (the sign of a zero apart), and two traces are
equivalent if they are the same program after that, up to the names of buffers, scalars and lines. A mutant is
excluded only where these rules say so for every shape it is judged on, or where `algebra.py` proves it to compute the
same expressions (`same_values`); which rule it took is reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

import numpy as np

from nkismith.verify.mutation.edits import COMMUTATIVE
from nkismith.verify.mutation.liveness import is_pure, without_dead_writes
from nkismith.verify.mutation.mutant import with_programs
from nkismith.verify.simulator.instruction import define
from nkismith.verify.simulator.operators import ALU
from nkismith.verify.simulator.trace import Instr, Loop, Node, Operand, Ordered, ScalarRef, Trace, While

Rule = Callable[[Trace], Trace]


def excluded_by(pairs: Iterable[tuple[Trace, Trace]]) -> str:
    """The rules that prove every (original, mutant) pair to mean the same; "" if they do not."""
    pairs = list(pairs)
    for name, rule in RULES.items():
        if all(form(rule(original)) == form(rule(mutant)) for original, mutant in pairs):
            return name
    if all(form(_all_rules(original)) == form(_all_rules(mutant)) for original, mutant in pairs):
        return "several rules"
    return ""


def same_program(trace: Trace) -> Trace:
    """Nothing is rewritten: the mistake lies in code that no judged shape reaches, or in a name or a placement."""
    return trace


def commutative_swap(trace: Trace) -> Trace:
    """Inputs of a commutative operator in one order, and `reverse` off for it and for operators of one input."""
    return with_programs(trace, _ordered_inputs)


def no_op_copy(trace: Trace) -> Trace:
    """Without copies of a region onto itself."""
    return with_programs(trace, lambda node: None if _copies_onto_itself(node) else node)


def dead_write(trace: Trace) -> Trace:
    """Without instructions that only write what nothing reads before it is overwritten or the program ends."""
    return without_dead_writes(trace)


def first_write(trace: Trace) -> Trace:
    """accumulate=None of a matmul spelt out: True where everything it adds to was written before, False where nothing
    was."""
    programs = []
    for program in trace.programs:
        spelt = _FirstWrites(trace)
        programs.append(replace(program, body=spelt.body(program.body, 0)))
    return replace(trace, programs=tuple(programs))


RULES: dict[str, Rule] = {
    rule.__name__: rule for rule in (same_program, commutative_swap, no_op_copy, dead_write, first_write)
}


def _all_rules(trace: Trace) -> Trace:
    for rule in (first_write, no_op_copy, dead_write, commutative_swap):
        trace = rule(trace)
    return trace


# -- the same program ---------------------------------------------------------------------------------------------


def form(trace: Trace) -> object:
    """A trace as plain data that two equal programs share: no lines, names or instruction numbers, buffers and scalars
    numbered as they appear. Sizes and byte addresses of tiles are left out too: no value depends on them."""
    return _Form(trace).all()


class _Form:
    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.buffers: dict[int, int] = {}
        self.scalars: dict[tuple[int, int], int] = {}
        self.loops: dict[int, int] = {}
        self.core = 0

    def all(self) -> object:
        trace = self.trace
        inputs = [self.buffer(i) for i in trace.inputs]
        programs = []
        for program in trace.programs:
            self.core = program.core
            programs.append(self.body(program.body))
        outputs = [self.operand(o) for o in trace.outputs]
        kinds = [self._kind(id_) for id_ in self.buffers]
        return (trace.target, trace.lnc, inputs, programs, outputs, kinds)

    def _kind(self, id_: int) -> object:
        b = self.trace.buffers[id_]
        start = b.address[0] if b.address else 0  # which lanes of an accumulator its partitions meet
        return (b.space, b.kind, b.shared, b.dtype, b.core, self.loops.get(b.scope, 0), start, b.data)

    def buffer(self, id_: int) -> int:
        return self.buffers.setdefault(id_, len(self.buffers))

    def scalar(self, ref: ScalarRef) -> tuple[str, int]:
        return ("scalar", self.scalars.setdefault((self.core, ref.id), len(self.scalars)))

    def value(self, value: object) -> object:
        return self.scalar(value) if isinstance(value, ScalarRef) else (type(value).__name__, value)

    def operand(self, operand: Operand) -> object:
        term = operand.dynamic
        dynamic = term and (
            term.kind, term.scalar and self.scalar(term.scalar), term.index and self.operand(term.index), term.stride,
            term.limit, term.group,
        )  # fmt: skip
        return (self.buffer(operand.buffer), *operand[1:6], dynamic)

    def body(self, body: list[Node]) -> list[object]:
        nodes: list[object] = []
        for node in body:
            if isinstance(node, Instr):
                operands = [(name, self.operand(node.operands[name])) for name in sorted(node.operands)]
                attrs = [(name, self.value(node.attrs[name])) for name in sorted(node.attrs) if name not in PLACEMENT]
                nodes.append((node.op, operands, attrs))
            elif isinstance(node, Ordered):
                nodes.extend(self.body(node.body))
            else:
                self.loops[node.id] = len(self.loops) + 1
                nodes.append(self._loop(node))
        return nodes

    def _loop(self, node: Loop | While) -> object:
        if isinstance(node, Loop):
            bounds = (self.value(node.lower), self.value(node.upper), node.step)
            return ("loop", *bounds, self.scalar(ScalarRef(node.index)), self.body(node.body))
        head = ("while", self.scalar(node.init), self.scalar(ScalarRef(node.condition)))
        return (*head, self.body(node.body), node.next and self.scalar(node.next))


# Parameters that say where or how fast an instruction runs; none of them reaches a value.
PLACEMENT = frozenset({"priority", "dge_mode", "is_stationary_onezero", "is_moving_onezero"})


# -- rewriting ----------------------------------------------------------------------------------------------------


def _ordered_inputs(node: Node) -> Node:
    if not isinstance(node, Instr):
        return node
    attrs, operands = dict(node.attrs), dict(node.operands)
    for which in ("0", "1"):
        operator = attrs.get(f"op{which}")
        if operator in COMMUTATIVE or (operator in ALU and ALU[str(operator)].kind == "unary"):
            attrs[f"reverse{which}"] = False
    for first, second in _interchangeable(node):
        for holder in (attrs, operands):
            if first in holder and second in holder:
                holder[first], holder[second] = sorted((holder[first], holder[second]), key=repr)  # type: ignore[index,assignment]
    return replace(node, attrs=attrs, operands=operands)


def _interchangeable(instr: Instr) -> tuple[tuple[str, str], ...]:
    """Pairs of parameters that may change places."""
    if instr.op in ("scalar_add", "scalar_multiply"):
        return (("a", "b"),)
    if instr.op == "tensor_tensor":
        return (("data1", "data2"),) if instr.attrs["op"] in COMMUTATIVE else ()
    if instr.op.startswith("activation") and instr.attrs.get("scale") == 1.0:
        pair = ("data", "bias")  # data * 1 + bias
    elif instr.attrs.get("op0") in COMMUTATIVE:
        pair = ("data", "operand0")
    else:
        return ()
    given = [instr.operands[name].shape for name in pair if name in instr.operands]
    return (pair,) if len(given) == 2 and given[0] == given[1] else ()


def _copies_onto_itself(node: Node) -> bool:
    return (
        isinstance(node, Instr)
        and node.op in ("tensor_copy", "dma_copy")
        and node.operands["dst"] == node.operands["src"]
        and node.operands["dst"].dynamic is None
    )


class _FirstWrites:
    """Walks a program forwards and notes which elements of each PSUM buffer are written."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.written: dict[int, np.ndarray | None] = {}  # None: not known

    def body(self, body: list[Node], scope: int) -> list[Node]:
        nodes: list[Node] = []
        for node in body:
            if isinstance(node, Instr):
                nodes.append(self._spelt(node, scope))
            elif isinstance(node, Ordered):
                nodes.append(replace(node, body=self.body(node.body, scope)))
            else:
                nodes.append(replace(node, body=self.body(node.body, node.id)))
        return nodes

    def _spelt(self, instr: Instr, scope: int) -> Instr:
        for name in define(instr.op).writes:
            operand = instr.operands.get(name)
            if operand is None or self.trace.buffers[operand.buffer].space != "psum":
                continue
            entries = self._entries(operand, scope)
            if entries is None or not (is_pure(instr) or instr.op == "nc_matmul"):
                self.written[operand.buffer] = None
                continue
            if instr.op == "nc_matmul" and instr.attrs.get("accumulate") is None and entries.all() == entries.any():
                instr = replace(instr, attrs={**instr.attrs, "accumulate": bool(entries.all())})
            entries[...] = True
        return instr

    def _entries(self, operand: Operand, scope: int) -> np.ndarray | None:
        """The elements of an operand in the record of its buffer, or None where that is not certain."""
        buffer = self.trace.buffers[operand.buffer]
        mask = self.written.setdefault(buffer.id, np.zeros((buffer.shape[0], buffer.free), bool))
        if mask is None or operand.dynamic is not None or operand.dtype != buffer.dtype or buffer.scope != scope:
            return None
        strides = [stride for stride, _ in operand.pattern]
        first = operand.start * mask.shape[1] + operand.offset
        return np.ndarray(operand.shape, bool, mask, first, (mask.shape[1], *strides))
