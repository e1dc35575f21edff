"""Data that two cores share: between two meetings (barrier or exchange), what one writes the other leaves alone.

The device runs the cores at their own pace. The simulator runs them in turn, so a missing barrier would pass here by
luck; instead every shared byte remembers who read and who wrote it since the cores last met. Both cores may write the
same bytes: kernels that do not shard a step do it on both, with equal results, and then read their own.
"""

from __future__ import annotations

import numpy as np

from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.instruction import define
from nkismith.verify.simulator.machine import Machine
from nkismith.verify.simulator.trace import Instr, Operand, Trace, walk

MEETINGS = frozenset({"core_barrier", "sendrecv"})
_READ, _WRITTEN = 1, 2  # bits of core 0; those of core 1 are shifted by two


class _Shared:
    """Who touched the shared buffers since the cores last met."""

    def __init__(self, trace: Trace, written: frozenset[int]) -> None:
        self.buffers, self.written = trace.buffers, written
        self.touched: dict[int, np.ndarray] = {}
        self.meetings = [0, 0]

    def see(self, machine: Machine, instr: Instr) -> None:
        """Check and note the accesses of an instruction that a core has executed. Raises LegalityError."""
        if instr.op in MEETINGS:
            self._meet(machine.core)
            return
        definition = define(instr.op)
        for name, operand in instr.operands.items():
            if operand.buffer in self.written:
                writes = name in definition.writes
                self._access(machine, instr, name, writes)

    def _meet(self, core: int) -> None:
        self.meetings[core] += 1
        if self.meetings[core] > self.meetings[1 - core]:  # the other one has come too, and goes on after this one
            self.touched.clear()

    def _access(self, machine: Machine, instr: Instr, name: str, writes: bool) -> None:
        operand = machine.operand(name)
        id_ = operand.buffer
        if not operand.size:
            return
        marks = self.touched.get(id_)
        if marks is None:
            buffer = self.buffers[id_]
            marks = self.touched[id_] = np.zeros(buffer.free * ITEMSIZE[buffer.dtype], np.uint8)
        mine, other = 2 * machine.core, 2 * (1 - machine.core)
        # Core a depends on core b where a read and b wrote, unless a has written the byte itself.
        reader, writer = (other, mine) if writes else (mine, other)
        for view in _bytes(machine, operand, marks):
            view |= (_WRITTEN if writes else _READ) << mine
            dependent = (_READ << reader) | (_WRITTEN << writer)
            if ((view & (dependent | _WRITTEN << reader)) == dependent).any():
                raise LegalityError(
                    "core_race",
                    f"{instr.op}: core {machine.core} {'writes' if writes else 'reads'} elements of shared HBM tensor "
                    f"{self.buffers[id_].name!r} that core {1 - machine.core} has {'read' if writes else 'written'} "
                    "since the cores last met",
                    "put nisa.core_barrier(data, (0, 1)) between the write and the other core's read",
                    instr.line,
                )


def _bytes(machine: Machine, operand: Operand, marks: np.ndarray) -> list[np.ndarray]:
    """Views of the marks of the bytes that an HBM operand covers, one for each run-time row."""
    size = ITEMSIZE[operand.dtype]
    if operand.dynamic is None:
        return [_strided(marks, operand.offset, operand.pattern, size)]
    term = operand.dynamic
    assert term.index is not None
    rows = machine.memory.view(term.index).reshape(-1)[: operand.pattern[0][1]].astype(np.int64)
    inner = operand.pattern[1:] or ((1, 1),)
    inside = rows[(rows >= 0) & (rows < term.limit)]
    return [_strided(marks, operand.offset + int(row) * term.stride, inner, size) for row in inside]


def _strided(marks: np.ndarray, offset: int, pattern: tuple[tuple[int, int], ...], size: int) -> np.ndarray:
    shape = (*[n for _, n in pattern], size)
    return np.ndarray(shape, np.uint8, marks, offset * size, (*[s * size for s, _ in pattern], 1))


def watch_races(trace: Trace, machines: list[Machine]) -> None:
    """Follow the machines of a launch of two cores. Raises LegalityError (`core_race`) while they run."""
    written = frozenset(
        instr.operands[name].buffer
        for program in trace.programs
        for instr in walk(program.body)
        for name in define(instr.op).writes
        if name in instr.operands and trace.buffers[instr.operands[name].buffer].shared
    )
    shared = _Shared(trace, written)
    for machine in machines:
        machine.after.append(shared.see)
