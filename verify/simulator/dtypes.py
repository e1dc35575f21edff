"""NKI dtypes: names, sizes, NumPy storage, and the hardware's casts.

An NKI dtype is a string. Published kernels compare it with NumPy dtypes and with names, so DType does both.
Arithmetic happens in float32 and is rounded once when a value is written (`cast`).
Source: nki.api.shared (data types); float to integer as in the 0.6.0 release note: nearest even, then saturate.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import ml_dtypes
import numpy as np


class DType(str):
    """The name of an NKI dtype; equal to the NumPy dtype, scalar type or name that means the same."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            return str.__eq__(self, other) or ALIASES.get(str(other)) == str(self)
        return named(other) == str(self) if other is not None else False

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return ITEMSIZE[self]


_STORAGE: dict[str, Any] = {
    "bool_": np.bool_,
    "int8": np.int8,
    "uint8": np.uint8,
    "int16": np.int16,
    "uint16": np.uint16,
    "int32": np.int32,
    "uint32": np.uint32,
    "int64": np.int64,
    "uint64": np.uint64,
    "float16": np.float16,
    "bfloat16": ml_dtypes.bfloat16,
    "tfloat32": np.float32,
    "float32": np.float32,
    "float8_e4m3": ml_dtypes.float8_e4m3,
    "float8_e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8_e5m2": ml_dtypes.float8_e5m2,
    "float8_e8m0fnu": ml_dtypes.float8_e8m0fnu,
    # Packed types move as opaque words; nc_matmul_mx and quantize_mx unpack them.
    "float8_e5m2_x4": np.uint32,
    "float8_e4m3fn_x4": np.uint32,
    "float4_e2m1fn_x4": np.uint16,
}
STORAGE: dict[str, np.dtype] = {name: np.dtype(kind) for name, kind in _STORAGE.items()}
ITEMSIZE: dict[str, int] = {name: dtype.itemsize for name, dtype in STORAGE.items()}
ALIASES = {"bool": "bool_", "tf32": "tfloat32", "fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
DTYPES: dict[str, DType] = {name: DType(name) for name in STORAGE}

PACKED = frozenset({"float8_e5m2_x4", "float8_e4m3fn_x4", "float4_e2m1fn_x4"})
INTEGERS = frozenset({"int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"})
FP8 = frozenset({"float8_e4m3", "float8_e4m3fn", "float8_e5m2"})
SIXTEEN_BIT_FLOATS = frozenset({"bfloat16", "float16"})
FLOATS = frozenset({"float32", "tfloat32"}) | SIXTEEN_BIT_FLOATS | FP8
_FLOAT32 = STORAGE["float32"]
_NAMED = {dtype: name for name, dtype in STORAGE.items() if name not in PACKED and name != "tfloat32"}


def named(dtype: object) -> DType | None:
    """The NKI dtype that a name, NumPy dtype, scalar type or torch dtype means; None if there is none."""
    if isinstance(dtype, DType):
        return dtype
    if isinstance(dtype, str):
        return DTYPES.get(ALIASES.get(dtype, dtype))
    text = str(dtype)
    if text.startswith("torch."):
        return named(text.removeprefix("torch."))
    try:
        return DTYPES.get(_NAMED.get(np.dtype(dtype), ""))  # type: ignore[call-overload]
    except TypeError:
        return None


def as_float32(values: np.ndarray, dtype: str) -> np.ndarray:
    """Values as an engine sees them: float32. A new array or, for float32 input, the same one."""
    if values.dtype == _FLOAT32:
        return values
    if dtype in FP8:
        return _fp8_values(dtype)[values.view(np.uint8)]
    return values.astype(_FLOAT32)


def cast(values: np.ndarray, dtype: str) -> np.ndarray:
    """Round values (float32 or an integer type) to an NKI dtype as hardware does on write."""
    store = STORAGE[dtype]
    if dtype == "tfloat32":
        return _round_tf32(values.astype(_FLOAT32))
    if values.dtype == store:
        return values
    if dtype == "bool_":
        return values != 0
    if dtype in INTEGERS:
        return _saturate(values, store)
    if dtype == "float8_e8m0fnu":  # it has no zero: the smallest scale stands for it
        values = np.where(values == 0, np.float32(2.0**-127), values)
    with np.errstate(over="ignore", invalid="ignore"):
        return values.astype(store)


def truncate_tf32(values: np.ndarray) -> np.ndarray:
    """What TensorE reads of float32 bits viewed as tfloat32: the mantissa bits it has."""
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(_FLOAT32)


@cache
def _fp8_values(dtype: str) -> np.ndarray:
    return np.arange(256, dtype=np.uint8).view(STORAGE[dtype]).astype(_FLOAT32)


def _saturate(values: np.ndarray, store: np.dtype) -> np.ndarray:
    info = np.iinfo(store)
    if values.dtype.kind in "iub":
        return np.clip(values.astype(np.int64), info.min, info.max).astype(store)
    # The bounds of 32-bit integers are no float32 values; those of narrower ones are.
    whole = np.rint(values.astype(np.float64 if store.itemsize >= 4 else _FLOAT32))
    np.nan_to_num(whole, copy=False, nan=0.0, posinf=info.max, neginf=info.min)
    return np.clip(whole, info.min, info.max, out=whole).astype(store)


def _round_tf32(values: np.ndarray) -> np.ndarray:
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0xFFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(0xFFFFE000)
    return np.where(np.isfinite(values), rounded.view(_FLOAT32), values)
