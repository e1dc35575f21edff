"""Dead writes: regions that are written and never read before they are overwritten or the program ends."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from nkismith.verify.mutation.mutant import is_read
from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.instruction import define
from nkismith.verify.simulator.trace import Buffer, Instr, Loop, Node, Operand, Program, ScalarRef, Trace, While, walk

# Instructions that do nothing but set every element of their destination; the others may touch accumulators, scalars,
# random numbers or the other core, or write a part only.
PURE = frozenset(
    {
        "activation", "dma_copy", "dma_transpose", "iota", "memset", "nc_matmul", "nc_transpose", "reciprocal",
        "tensor_copy", "tensor_reduce", "tensor_scalar", "tensor_tensor",
    }
)  # fmt: skip


def without_dead_writes(trace: Trace) -> Trace:
    """The trace without instructions that only write what nothing reads, and without scalars that nothing uses."""
    programs = tuple(replace(p, body=_Backwards(trace, p).kept(p.body)) for p in trace.programs)
    return replace(trace, programs=programs)


def is_pure(instr: Instr) -> bool:
    """Does it set every element of its destination, always, and nothing else?"""
    static = all(operand.dynamic is None for operand in instr.operands.values())
    return static and instr.op in PURE and instr.attrs.get("reduce_cmd") in (None, "idle")


class _Live:
    """Which bytes of which buffers somebody still reads: one mask a buffer, a row for each partition."""

    def __init__(self, buffers: tuple[Buffer, ...], masks: dict[int, np.ndarray] | None = None) -> None:
        self.buffers, self.masks = buffers, masks or {}

    def copy(self) -> _Live:
        return _Live(self.buffers, {id_: mask.copy() for id_, mask in self.masks.items()})

    def add(self, other: _Live) -> bool:
        """Add another set; did that change anything?"""
        changed = False
        for id_, mask in other.masks.items():
            own = self.mask(id_)
            changed = changed or bool((mask & ~own).any())
            own |= mask
        return changed

    def mask(self, id_: int) -> np.ndarray:
        if id_ not in self.masks:
            buffer = self.buffers[id_]
            rows = buffer.shape[0] if buffer.space != "hbm" else 1
            self.masks[id_] = np.zeros((rows, buffer.free * ITEMSIZE[buffer.dtype]), bool)
        return self.masks[id_]

    def region(self, operand: Operand) -> np.ndarray:
        """The bytes of a static operand, writable."""
        mask, size = self.mask(operand.buffer), ITEMSIZE[operand.dtype]
        row = mask.shape[1]
        shape = [count for _, count in operand.pattern]
        strides = [stride * size for stride, _ in operand.pattern]
        if operand.partitions:
            shape, strides = [operand.partitions, *shape], [row, *strides]
        first = operand.start * row + operand.offset * size
        return np.ndarray((*shape, size), bool, mask, first, (*strides, 1))

    def read(self, operand: Operand) -> None:
        """Somebody reads an operand; at an address of the run time, any of its buffer."""
        if operand.dynamic is None:
            self.region(operand)[...] = True
            return
        self.mask(operand.buffer)[...] = True
        if operand.dynamic.index is not None:
            self.read(operand.dynamic.index)


class _Backwards:
    """One walk from the end of a core's program to its beginning."""

    def __init__(self, trace: Trace, program: Program) -> None:
        self.trace = trace
        self.live = _Live(trace.buffers)
        for operand in trace.outputs:
            self.live.read(operand)
        written = {o.buffer for instr in walk(program.body) for o in _written(instr)}
        both = len(trace.programs) > 1
        for id_ in sorted(written):  # results, and what the other core may read
            if id_ in trace.inputs or (both and trace.buffers[id_].space == "hbm"):
                self.live.mask(id_)[...] = True
        self.scalars = set(_scalars_of_loops(program.body))

    def kept(self, body: list[Node]) -> list[Node]:
        """The nodes that matter; `live` becomes what is read from the beginning of the body on."""
        nodes: list[Node] = []
        for node in reversed(body):
            if isinstance(node, Instr):
                if self._matters(node):
                    nodes.append(node)
                    self._step(node)
            elif isinstance(node, Loop | While):
                nodes.append(replace(node, body=self._loop(node)))
            else:
                nodes.append(replace(node, body=self.kept(node.body)))
        return nodes[::-1]

    def _loop(self, node: Loop | While) -> list[Node]:
        """A body may run any number of times: what it reads at its beginning is read at its end, too."""
        while True:
            after, scalars = self.live.copy(), set(self.scalars)
            body = self.kept(node.body)
            before, self.live = self.live, after
            if not self.live.add(before) and self.scalars == scalars:
                return body

    def _matters(self, instr: Instr) -> bool:
        result = instr.attrs.get("result")
        if result is not None:
            return not instr.op.startswith("scalar_") or result in self.scalars
        return not is_pure(instr) or any(self.live.region(operand).any() for operand in _written(instr))

    def _step(self, instr: Instr) -> None:
        definition = define(instr.op)
        if is_pure(instr) and not (instr.op == "nc_matmul" and instr.attrs.get("accumulate") is not False):
            for operand in _written(instr):
                self.live.region(operand)[...] = False
        for name, operand in instr.operands.items():
            adds = name in definition.writes and not is_pure(instr)
            adds = adds or (instr.op == "nc_matmul" and instr.attrs.get("accumulate") is not False)
            if adds or is_read(definition, name):
                self.live.read(operand)
            elif operand.dynamic is not None and operand.dynamic.index is not None:
                self.live.read(operand.dynamic.index)
        self.scalars.update(_scalars(instr))


def _written(instr: Instr) -> Iterator[Operand]:
    for name in define(instr.op).writes:
        if name in instr.operands:
            yield instr.operands[name]


def _scalars(instr: Instr) -> Iterator[object]:
    """The run-time scalars an instruction uses."""
    for name, value in instr.attrs.items():
        if name != "result":
            yield from value if isinstance(value, tuple) and not isinstance(value, ScalarRef) else (value,)
    for operand in instr.operands.values():
        if operand.dynamic is not None:
            yield operand.dynamic.scalar


def _scalars_of_loops(body: list[Node]) -> Iterator[object]:
    for node in body:
        if isinstance(node, Instr):
            continue
        if isinstance(node, Loop):
            yield from (node.lower, node.upper)
        elif isinstance(node, While):
            yield from (node.init, node.next)
        yield from _scalars_of_loops(node.body)
