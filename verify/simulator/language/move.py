"""Loads and stores of nki.language. Source: nki.language (NKI 0.7)."""

from __future__ import annotations

from typing import Any

from nkismith.verify.simulator.dtypes import DTYPES, FLOATS, named
from nkismith.verify.simulator.instruction import TABLE
from nkismith.verify.simulator.language.create import sbuf_tile
from nkismith.verify.simulator.tensor import NkiTensor, refuse

__all__ = ["load", "load_transpose2d", "store"]


def load(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Copy an HBM view into a new SBUF tile."""
    _check_hbm("load", "src", src)
    shape = src.shape if len(src.shape) > 1 else (src.shape[0], 1)
    tile = sbuf_tile(shape, dtype or src.dtype)
    TABLE["dma_copy"].call(tile, src)
    return tile


def store(dst: NkiTensor, value: NkiTensor) -> None:
    """Copy an SBUF tile into an HBM view."""
    _check_hbm("store", "dst", dst)
    if isinstance(value, NkiTensor) and value._storage.space == "psum":
        raise refuse("buffer", "nl.store of a PSUM tile", "copy it to SBUF first: nl.store(dst, nl.copy(tile))")
    TABLE["dma_copy"].call(dst, value)


def load_transpose2d(src: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Load a 2-D HBM view [a, b] into a new SBUF tile [b, a], b <= 128."""
    _check_hbm("load_transpose2d", "src", src)
    if src.ndim != 2:
        raise refuse("operand_shapes", f"load_transpose2d of shape {src.shape}", "a 2-D view")
    tile = sbuf_tile(src.shape[::-1], src.dtype)
    TABLE["dma_transpose"].call(tile, src)
    if named(dtype) in (None, src.dtype):
        return tile
    result = sbuf_tile(tile.shape, dtype)
    TABLE["tensor_copy"].call(result, tile)
    return result


def assign(dst: NkiTensor, value: Any) -> None:
    """`tile[...] = value`: a copy on chip, a DMA where HBM takes part, a fill for a number."""
    if not isinstance(value, NkiTensor):
        if dst.dtype in FLOATS or dst.dtype == DTYPES["bool_"]:
            value = float(value)
        TABLE["memset"].call(dst, value)
    elif "hbm" in (dst._storage.space, value._storage.space):
        TABLE["dma_copy"].call(dst, value)
    else:
        TABLE["tensor_copy"].call(dst, value)


def _check_hbm(call: str, parameter: str, tensor: Any) -> None:
    if not isinstance(tensor, NkiTensor):
        raise refuse("operand_type", f"nl.{call}: {parameter} is {type(tensor).__name__}", "an HBM tensor")
    if tensor._storage.space != "hbm":
        raise refuse("buffer", f"nl.{call}: {parameter} is in {tensor._storage.space}", "an HBM tensor or view")
