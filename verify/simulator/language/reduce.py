"""Reductions of nki.language over the last free dimensions. Source: nki.language (NKI 0.7).

nl.max, nl.mean and nl.average double as operators of nisa.tensor_partition_reduce.
"""

from __future__ import annotations

from math import prod as product
from typing import Any

from nkismith.verify.simulator.instruction import TABLE
from nkismith.verify.simulator.language.create import sbuf_tile
from nkismith.verify.simulator.language.maths import OPERATORS, Operator, binary, repeated
from nkismith.verify.simulator.tensor import NkiTensor, refuse

__all__ = ["all", "average", "max", "mean", "min", "prod", "sum", "var"]


def free_axes(x: NkiTensor, axis: Any, call: str) -> tuple[int, ...]:
    """Axes as sorted non-negative ints. Raises LegalityError unless they are the last free dimensions."""
    axes = axis if isinstance(axis, tuple | list) else (axis,)
    found = tuple(sorted(a + x.ndim if a < 0 else a for a in axes))
    if not found or found != tuple(range(x.ndim - len(found), x.ndim)) or found[0] < 1:
        raise refuse(
            "reduce_axis", f"nl.{call} over axis {axis} of shape {x.shape}",
            "reduce the last free dimensions; partitions with nisa.tensor_partition_reduce",
        )  # fmt: skip
    return found


def reduced(name: str, x: NkiTensor, axes: tuple[int, ...], dtype: Any, keepdims: bool) -> NkiTensor:
    """A new SBUF tile with x reduced by one operator; it keeps one free dimension at least."""
    kept = x.shape[: axes[0]]
    if keepdims:
        shape = kept + (1,) * len(axes)
    else:
        shape = kept if len(kept) > 1 else (*kept, 1)
    dst = sbuf_tile(shape, dtype or x.dtype)
    TABLE["tensor_reduce"].call(dst, OPERATORS[name], x, axes)
    return dst


def sum(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Sum over the last free dimensions."""
    return reduced("add", x, free_axes(x, axis, "sum"), dtype, keepdims)


def _min(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Minimum over the last free dimensions."""
    return reduced("minimum", x, free_axes(x, axis, "min"), dtype, keepdims)


def prod(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Product over the last free dimensions."""
    return reduced("multiply", x, free_axes(x, axis, "prod"), dtype, keepdims)


def all(x: NkiTensor, axis: Any, dtype: Any = None) -> NkiTensor:
    """1 where all elements over the last free dimensions are non-zero, else 0."""
    return reduced("logical_and", x, free_axes(x, axis, "all"), dtype, False)


def _max(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    return reduced("maximum", x, free_axes(x, axis, "max"), dtype, keepdims)


def _mean(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    axes = free_axes(x, axis, "mean")
    total = reduced("add", x, axes, "float32", keepdims)
    return binary("multiply", total, 1.0 / product(x.shape[axes[0] :]), dtype or x.dtype)


def var(x: NkiTensor, axis: Any, dtype: Any = None, keepdims: bool = False) -> NkiTensor:
    """Population variance over the last free dimensions; the reduced dimensions always stay, with extent 1."""
    axes = free_axes(x, axis, "var")
    count = product(x.shape[axes[0] :])
    mean = binary("multiply", reduced("add", x, axes, "float32", True), 1.0 / count)
    centred = sbuf_tile(x.shape, "float32")
    TABLE["tensor_tensor"].call(centred, x, repeated(mean, x.shape), OPERATORS["subtract"])
    squares = binary("multiply", centred, centred)
    return binary("multiply", reduced("add", squares, axes, "float32", True), 1.0 / count, dtype or x.dtype)


max = Operator("max", _max, "Maximum over the last free dimensions.")
min = Operator("min", _min, "Minimum over the last free dimensions.")
mean = Operator("mean", _mean, "Arithmetic mean over the last free dimensions, in float32.")
average = Operator("average", None, "The mean, as an operator of nisa.tensor_partition_reduce.")
