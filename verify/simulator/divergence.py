"""Where does a kernel leave its reference? Named tiles against arrays: the first tile that differs, and the line.

A tile's last contents count. Several tiles of one name (a tile made in a Python loop) are compared with the parts of
one array that has a leading dimension more, in the order they were made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nkismith.verify.simulator.arrays import to_numpy
from nkismith.verify.simulator.dtypes import STORAGE
from nkismith.verify.simulator.errors import SimulatorError
from nkismith.verify.simulator.instruction import define
from nkismith.verify.simulator.machine import Machine
from nkismith.verify.simulator.trace import Buffer, Instr, Operand

_STEPS = 16  # default tolerance, in rounding steps of the tile's dtype at the largest reference value


class Divergence(AssertionError):
    """A named tile differs from its reference. Attributes: tile (name), line (of the last write to the worst
    element), at (its index), got, want."""

    def __init__(self, tile: str, line: int, at: tuple[int, ...], got: float, want: float, message: str) -> None:
        super().__init__(message)
        self.tile, self.line, self.at, self.got, self.want = tile, line, at, got, want


@dataclass(frozen=True, slots=True)
class _Write:
    """A write to a watched tile: how many instructions its machine had executed, where, and by which."""

    order: int
    operand: Operand
    instr: Instr


class Watch:
    """What to compare, and who wrote the named tiles of each machine."""

    def __init__(self, references: Mapping[str, Any], tolerance: float | None = None) -> None:
        self.references = {name: to_numpy(value) for name, value in references.items()}
        self.tolerance = tolerance
        self._writes: dict[Machine, dict[int, list[_Write]]] = {}
        self._count = 0

    def attach(self, machine: Machine) -> None:
        """Follow a machine, if there is something to compare."""
        if self.references:
            self._writes[machine] = {}
            machine.after.append(self._note)

    def _note(self, machine: Machine, instr: Instr) -> None:
        self._count += 1
        for name in define(instr.op).writes:
            operand = instr.operands.get(name)
            if operand is not None and machine.buffers[operand.buffer].name in self.references:
                write = _Write(self._count, machine.operand(name), instr)
                self._writes[machine].setdefault(operand.buffer, []).append(write)

    def report(self) -> None:
        """Raise Divergence for the tile that was finished first among those that differ."""
        found = [f for name, want in self.references.items() for f in self._compared(name, want)]
        if found:
            raise min(found, key=lambda pair: pair[0])[1]

    def _compared(self, name: str, want: np.ndarray) -> list[tuple[int, Divergence]]:
        tiles = [(m, m.buffers[i]) for m, written in self._writes.items() for i in sorted(written)]
        tiles = [(m, b) for m, b in tiles if b.name == name]
        if not tiles:
            raise SimulatorError(f'compare: the kernel wrote no tensor with name="{name}"')
        shape = tiles[0][1].shape
        parts = [want] if len(tiles) == 1 and want.shape == shape else list(want)
        if len(parts) != len(tiles) or any(p.shape != b.shape for p, (_, b) in zip(parts, tiles, strict=True)):
            many = f"{len(tiles)} tensors" if len(tiles) > 1 else "one tensor"
            raise SimulatorError(f'compare: "{name}" names {many} of shape {shape}, the reference is {want.shape}')
        differing = (self._difference(m, b, p) for (m, b), p in zip(tiles, parts, strict=True))
        return [d for d in differing if d is not None]

    def _difference(self, machine: Machine, buffer: Buffer, part: np.ndarray) -> tuple[int, Divergence] | None:
        got = machine.memory.whole(buffer).astype(np.float64)
        want = part.astype(np.float64)
        scale = np.abs(want[np.isfinite(want)]).max(initial=0.0)
        allowed = scale * (self.tolerance if self.tolerance is not None else _STEPS * _step(buffer.dtype))
        with np.errstate(invalid="ignore"):
            error = np.where((got == want) | (np.isnan(got) & np.isnan(want)), 0.0, np.abs(got - want))
        error = np.where(np.isnan(error), np.inf, error)
        if not (error > allowed).any():
            return None
        at = tuple(int(i) for i in np.unravel_index(int(error.argmax()), error.shape))
        order, instr = self._last_write(machine, buffer, at)
        line = instr.line if instr else buffer.line
        message = (
            f'tile "{buffer.name}" (line {buffer.line}, {buffer.shape} {buffer.dtype}) differs from its reference at '
            f"{list(at)}: got {got[at]:.6g}, want {want[at]:.6g}, allowed {allowed:.3g} "
            f"({int((error > allowed).sum())} of {error.size} elements out); "
            + (f"written last by {instr.op} at line {line}" if instr else "nothing wrote it")
        )
        return order, Divergence(buffer.name, line, at, float(got[at]), float(want[at]), message)

    def _last_write(self, machine: Machine, buffer: Buffer, at: tuple[int, ...]) -> tuple[int, Instr | None]:
        """(order of the tile's last write, the last instruction that wrote element `at`)."""
        writes = self._writes[machine][buffer.id]
        row = buffer.free if buffer.space != "hbm" else 0
        flat = int(np.ravel_multi_index(at, buffer.shape))
        for write in reversed(writes):
            if write.operand.dynamic is not None or flat in _elements(write.operand, buffer, row):
                return writes[-1].order, write.instr
        return writes[-1].order, None


def _elements(operand: Operand, buffer: Buffer, row: int) -> np.ndarray:
    """Flat element numbers of the buffer that a static operand covers."""
    size, own = STORAGE[operand.dtype].itemsize, STORAGE[buffer.dtype].itemsize
    steps = np.array(operand.offset)
    for stride, extent in operand.pattern:
        steps = steps[..., None] + np.arange(extent) * stride
    inner = (steps.reshape(-1)[:, None] * size + np.arange(0, size, min(size, own))) // own
    starts = np.arange(operand.start, operand.start + (operand.partitions or 1)) * row
    return (starts[:, None] + inner.reshape(1, -1)).reshape(-1)


def _step(dtype: str) -> float:
    """Half the distance of 1 to the next value of a dtype; 0 for integers."""
    mantissa = {"bfloat16": 8, "float16": 11, "float8_e4m3": 4, "float8_e4m3fn": 4, "float8_e5m2": 3, "tfloat32": 11}
    if np.dtype(STORAGE[dtype]).kind in "iub":
        return 0.0
    return 2.0 ** -mantissa.get(dtype, 20)  # float32 tiles carry sums: their rounding is not that of one step
