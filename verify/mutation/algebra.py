"""What a trace computes, in exact arithmetic: a proof that two traces mean the same however they are tiled.

A trace is executed on elements of the prime field of 2^31 - 1 instead of on numbers: sums, differences, products and
reciprocals are the field's own; every other function, and every rounding to a narrower dtype, is a random function
of its arguments. Float inputs are random elements. If all results of two traces agree, both compute the same
expression of the inputs, up to the order of float32 sums: were two expressions different, all elements of the results
would have to agree by chance, one in 2^31 each (Schwartz and Zippel's lemma).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nkismith.verify.mutation.field import (
    PRIME,
    Array,
    constant,
    hashed,
    inverse,
    matrix_product,
    mixed,
    numbers,
    operated,
    product,
    rounded,
)
from nkismith.verify.simulator.dtypes import FLOATS, INTEGERS, STORAGE, cast
from nkismith.verify.simulator.hardware import PARTITIONS, target
from nkismith.verify.simulator.instruction import define
from nkismith.verify.simulator.machine import Machine
from nkismith.verify.simulator.memory import Memory
from nkismith.verify.simulator.site import Site
from nkismith.verify.simulator.trace import Instr, ScalarRef, Trace

UNWRITTEN = np.uint64(2**63)  # no element of the field


class Unprovable(Exception):
    """The trace does something that has no meaning here."""


def results(trace: Trace, arrays: Sequence[Array], *, steps: int) -> list[Array]:
    """Field elements of every output and of every input after the run.

    arrays: inputs of the trace in order; of integer ones the values count, of float ones the shapes.
    Raises Unprovable, or LegalityError as an execution on numbers would.
    """
    memory, fields = Memory(), _fields(trace, arrays)
    for id_, array in zip(trace.inputs, arrays, strict=True):
        if trace.buffers[id_].dtype in INTEGERS:
            memory.load(trace.buffers[id_], array)
    cores = [_Algebra(trace, core, memory, fields, steps) for core in range(len(trace.programs))]
    for core, program in zip(cores, trace.programs, strict=True):
        core.run(program.body)  # one after the other: nothing here makes them wait
    if len(cores) > 1 and (cores[0].written & cores[1].read_from or cores[1].written & cores[0].read_from):
        raise Unprovable("a core reads what the other one writes")
    core = cores[0]
    return [core.region(o).copy() for o in trace.outputs] + [core.whole(i).copy() for i in trace.inputs]


def _fields(trace: Trace, arrays: Sequence[Array]) -> dict[int, Array]:
    """The elements of inputs and constants, by buffer, a row a partition."""
    fields = {}
    for number, (id_, array) in enumerate(zip(trace.inputs, arrays, strict=True)):
        if trace.buffers[id_].dtype in INTEGERS:
            fields[id_] = (array.astype(np.int64) % int(PRIME)).astype(np.uint64).reshape(1, -1)
        else:
            fields[id_] = np.random.default_rng(number).integers(int(PRIME), size=(1, array.size), dtype=np.uint64)
    for buffer in trace.buffers:
        if buffer.kind == "constant":
            values = np.frombuffer(buffer.data, STORAGE[buffer.dtype]).astype(np.float32)
            fields[buffer.id] = numbers(values).reshape(buffer.shape[0] if buffer.space != "hbm" else 1, -1)
    return fields


class _Algebra(Machine):
    """One core on field elements. Control flow, scalars and addresses are the machine's own, on the real integers."""

    def __init__(self, trace: Trace, core: int, memory: Memory, fields: dict[int, Array], steps: int) -> None:
        super().__init__(
            trace.buffers, memory, target(trace.target), core=core, lnc=trace.lnc, files=trace.files, steps=steps
        )
        self.fields = fields
        self.lanes = np.zeros(PARTITIONS, np.uint64)
        self.written: set[int] = set()  # buffers
        self.read_from: set[int] = set()

    def begin(self, loop_id: int) -> None:
        for buffer in self.buffers:
            if buffer.scope == loop_id and buffer.core in (-1, self.core):
                self.fields.pop(buffer.id, None)

    def _perform(self, instr: Instr) -> None:
        self._tick(instr)
        site = self._site = Site(instr, define(instr.op), self.buffers, self.target, self.lnc, self.files)
        self._resolved.clear()
        self._taints = dict.fromkeys(instr.operands)
        on_integers = instr.op == "scalar_load" and self.memory.holds(site.operand("src").buffer)
        if on_integers or instr.op in _SCALARS:
            site.definition.run(self, site)
        elif instr.op in MEANINGS:
            MEANINGS[instr.op](self, site)
        else:
            raise Unprovable(instr.op)

    # -- elements -------------------------------------------------------------------------------------------------

    def whole(self, id_: int) -> Array:
        """All elements of a buffer, a row a partition."""
        if id_ not in self.fields:
            buffer = self.buffers[id_]
            rows = buffer.shape[0] if buffer.space != "hbm" else 1
            self.fields[id_] = np.full((rows, buffer.free), UNWRITTEN, np.uint64)
        return self.fields[id_]

    def region(self, operand: Any) -> Array:
        """The elements of an operand, writable, in its shape."""
        buffer = self.buffers[operand.buffer]
        if operand.dynamic is not None or operand.dtype != buffer.dtype:
            raise Unprovable("indirect or bit-cast operand")
        array = self.whole(buffer.id)
        strides = [stride * 8 for stride, _ in operand.pattern]
        if operand.partitions:
            strides.insert(0, array.strides[0])
        return np.ndarray(
            operand.shape, np.uint64, array, operand.start * array.strides[0] + operand.offset * 8, strides
        )

    def read(self, name: str) -> Array:
        """The elements of an operand, [P, N]."""
        operand = self.operand(name)
        self.read_from.add(operand.buffer)
        values = self.region(operand).reshape(operand.partitions or 1, -1)
        return np.where(values == UNWRITTEN, constant("unwritten"), values)

    def place(self, name: str) -> Array:
        """The elements of an operand that is about to be set."""
        operand = self.operand(name)
        if self.memory.holds(operand.buffer):
            raise Unprovable("integers are written")
        self.written.add(operand.buffer)
        return self.region(operand)

    def write(self, name: str, values: Array, moved_from: str = "") -> None:
        """Set an operand; a narrower dtype than float32 rounds what was not `moved_from` one of the same dtype."""
        operand = self.operand(name)
        if moved_from and self.site.dtype(moved_from) == operand.dtype:
            pass
        elif operand.dtype not in FLOATS or (moved_from and self.site.dtype(moved_from) not in FLOATS):
            raise Unprovable(f"a result in {operand.dtype}")
        elif operand.dtype != "float32":
            values = rounded(values, operand.dtype)
        region = self.place(name)
        region[...] = np.broadcast_to(values, (operand.partitions or 1, operand.free)).reshape(region.shape)

    def factor(self, name: str, default: float = 0.0) -> Array:
        """A number, or one a partition, [P or 1, 1]."""
        if self.site.has(name):
            return self.read(name).reshape(-1, 1)
        value = self.site.attr(name)
        value = self.value(value) if isinstance(value, ScalarRef) else value
        return numbers(np.full((1, 1), default if value is None else value, np.float32))

    def accumulate(self, values: Array, command: str) -> None:
        """ScalarE's accumulator under reduce_cmd, read into reduce_res."""
        operand = self.operand("data")
        address = self.buffers[operand.buffer].address
        start = operand.start + (address[0] if address else 0)
        lanes = self.lanes[start : start + operand.partitions]
        if command in ("reset", "reset_reduce"):
            lanes[...] = 0
        if command in ("reduce", "reset_reduce"):
            lanes[...] = (lanes + values.sum(axis=1) % PRIME) % PRIME
        if self.site.has("reduce_res"):
            self.write("reduce_res", lanes[:, None])


