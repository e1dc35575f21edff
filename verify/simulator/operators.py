"""ALU operators and activation functions: meaning, class, and where each may run.

Source: nki.api.shared, tables "supported math operators" and "activation functions" (NKI 0.7); engine restrictions
from the 2.26 edition of the same page. All arithmetic is float32; results of comparisons are 1.0 and 0.0.
Functions take `out=`, as NumPy's own do, to write straight into a tile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from math import erf as _scalar_erf
from math import pi, sqrt
from typing import Any

import numpy as np

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class AluOp:
    """One operator of the vector-style engines.

    `kind` is arithmetic, bitvec, unary or bypass; `identity` what an accumulator of it starts from; `reduces` whether
    the documentation lists it as a reduction; `engines` which engines have it (the first by default).
    """

    name: str
    apply: Callable[..., Array]  # (a, b, out=None)
    kind: str
    identity: float | None = None
    reduces: bool = False
    targets: tuple[str, ...] = ("trn2", "trn3")
    engines: tuple[str, ...] = ("vector",)
    reduce: Callable[[Array], Array] | None = None  # [R, N] -> [R]; None where apply is a ufunc


@dataclass(frozen=True, slots=True)
class Activation:
    """One function of ScalarE with the input range in which its approximation holds (`magnitude`: of |x|)."""

    name: str
    apply: Callable[..., Array]  # (x, out=None)
    low: float = -np.inf
    high: float = np.inf
    magnitude: bool = False

    @property
    def limited(self) -> bool:
        """Is there an input for which the result is invalid?"""
        return bool(np.isfinite(self.low) or np.isfinite(self.high))


def reduced(op: AluOp, values: Array) -> Array:
    """Reduce [R, N] along the free axis to [R]."""
    if op.reduce is not None:
        return op.reduce(values)
    return op.apply.reduce(values, axis=1, dtype=values.dtype)  # type: ignore[attr-defined]


def _compare(op: Any) -> Callable[..., Array]:
    def apply(a: Array, b: Array, out: Array | None = None) -> Array:
        return op(a, b).astype(np.float32) if out is None else op(a, b, out=out)

    return apply


def _logical(op: Any) -> Callable[..., Array]:
    def apply(a: Array, b: Array, out: Array | None = None) -> Array:
        a, b = np.not_equal(a, 0), np.not_equal(b, 0)
        return op(a, b).astype(np.float32) if out is None else op(a, b, out=out)

    return apply


def _logical_reduce(op: Any) -> Callable[[Array], Array]:
    return lambda values: op.reduce(values != 0, axis=1).astype(np.float32)


def _signed_extreme(larger: bool) -> Callable[..., Array]:
    def apply(a: Array, b: Array, out: Array | None = None) -> Array:
        first = np.abs(a) > np.abs(b) if larger else np.abs(a) < np.abs(b)
        return _into(np.where(first, a, b).astype(np.float32), out)

    return apply


def _signed_extreme_reduce(larger: bool) -> Callable[[Array], Array]:
    def apply(values: Array) -> Array:  # of equal magnitudes the last stays
        backwards = values[:, ::-1]
        at = np.abs(backwards).argmax(axis=1) if larger else np.abs(backwards).argmin(axis=1)
        return np.take_along_axis(backwards, at[:, None], axis=1)[:, 0]

    return apply


def _shift(left: bool) -> Callable[..., Array]:
    def apply(a: Array, b: Array, out: Array | None = None) -> Array:
        bits = a.dtype.itemsize * 8
        unsigned = np.dtype(f"uint{bits}")
        by = np.asarray(b).astype(unsigned)
        kept = by < bits
        pattern, by = a.view(unsigned), np.where(kept, by, 0).astype(unsigned)
        moved = pattern << by if left else pattern >> by
        return np.where(kept, moved, 0).astype(unsigned).view(a.dtype)

    return apply


def _unary(function: Any) -> Callable[..., Array]:
    return lambda a, b, out=None: function(a, out=out)


def _into(values: Array, out: Array | None) -> Array:
    if out is None:
        return values
    out[...] = values
    return out


def relu(x: Array, out: Array | None = None) -> Array:
    """max(x, 0)"""
    return np.maximum(x, np.float32(0), out=out)


def rsqrt(x: Array, out: Array | None = None) -> Array:
    """1 / sqrt(x)"""
    return np.divide(np.float32(1), np.sqrt(x), out=out)


def reciprocal(x: Array, out: Array | None = None) -> Array:
    """1 / x"""
    return np.divide(np.float32(1), x, out=out)


_TRN3 = ("trn3",)
_EVERYWHERE = ("vector", "gpsimd", "scalar")
_OPS = [
    AluOp("add", np.add, "arithmetic", 0.0, True, engines=_EVERYWHERE),
    AluOp("subtract", np.subtract, "arithmetic", 0.0, True),
    AluOp("multiply", np.multiply, "arithmetic", 1.0, True, engines=_EVERYWHERE),
    AluOp("maximum", np.maximum, "arithmetic", -np.inf, True),
    AluOp("minimum", np.minimum, "arithmetic", np.inf, True),
    AluOp("power", np.power, "arithmetic", engines=("gpsimd",)),
    AluOp("equal", _compare(np.equal), "arithmetic"),
    AluOp("not_equal", _compare(np.not_equal), "arithmetic"),
    AluOp("greater", _compare(np.greater), "arithmetic"),
    AluOp("greater_equal", _compare(np.greater_equal), "arithmetic"),
    AluOp("less", _compare(np.less), "arithmetic"),
    AluOp("less_equal", _compare(np.less_equal), "arithmetic"),
    AluOp("logical_and", _logical(np.logical_and), "arithmetic", 1.0, True, reduce=_logical_reduce(np.logical_and)),
    AluOp("logical_or", _logical(np.logical_or), "arithmetic", 0.0, True, reduce=_logical_reduce(np.logical_or)),
    AluOp("logical_xor", _logical(np.logical_xor), "arithmetic", 0.0, True, reduce=_logical_reduce(np.logical_xor)),
    AluOp("abs_max", _signed_extreme(True), "arithmetic", 0.0, targets=_TRN3, reduce=_signed_extreme_reduce(True)),
    AluOp("abs_min", _signed_extreme(False), "arithmetic", np.inf, targets=_TRN3, reduce=_signed_extreme_reduce(False)),
    AluOp("bitwise_and", np.bitwise_and, "bitvec", -1, True),
    AluOp("bitwise_or", np.bitwise_or, "bitvec", 0, True),
    AluOp("bitwise_xor", np.bitwise_xor, "bitvec", 0, True),
    AluOp("invert", _unary(np.invert), "bitvec"),
    AluOp("left_shift", _shift(True), "bitvec"),
    AluOp("right_shift", _shift(False), "bitvec"),
    AluOp("abs", _unary(np.abs), "unary", engines=("vector", "scalar")),
    AluOp("square", _unary(np.square), "unary", targets=_TRN3),
    AluOp("relu", _unary(relu), "unary", targets=_TRN3),
    AluOp("rsqrt", _unary(rsqrt), "unary", engines=("gpsimd",)),
    AluOp("reciprocal", _unary(reciprocal), "unary", engines=("vector", "scalar")),
    AluOp("bypass", _unary(np.positive), "bypass", engines=("scalar",)),
]
ALU: dict[str, AluOp] = {op.name: op for op in _OPS}


# -- activation functions: the hardware's own error is not documented ----------------------------------------------


def _composed(function: Callable[[Array], Array]) -> Callable[..., Array]:
    """A function of several steps in float32."""
    return lambda x, out=None: _into(function(x), out)


def _wide(function: Callable[[Array], Array]) -> Callable[..., Array]:
    """A function that cancels: float64 inside."""
    return lambda x, out=None: _into(function(x.astype(np.float64)).astype(np.float32), out)


_ERF_STEP = 1.0 / 1024
_ERF_END = 6.0  # erf is 1 in float64 beyond


@cache
def _erf_pieces() -> Array:
    """Coefficients of the cubic that has math.erf's values and slopes at the ends, for each step of [-end, end]."""
    x = np.arange(-_ERF_END, _ERF_END + 1.5 * _ERF_STEP, _ERF_STEP)
    value, slope = np.array([_scalar_erf(v) for v in x]), _ERF_STEP * 2.0 / sqrt(pi) * np.exp(-x * x)
    rise, low, high = np.diff(value), slope[:-1], slope[1:]
    return np.stack([value[:-1], low, 3 * rise - 2 * low - high, low + high - 2 * rise], axis=1)


