"""Simulated memories: bytes of every buffer, and which elements nothing has written yet.

A buffer is an array of bytes, one row a partition (HBM: one row in all). The written-mask has one entry an element
of the buffer's own dtype, True where nothing was written or where unwritten data flowed in; a buffer that is
written throughout has none. Unwritten floats read as NaN, integers as 0, for display only: the mask decides.

In high-precision mode (`precise=False`) buffers of the dtypes in WIDENED hold float32, and a write keeps what the
engine computed instead of rounding it. The first access that reinterprets such a buffer as another dtype needs its
bits: the buffer is rounded to its own dtype then, and stays so.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nkismith.verify.simulator.dtypes import FLOATS, FP8, ITEMSIZE, SIXTEEN_BIT_FLOATS, STORAGE, cast
from nkismith.verify.simulator.trace import Buffer, Operand

WIDENED = SIXTEEN_BIT_FLOATS | FP8
_FLOAT32 = STORAGE["float32"]
_FRESH: Any = object()  # a mask: nothing of the buffer is written, and its bytes are not set


class _Cell:
    """One buffer: its bytes as rows, its mask, and the dtype its elements are stored in."""

    __slots__ = ("buffer", "bytes", "data", "mask", "poured", "store")

    def __init__(self, buffer: Buffer, data: np.ndarray, mask: Any, store: np.dtype) -> None:
        self.buffer, self.data, self.mask, self.store = buffer, data, mask, store
        self.poured = False  # has unwritten data been written into it?
        self.bytes = data.nbytes // store.itemsize * ITEMSIZE[buffer.dtype]  # in the buffer's own dtype

    @property
    def wide(self) -> bool:
        """Are the elements stored as float32 although the dtype is narrower?"""
        return self.store is not STORAGE[self.buffer.dtype]


class Memory:
    """Storage of the buffers of one trace; cores share it, as they share HBM."""

    def __init__(self, precise: bool = True, found: np.random.Generator | None = None) -> None:
        """`found`: makes what a kernel finds in memory that nothing wrote, instead of the display values."""
        self.precise, self.found = precise, found
        self.read_unwritten = False  # has anybody read a buffer of which parts were unwritten?
        self._cells: dict[int, _Cell] = {}

    # -- buffers --------------------------------------------------------------------------------------------------

    def allocate(self, buffer: Buffer) -> None:
        """Make (or remake) a buffer with nothing written."""
        store = self._store(buffer)
        rows = _rows(buffer)
        self._cells[buffer.id] = _Cell(buffer, np.empty((rows, buffer.free * store.itemsize), np.uint8), _FRESH, store)

    def load(self, buffer: Buffer, values: np.ndarray) -> None:
        """Set a whole buffer, for kernel inputs and constants. `values` has its shape and storage dtype."""
        store = self._store(buffer)
        rows = _rows(buffer)
        data = np.array(values, store, order="C").reshape(rows, -1).view(np.uint8)
        self._cells[buffer.id] = _Cell(buffer, data, None, store)

    def forget(self, buffer: Buffer) -> None:
        """The contents are stale again: a loop body begins anew."""
        self._cells[buffer.id].mask = _FRESH

    def free(self, id: int) -> None:
        """Drop a buffer that nothing reads any more."""
        self._cells.pop(id, None)

    def holds(self, id: int) -> bool:
        """Is the buffer allocated?"""
        return id in self._cells

    @property
    def bytes(self) -> int:
        """Bytes of all buffers that are held."""
        return sum(cell.data.nbytes for cell in self._cells.values())

    @property
    def poured(self) -> frozenset[int]:
        """Buffers into which unwritten data has been written."""
        return frozenset(id for id, cell in self._cells.items() if cell.poured)

    def whole(self, buffer: Buffer) -> np.ndarray:
        """The buffer's values in its own shape (a view); float32 where a low-precision buffer is kept wide."""
        cell = self._cells[buffer.id]
        if cell.mask is _FRESH:
            self._poison(cell)
        return cell.data.view(cell.store).reshape(buffer.shape)

    def _store(self, buffer: Buffer) -> np.dtype:
        return _FLOAT32 if not self.precise and buffer.dtype in WIDENED else STORAGE[buffer.dtype]

    def _narrow(self, cell: _Cell) -> None:
        """Round a wide buffer to its own dtype: somebody looks at its bits."""
        if cell.mask is _FRESH:
            self._poison(cell)
        values = cast(cell.data.view(_FLOAT32), cell.buffer.dtype)
        cell.data, cell.store = values.view(np.uint8), STORAGE[cell.buffer.dtype]

    # -- values ---------------------------------------------------------------------------------------------------

    def view(self, operand: Operand, overwrite: bool = False) -> np.ndarray:
        """A writable array over a static operand, of its storage dtype (float32 where the buffer is kept wide).

        `overwrite` promises that the caller sets every element before anything else looks at the buffer.
        Raises ValueError if the operand leaves the buffer.
        """
        id_, dtype, start, partitions, offset, pattern, _ = operand
        cell = self._cells[id_]
        if cell.mask is not None and not overwrite:
            self.read_unwritten = True
        if cell.mask is _FRESH and not (overwrite and _covers(operand, cell)):
            self._poison(cell)
        store = cell.store
        if dtype != cell.buffer.dtype:
            if cell.wide:
                self._narrow(cell)
            store = STORAGE[dtype]
        size = store.itemsize
        data = cell.data
        row = data.shape[1]
        shape: tuple[int, ...]
        strides: tuple[int, ...]
        if len(pattern) == 1:
            ((stride, count),) = pattern
            shape, strides = (count,), (stride * size,)
        else:
            shape = tuple([n for _, n in pattern])
            strides = tuple([s * size for s, _ in pattern])
        if partitions:
            shape, strides = (partitions, *shape), (row, *strides)
        return np.ndarray(shape, store, data, start * row + offset * size, strides)

    # -- what is written ------------------------------------------------------------------------------------------

    def fresh(self, id: int) -> bool:
        """Has nothing of the buffer been written?"""
        return self._cells[id].mask is _FRESH

    def taint(self, operand: Operand) -> np.ndarray | None:
        """True where a static operand reads unwritten data; None if it reads none."""
        cell = self._cells[operand.buffer]
        if cell.mask is None:
            return None
        if cell.mask is _FRESH:
            self._poison(cell)
        seen = _entries(cell, operand)
        if seen.any():
            return seen.any(axis=-1) if seen.ndim > len(operand.shape) else seen.copy()
        if _covers(operand, cell):
            cell.mask = None
        return None

    def covers(self, operand: Operand) -> bool:
        """Does a static operand touch every element of its buffer?"""
        return _covers(operand, self._cells[operand.buffer])

    def mark(self, operand: Operand, tainted: np.ndarray | bool) -> None:
        """Record what a write of a static operand left: False written, True unwritten data went in."""
        cell = self._cells[operand.buffer]
        if tainted is False or not np.any(tainted):
            if cell.mask is None:
                return
            if _covers(operand, cell):
                cell.mask = None
                return
            tainted = False
        else:
            cell.poured = True
        if cell.mask is None:
            cell.mask = np.zeros((cell.data.shape[0], cell.buffer.free), bool)
        elif cell.mask is _FRESH:  # all of it was just set
            cell.mask = np.ones((cell.data.shape[0], cell.buffer.free), bool)
        seen = _entries(cell, operand)
        spread = isinstance(tainted, np.ndarray) and seen.ndim > len(operand.shape)
        seen[...] = tainted[..., None] if spread else tainted  # type: ignore[index]

    def _poison(self, cell: _Cell) -> None:
        """Give a buffer that nothing wrote its mask and its display values."""
        cell.mask = np.ones((cell.data.shape[0], cell.buffer.free), bool)
        if self.found is not None:
            cell.data[...] = self.found.integers(0, 256, cell.data.shape, np.uint8)
        else:
            cell.data.view(cell.store)[...] = np.nan if cell.buffer.dtype in FLOATS else 0


