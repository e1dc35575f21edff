"""Simulated memories: bytes of every buffer, and which elements nothing has written yet.

A buffer is an array of bytes, one row a partition (HBM: one row in all). The written-mask has one entry an element
of the buffer's own dtype, True where nothing was written or where unwritten data flowed in; a buffer that is
written throughout drops its mask. Fresh float memory holds NaN, for display only: the mask decides.
"""

from __future__ import annotations

import numpy as np

from nkismith.verify.simulator.dtypes import FLOATS, ITEMSIZE, STORAGE
from nkismith.verify.simulator.trace import Buffer, Operand


class Memory:
    """Storage of the buffers of one trace; cores share it, as they share HBM."""

    def __init__(self) -> None:
        self._bytes: dict[int, np.ndarray] = {}
        self._masks: dict[int, np.ndarray | None] = {}
        self._buffers: dict[int, Buffer] = {}

    def allocate(self, buffer: Buffer) -> None:
        """Make (or remake) a buffer: unwritten, NaN in floats."""
        rows = buffer.shape[0] if buffer.space != "hbm" else 1
        store = STORAGE[buffer.dtype]
        values = np.zeros((rows, buffer.free), store)
        if buffer.dtype in FLOATS:
            values.fill(np.nan)
        self._buffers[buffer.id] = buffer
        self._bytes[buffer.id] = values.view(np.uint8).reshape(rows, -1)
        self._masks[buffer.id] = np.ones((rows, buffer.free), bool)

    def forget(self, buffer: Buffer) -> None:
        """The contents are stale again: a loop body begins anew."""
        self._masks[buffer.id] = np.ones((self._bytes[buffer.id].shape[0], buffer.free), bool)

    def free(self, id: int) -> None:
        """Drop a buffer that nothing reads any more."""
        self._bytes.pop(id, None)
        self._masks.pop(id, None)

    def load(self, buffer: Buffer, values: np.ndarray) -> None:
        """Set a whole buffer, for kernel inputs and constants. `values` has its shape and storage dtype."""
        rows = buffer.shape[0] if buffer.space != "hbm" else 1
        data = np.ascontiguousarray(values, STORAGE[buffer.dtype]).reshape(rows, -1)
        self._buffers[buffer.id] = buffer
        self._bytes[buffer.id] = data.view(np.uint8).reshape(rows, -1).copy()
        self._masks[buffer.id] = None

    def holds(self, id: int) -> bool:
        """Is the buffer allocated?"""
        return id in self._bytes

    def whole(self, buffer: Buffer) -> np.ndarray:
        """The buffer's values in its own shape and dtype (a view)."""
        return self._bytes[buffer.id].view(STORAGE[buffer.dtype]).reshape(buffer.shape)

    def unwritten(self, buffer: Buffer) -> np.ndarray | None:
        """Mask of the whole buffer, True where unwritten; None if all is written."""
        mask = self._masks[buffer.id]
        return mask.reshape(buffer.shape) if mask is not None and mask.any() else None

    def view(self, operand: Operand) -> np.ndarray:
        """A writable array over a static operand. Raises ValueError if it leaves the buffer."""
        data = self._bytes[operand.buffer]
        size = ITEMSIZE[operand.dtype]
        row = data.shape[1]
        shape: tuple[int, ...]
        strides: tuple[int, ...]
        if operand.partitions:
            shape = (operand.partitions, *[n for _, n in operand.pattern])
            strides = (row, *[s * size for s, _ in operand.pattern])
        else:
            shape = tuple([n for _, n in operand.pattern])
            strides = tuple([s * size for s, _ in operand.pattern])
        return np.ndarray(shape, STORAGE[operand.dtype], data, operand.start * row + operand.offset * size, strides)

    def taint(self, operand: Operand) -> np.ndarray | None:
        """True where a static operand reads unwritten data; None if it reads none."""
        mask = self._masks[operand.buffer]
        if mask is None:
            return None
        seen = self._mask_view(mask, operand)
        return seen.copy() if seen.any() else None

    def mark(self, operand: Operand, tainted: np.ndarray | bool) -> None:
        """Record what a write of a static operand left: False written, True unwritten data went in."""
        mask = self._masks[operand.buffer]
        if mask is None:
            if tainted is False or not np.any(tainted):
                return
            mask = self._masks[operand.buffer] = np.zeros(
                (self._bytes[operand.buffer].shape[0], self._row(operand)), bool
            )
        if tainted is False and operand.size * ITEMSIZE[operand.dtype] == self._bytes[operand.buffer].size:
            if all(s for s, _ in operand.pattern):
                self._masks[operand.buffer] = None
                return
        self._mask_view(mask, operand, write=True)[...] = self._spread(operand, tainted)

    def _row(self, operand: Operand) -> int:
        return self._buffers[operand.buffer].free

    def _spread(self, operand: Operand, tainted: np.ndarray | bool) -> np.ndarray | bool:
        granules = ITEMSIZE[operand.dtype] // ITEMSIZE[self._buffers[operand.buffer].dtype]
        return tainted[..., None] if granules > 1 and isinstance(tainted, np.ndarray) else tainted

    def _mask_view(self, mask: np.ndarray, operand: Operand, write: bool = False) -> np.ndarray:
        """The mask entries of an operand, shaped like it (reads) or with granules as a last dimension (writes)."""
        own, size = ITEMSIZE[self._buffers[operand.buffer].dtype], ITEMSIZE[operand.dtype]
        row = mask.shape[1]
        if size == own:
            offset, steps, extra = operand.offset, operand.pattern, ()
        elif size > own:  # one element of the operand covers several of the buffer
            wide = size // own
            offset, steps = operand.offset * wide, tuple((s * wide, n) for s, n in operand.pattern)
            extra = ((1, wide),) if write else ()
        else:  # several elements of the operand share one of the buffer
            return self._narrow_mask(mask, operand, own // size)
        pattern = (*steps, *extra)
        shape = [n for _, n in pattern]
        strides = [s for s, _ in pattern]
        if operand.partitions:
            shape, strides = [operand.partitions, *shape], [row, *strides]
        return np.ndarray(tuple(shape), bool, mask, operand.start * row + offset, tuple(strides))

    def _narrow_mask(self, mask: np.ndarray, operand: Operand, share: int) -> np.ndarray:
        # Marking a part of an element marks all of it: a byte view of a wider tile is written piece by piece.
        steps = np.array([operand.offset])
        for stride, extent in operand.pattern:
            steps = steps[..., None] + np.arange(extent) * stride
        index = (steps // share).reshape([n for _, n in operand.pattern])
        rows = np.arange(operand.start, operand.start + (operand.partitions or 1))
        return _Scatter(mask, rows, index, bool(operand.partitions))  # type: ignore[return-value]


class _Scatter:
    """Mask entries reached through an index: reads and writes like an array view."""

    def __init__(self, mask: np.ndarray, rows: np.ndarray, index: np.ndarray, on_chip: bool) -> None:
        self.mask, self.rows, self.index, self.on_chip = mask, rows, index, on_chip

    def _key(self) -> tuple[np.ndarray, np.ndarray]:
        rows = self.rows.reshape(-1, *[1] * self.index.ndim)
        return rows, self.index[None]

    def _values(self) -> np.ndarray:
        values = self.mask[self._key()]
        return values if self.on_chip else values[0]

    def any(self) -> bool:
        return bool(self._values().any())

    def copy(self) -> np.ndarray:
        return self._values()

    def __setitem__(self, _: object, tainted: np.ndarray | bool) -> None:
        self.mask[self._key()] = tainted