# -- instructions -------------------------------------------------------------------------------------------------


def _pair(a: Array, b: Array, reverse: object) -> tuple[Array, Array]:
    return (b, a) if reverse else (a, b)


def _copy(source: str) -> Callable[[_Algebra, Site], None]:
    return lambda m, site: m.write("dst", m.read(source).reshape(m.operand("dst").partitions or 1, -1), source)


def _memset(m: _Algebra, site: Site) -> None:
    value = cast(np.full(1, site.attr("value"), np.float32), site.dtype("dst")).astype(np.float32)
    m.place("dst")[...] = numbers(value)[0]


def _tensor_tensor(m: _Algebra, site: Site) -> None:
    m.write("dst", operated(site.attr("op"), m.read("data1"), m.read("data2")))


def _tensor_scalar(m: _Algebra, site: Site) -> None:
    value = m.read("data")
    for which in ("0", "1"):
        if op := site.attr(f"op{which}"):
            value = operated(op, *_pair(value, m.factor(f"operand{which}"), site.attr(f"reverse{which}")))
    m.write("dst", value)


def _scalar_tensor_tensor(m: _Algebra, site: Site) -> None:
    if site.attr("reduce_op"):
        raise Unprovable("VectorE's accumulator")
    first = operated(site.attr("op0"), *_pair(m.read("data"), m.factor("operand0"), site.attr("reverse0")))
    m.write("dst", operated(site.attr("op1"), *_pair(first, m.read("operand1"), site.attr("reverse1"))))


