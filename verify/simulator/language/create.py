"""Creation of tensors and constants of nki.language. Source: nki.language (NKI 0.7)."""

from __future__ import annotations

from typing import Any

import numpy as np

from nkismith.verify.simulator.dtypes import STORAGE, cast, named
from nkismith.verify.simulator.enums import MemoryRegion
from nkismith.verify.simulator.instruction import TABLE
from nkismith.verify.simulator.recorder import current
from nkismith.verify.simulator.tensor import NkiTensor, refuse

SBUF = MemoryRegion.sbuf


def ndarray(shape: Any, dtype: Any, buffer: MemoryRegion = SBUF, name: str = "", address: Any = None) -> NkiTensor:
    """An uninitialised tensor; on chip, dimension 0 is the partition dimension."""
    return current().allocate(shape, dtype, buffer, name, address)


def full(shape: Any, fill_value: Any, dtype: Any, buffer: MemoryRegion = SBUF, name: str = "") -> NkiTensor:
    """An on-chip tensor filled with a number."""
    tensor = ndarray(shape, dtype, buffer, name)
    if tensor._storage.space == "hbm":
        raise refuse("buffer", "a fill of an HBM tensor", "fill an SBUF tile and copy it with nisa.dma_copy")
    value = fill_value
    if named(dtype) not in (None, "float32") and isinstance(value, float) and STORAGE[tensor.dtype].kind in "iu":
        value = int(value)
    TABLE["memset"].call(tensor, value)
    return tensor


def zeros(shape: Any, dtype: Any, buffer: MemoryRegion = SBUF, name: str = "") -> NkiTensor:
    """An on-chip tensor of zeros."""
    return full(shape, 0, dtype, buffer, name)


def ones(shape: Any, dtype: Any, buffer: MemoryRegion = SBUF, name: str = "") -> NkiTensor:
    """An on-chip tensor of ones."""
    return full(shape, 1, dtype, buffer, name)


def zeros_like(x: NkiTensor, dtype: Any = None, buffer: Any = None, name: str = "") -> NkiTensor:
    """Zeros with the shape, and unless given the dtype and memory, of x."""
    return zeros(x.shape, dtype or x.dtype, buffer or x.buffer, name)


def empty_like(x: NkiTensor, dtype: Any = None, buffer: Any = None, name: str = "") -> NkiTensor:
    """Uninitialised storage with the geometry of x."""
    return ndarray(x.shape, dtype or x.dtype, buffer or x.buffer, name)


def shared_constant(constant: Any) -> NkiTensor:
    """A constant in HBM, the same for every core, from an array or the path of a .npy file."""
    values = np.load(constant, allow_pickle=False) if isinstance(constant, str) else np.asarray(constant)
    dtype = named(values.dtype)
    if dtype is None:
        raise refuse("dtype", f"a constant of NumPy dtype {values.dtype}", "convert it to an NKI dtype")
    shape = values.shape or (1,)
    data = np.ascontiguousarray(cast(values, dtype)).tobytes()
    return current().allocate(shape, dtype, MemoryRegion.shared_hbm, kind="constant", data=data)
