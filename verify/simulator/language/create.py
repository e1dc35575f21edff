"""Creation of tensors and constants of nki.language. Source: nki.language (NKI 0.7)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from nkismith.verify.simulator.dtypes import INTEGERS, cast, named
from nkismith.verify.simulator.enums import MemoryRegion, engine
from nkismith.verify.simulator.hardware import PARTITIONS
from nkismith.verify.simulator.instruction import TABLE
from nkismith.verify.simulator.recorder import current
from nkismith.verify.simulator.tensor import NkiTensor, refuse
from nkismith.verify.simulator.views import dtype_of

__all__ = [
    "empty_like", "full", "ndarray", "ones", "rand", "random_seed", "shared_constant", "shared_identity_matrix",
    "zeros", "zeros_like",
]  # fmt: skip

SBUF = MemoryRegion.sbuf


def ndarray(shape: Any, dtype: Any, buffer: MemoryRegion = SBUF, name: str = "", address: Any = None) -> NkiTensor:
    """An uninitialised tensor; on chip, dimension 0 is the partition dimension."""
    return current().allocate(shape, dtype, buffer, name, address)


def sbuf_tile(shape: tuple[int, ...], dtype: Any) -> NkiTensor:
    """An uninitialised SBUF tile for a result."""
    return current().allocate(shape, dtype, SBUF)


def full(shape: Any, fill_value: Any, dtype: Any, buffer: MemoryRegion = SBUF, name: str = "") -> NkiTensor:
    """A tensor filled with a number; HBM is filled through a tile of SBUF."""
    tensor = ndarray(shape, dtype, buffer, name)
    if tensor._storage.space == "hbm":
        _fill_hbm(tensor, fill_value)
    else:
        _fill(tensor, fill_value)
    return tensor


def _fill(tile: NkiTensor, value: Any) -> None:
    if isinstance(value, float) and tile.dtype in INTEGERS and value.is_integer():
        value = int(value)
    TABLE["memset"].call(tile, value)


def _fill_hbm(tensor: NkiTensor, value: Any) -> None:
    tile = sbuf_tile((1, 1), tensor.dtype)
    _fill(tile, value)
    flat = tensor.reshape((tensor.size,))
    TABLE["dma_copy"].call(flat, tile.broadcast(1, tensor.size))


def zeros(shape: Any, dtype: Any, buffer: MemoryRegion = SBUF, name: str = "") -> NkiTensor:
    """A tensor of zeros."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape: Any, dtype: Any, buffer: MemoryRegion = SBUF, name: str = "") -> NkiTensor:
    """A tensor of ones."""
    return full(shape, 1, dtype, buffer, name)


def zeros_like(x: NkiTensor, dtype: Any = None, buffer: Any = None, name: str = "") -> NkiTensor:
    """Zeros with the shape, and unless given the dtype and memory, of x."""
    return zeros(x.shape, dtype or x.dtype, buffer or x.buffer, name)


def empty_like(
    x: Any,
    dtype: Any = None,
    buffer: Any = None,
    name: str = "",
    *,
    transpose_axes: tuple[int, ...] | None = None,
    address: Any = None,
) -> Any:
    """Uninitialised storage with the geometry of x, a tensor or a grid.

    `transpose_axes` gives an SBUF tensor the shape that nisa.dma_transpose(axes=transpose_axes) of x needs.
    """
    if not isinstance(x, NkiTensor):
        return x.empty_like(dtype, buffer, name, transpose_axes, address)
    shape = x.shape
    if transpose_axes is not None:
        if transpose_axes not in ((1, 0), (2, 1, 0), (3, 1, 2, 0)) or len(transpose_axes) != len(shape):
            raise refuse(
                "transpose_axes", f"transpose_axes={transpose_axes} of shape {shape}",
                "(1, 0), (2, 1, 0) or (3, 1, 2, 0)",
            )  # fmt: skip
        shape = tuple(shape[a] for a in transpose_axes)
    return ndarray(shape, dtype or x.dtype, buffer or x.buffer, name, address)


def shared_constant(constant: Any) -> NkiTensor:
    """A constant in HBM, the same for every core, from an array or the path of a .npy file."""
    path = isinstance(constant, str | Path)
    values = np.load(constant, allow_pickle=False) if path else np.asarray(constant)
    if not path and not isinstance(constant, np.ndarray | np.generic) and values.dtype.kind in "fi":
        values = values.astype(np.float32 if values.dtype.kind == "f" else np.int32)
    dtype = named(values.dtype)
    if dtype is None:
        raise refuse("dtype", f"a constant of NumPy dtype {values.dtype}", "convert it to an NKI dtype")
    data = np.ascontiguousarray(values).tobytes()
    return current().allocate(values.shape or (1,), dtype, MemoryRegion.shared_hbm, kind="constant", data=data)


def shared_identity_matrix(n: int, dtype: Any = "uint8", dst: NkiTensor | None = None) -> NkiTensor:
    """The identity of order n in an SBUF tile, or in `dst`."""
    kind = dtype_of(dtype) if dst is None else dst.dtype
    tile = sbuf_tile((n, n), kind) if dst is None else dst
    if n > PARTITIONS:
        raise refuse("partition_limit", f"an identity of order {n}", f"at most {PARTITIONS} partitions")
    recorder = current()
    source = recorder.identities.get((n, kind))
    if source is None:
        data = np.ascontiguousarray(cast(np.eye(n, dtype=np.float32), kind)).tobytes()
        source = recorder.allocate((n, n), kind, MemoryRegion.shared_hbm, kind="constant", data=data)
        recorder.identities[n, kind] = source
    TABLE["dma_copy"].call(tile, source)
    return tile


def random_seed(seed: NkiTensor) -> None:
    """Seed VectorE's generator from a [1, 1] tile of 32 bits in SBUF or PSUM."""
    TABLE["set_rng_seed"].call(seed)


def rand(shape: Any, dtype: Any, buffer: MemoryRegion = SBUF, name: str = "") -> NkiTensor:
    """Uniform random numbers in [0, 1): nisa.rand2 on trn3; on trn2 the upper 24 of nisa.rng's 32 bits, scaled."""
    tensor = ndarray(shape, dtype, buffer, name)
    if tensor._storage.space == "hbm":
        raise refuse("buffer", "nl.rand in HBM", "make it in SBUF and copy it with nisa.dma_copy")
    if current().target.generation >= 4:
        TABLE["rand2"].call(tensor, 0.0, 1.0)
        return tensor
    bits = sbuf_tile(tensor.shape, "uint32")
    TABLE["rng"].call(bits, engine=engine.vector)
    from nkismith.verify.simulator.language.maths import OPERATORS

    TABLE["tensor_scalar"].call(bits, bits, OPERATORS["right_shift"], 8)
    TABLE["tensor_scalar"].call(tensor, bits, OPERATORS["multiply"], 2.0**-24)
    return tensor