def _activation(m: _Algebra, site: Site) -> None:
    argument = operated("add", product(m.read("data"), m.factor("scale", 1.0)), m.factor("bias"))
    value = operated(site.attr("op"), argument, np.uint64(0))  # type: ignore[arg-type]
    m.write("dst", value)
    m.accumulate(value, site.attr("reduce_cmd", "reset_reduce"))


def _reciprocal(m: _Algebra, site: Site) -> None:
    m.write("dst", inverse(m.read("data")))


def _tensor_reduce(m: _Algebra, site: Site) -> None:
    values = m.read("data").reshape(m.operand("dst").size, -1)
    if site.attr("op") == "add":
        value = values.sum(axis=1) % PRIME
    else:  # whatever the order
        value = hashed(site.attr("op"), mixed(values).sum(axis=1))
    value = (PRIME - value) % PRIME if site.attr("negate") else value
    m.write("dst", value.reshape(m.operand("dst").partitions, -1))


def _nc_transpose(m: _Algebra, site: Site) -> None:
    m.write("dst", m.read("data").T, "data")


def _nc_matmul(m: _Algebra, site: Site) -> None:
    if site.attr("is_transpose") or site.attr("perf_mode") != "none":
        raise Unprovable("a matmul in another mode")
    value = matrix_product(m.read("stationary"), m.read("moving"))
    old, accumulate = m.region(m.operand("dst")).reshape(value.shape), site.attr("accumulate")
    if accumulate is not False:
        added = operated("add", m.read("dst"), value)
        value = added if accumulate else np.where(old == UNWRITTEN, value, added)
    m.write("dst", value)


_SCALARS = frozenset({"scalar_add", "scalar_subtract", "scalar_multiply"})
MEANINGS: dict[str, Callable[[_Algebra, Site], None]] = {
    "activation": _activation,
    "activation_reduce": _activation,
    "dma_copy": _copy("src"),
    "memset": _memset,
    "nc_matmul": _nc_matmul,
    "nc_transpose": _nc_transpose,
    "reciprocal": _reciprocal,
    "scalar_tensor_tensor": _scalar_tensor_tensor,
    "tensor_copy": _copy("src"),
    "tensor_reduce": _tensor_reduce,
    "tensor_scalar": _tensor_scalar,
    "tensor_tensor": _tensor_tensor,
}