def erf(x: Array) -> Array:
    """erf of float64 values, within 1e-13."""
    at = (np.clip(x, -_ERF_END, _ERF_END) + _ERF_END) / _ERF_STEP
    cell = at.astype(np.int32)
    a, b, c, d = np.moveaxis(np.take(_erf_pieces(), cell, axis=0, mode="clip"), -1, 0)
    t = at - cell  # NaN stays NaN
    return a + t * (b + t * (c + t * d))


def _sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def _softplus(x: Array) -> Array:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _pdf(x: Array) -> Array:
    return np.exp(-0.5 * x * x) / sqrt(2 * pi)


def _cdf(x: Array) -> Array:
    return 0.5 * (1.0 + erf(x / sqrt(2.0)))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x * x * x)))


def _silu_dx(x: Array) -> Array:
    s = _sigmoid(x)
    return s * (1 + x * (1 - s))


def _gelu_sigmoid_dx(x: Array) -> Array:
    s = _sigmoid(1.702 * x)
    return s * (1 + 1.702 * x * (1 - s))


def _sine(x: Array) -> Array:
    """sin on [-pi, pi]; outside, the cubic of the last segment: the hardware reduces no range, sin(9) = 27.65."""
    beyond = np.abs(x) - np.float32(pi)
    cubic = np.copysign(beyond * beyond * beyond / 6 - beyond, x)
    return np.where(beyond > 0, cubic, np.sin(x))