def _entries(cell: _Cell, operand: Operand) -> Any:
    """The mask entries of an operand, shaped like it; a last dimension more where one element covers several."""
    mask = cell.mask
    own, size = ITEMSIZE[cell.buffer.dtype], ITEMSIZE[operand.dtype]
    if size < own:  # several elements of the operand share one of the buffer
        return _Shared(mask, operand, own // size)
    wide, row = size // own, mask.shape[1]
    shape = [n for _, n in operand.pattern]
    strides = [s * wide for s, _ in operand.pattern]
    if wide > 1:
        shape, strides = [*shape, wide], [*strides, 1]
    if operand.partitions:
        shape, strides = [operand.partitions, *shape], [row, *strides]
    return np.ndarray(tuple(shape), bool, mask, operand.start * row + operand.offset * wide, tuple(strides))


def _rows(buffer: Buffer) -> int:
    return buffer.shape[0] if buffer.space != "hbm" else 1


def _covers(operand: Operand, cell: _Cell) -> bool:
    elements = operand.partitions or 1
    for stride, count in operand.pattern:
        if count != 1:
            if not stride:
                return False
            elements *= count
    return elements * ITEMSIZE[operand.dtype] == cell.bytes


class _Shared:
    """Mask entries of an operand whose elements share those of a wider buffer: behaves like an array view.

    Marking a part of an element marks all of it: a byte view of a wider tile is written piece by piece.
    """

    def __init__(self, mask: np.ndarray, operand: Operand, share: int) -> None:
        steps = np.array(operand.offset)
        for stride, extent in operand.pattern:
            steps = steps[..., None] + np.arange(extent) * stride
        rows = np.arange(operand.start, operand.start + (operand.partitions or 1))
        self._mask, self._on_chip = mask, bool(operand.partitions)
        self._key = rows.reshape(-1, *[1] * steps.ndim), (steps // share)[None]
        self.ndim = steps.ndim + self._on_chip

    def copy(self) -> np.ndarray:
        values = self._mask[self._key]
        return values if self._on_chip else values[0]

    def any(self) -> bool:
        return bool(self._mask[self._key].any())

    def __setitem__(self, _: object, tainted: np.ndarray | bool) -> None:
        self._mask[self._key] = tainted
