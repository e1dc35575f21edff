"""Loads, stores and copies of nki.language. Source: nki.language (NKI 0.7)."""

from __future__ import annotations

from typing import Any

from nkismith.verify.simulator.enums import MemoryRegion
from nkismith.verify.simulator.instruction import TABLE
from nkismith.verify.simulator.language.create import ndarray
from nkismith.verify.simulator.tensor import NkiTensor


def load(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Copy an HBM view into a new SBUF tile."""
    shape = src.shape if len(src.shape) > 1 else (src.shape[0], 1)
    tile = ndarray(shape, dtype or src.dtype, MemoryRegion.sbuf)
    TABLE["dma_copy"].call(tile, src)
    return tile


def store(dst: NkiTensor, value: NkiTensor) -> None:
    """Copy an SBUF tile into an HBM view."""
    TABLE["dma_copy"].call(dst, value)


def copy(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Copy a tile into a new SBUF tile on VectorE."""
    tile = ndarray(x.shape, dtype or x.dtype, MemoryRegion.sbuf)
    TABLE["tensor_copy"].call(tile, x)
    return tile


def assign(dst: NkiTensor, value: Any) -> None:
    """`tile[...] = value`: a copy on chip, a DMA where HBM takes part, a fill for a number."""
    if not isinstance(value, NkiTensor):
        TABLE["memset"].call(dst, value)
    elif "hbm" in (dst._storage.space, value._storage.space):
        TABLE["dma_copy"].call(dst, value)
    else:
        TABLE["tensor_copy"].call(dst, value)