_ACTIVATIONS = [
    Activation("copy", np.positive),
    Activation("square", np.square),
    Activation("sigmoid", _composed(_sigmoid)),
    Activation("relu", relu),
    Activation("prelu", np.positive),  # the slope is a parameter of activate2
    Activation("gelu", _wide(lambda x: x * _cdf(x))),
    Activation("gelu_dx", _wide(lambda x: _cdf(x) + x * _pdf(x))),
    Activation("gelu_apprx_tanh", _wide(_gelu_tanh)),
    Activation("gelu_apprx_sigmoid", _composed(lambda x: x * _sigmoid(np.float32(1.702) * x))),
    Activation("gelu_apprx_sigmoid_dx", _wide(_gelu_sigmoid_dx)),
    Activation("silu", _composed(lambda x: x * _sigmoid(x))),
    Activation("silu_dx", _wide(_silu_dx)),
    Activation("tanh", np.tanh),
    Activation("softplus", _composed(_softplus)),
    Activation("mish", _composed(lambda x: x * np.tanh(_softplus(x)))),
    Activation("erf", _wide(erf)),
    Activation("erf_dx", _wide(lambda x: 2.0 / sqrt(pi) * np.exp(-x * x))),
    Activation("exp", np.exp),
    Activation("sign", np.sign),
    Activation("abs", np.abs),
    Activation("log", np.log, 2.0**-64, 2.0**64),
    Activation("sqrt", np.sqrt, 2.0**-116, 2.0**118),
    Activation("rsqrt", rsqrt, 2.0**-87, 2.0**97),
    Activation("reciprocal", reciprocal, 2.0**-42, 2.0**42, magnitude=True),
    Activation("sin", _composed(_sine), -pi, pi),
    Activation("arctan", _wide(np.arctan), -pi / 2, pi / 2),
]
ACTIVATIONS: dict[str, Activation] = {a.name: a for a in _ACTIVATIONS}
