"""Shapes, transposes, products and gathers of nki.language. Source: nki.language (NKI 0.7)."""

from __future__ import annotations

from typing import Any

from nkismith.verify.simulator.dtypes import INTEGERS, named
from nkismith.verify.simulator.enums import MemoryRegion, engine
from nkismith.verify.simulator.instruction import TABLE
from nkismith.verify.simulator.language.create import sbuf_tile
from nkismith.verify.simulator.language.maths import OPERATORS
from nkismith.verify.simulator.recorder import current
from nkismith.verify.simulator.tensor import NkiTensor, refuse

__all__ = ["broadcast_to", "expand_dims", "gather_flattened", "matmul", "transpose"]


def expand_dims(x: NkiTensor, axis: int) -> NkiTensor:
    """A view with a dimension of extent 1 at `axis` of the result."""
    return x.expand_dim(axis + x.ndim + 1 if axis < 0 else axis)


def broadcast_to(x: NkiTensor, shape: tuple[int, ...], dtype: Any = None) -> NkiTensor:
    """A tile of `shape` (same rank) with dimensions of extent 1 repeated, partitions included."""
    shape = tuple(shape)
    if not isinstance(x, NkiTensor):
        raise refuse("operand_type", f"nl.broadcast_to of {type(x).__name__}", "load it into a tile")
    if len(shape) != x.ndim or any(n not in (m, 1) and m != n for m, n in zip(shape, x.shape, strict=True)):
        raise refuse("operand_shapes", f"broadcast_to {shape} of shape {x.shape}", "same rank, extents equal or 1")
    kind = named(dtype) or x.dtype
    if shape == x.shape and kind == x.dtype:
        return x
    view = x
    for dim in range(1, x.ndim):
        if x.shape[dim] != shape[dim]:
            view = view.broadcast(dim, shape[dim])
    result = sbuf_tile((x.shape[0], *shape[1:]), kind)
    TABLE["tensor_copy"].call(result, view)
    return result if shape[0] == x.shape[0] else _on_partitions(result, shape)


def _on_partitions(row: NkiTensor, shape: tuple[int, ...]) -> NkiTensor:
    """One partition repeated on others: through HBM, whose addresses may repeat (bit exact for every dtype)."""
    through = current().allocate(row.shape, row.dtype, MemoryRegion.private_hbm)
    TABLE["dma_copy"].call(through, row)
    tile = sbuf_tile(shape, row.dtype)
    TABLE["dma_copy"].call(tile, through.broadcast(0, shape[0]))
    return tile


def transpose(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A 2-D tile with partitions and free dimension swapped: in PSUM from TensorE, in SBUF if it is cast."""
    if x.ndim != 2:
        raise refuse("operand_shapes", f"nl.transpose of shape {x.shape}", "a 2-D tile")
    psum = current().allocate(x.shape[::-1], x.dtype, MemoryRegion.psum)
    on = engine.tensor if x._storage.space == "sbuf" else engine.vector
    TABLE["nc_transpose"].call(psum, x, engine=on)
    if named(dtype) in (None, x.dtype):
        return psum
    result = sbuf_tile(psum.shape, dtype)
    TABLE["tensor_copy"].call(result, psum)
    return result


def matmul(x: NkiTensor, y: NkiTensor, transpose_x: bool = False) -> NkiTensor:
    """x @ y, or x.T @ y with transpose_x, in a float32 PSUM tile; without it x is transposed first."""
    if x.ndim != 2 or y.ndim != 2:
        raise refuse("operand_shapes", f"nl.matmul of shapes {x.shape} and {y.shape}", "2-D tiles")
    if not transpose_x:
        turned = transpose(x)
        x = sbuf_tile(turned.shape, turned.dtype)
        TABLE["tensor_copy"].call(x, turned)
    psum = current().allocate((x.shape[1], y.shape[1]), "float32", MemoryRegion.psum)
    TABLE["nc_matmul"].call(psum, x, y)
    return psum


def gather_flattened(data: NkiTensor, indices: NkiTensor, axis: int = 0, dtype: Any = None) -> NkiTensor:
    """Per partition, elements of the flattened free dimensions of `data` at `indices`; shaped like `indices`."""
    if axis != 0:
        raise refuse("operand_shapes", f"gather_flattened along axis {axis}", "axis 0: within each partition")
    if indices.dtype not in INTEGERS:
        raise refuse("dtype", f"gather_flattened with indices of {indices.dtype}", "integers")
    if indices.dtype != "uint32":
        positions = sbuf_tile(indices.shape, "uint32")
        TABLE["tensor_copy"].call(positions, indices)
        indices = positions
    result = sbuf_tile(indices.shape, data.dtype)
    TABLE["nc_n_gather"].call(result, data, indices)
    return result if named(dtype) in (None, data.dtype) else OPERATORS["copy"](result, dtype=dtype)
