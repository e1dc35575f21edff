"""ALU operators and activation functions: meaning, class, and where each may run.

Source: nki.api.shared, tables "supported math operators" and "activation functions" (NKI 0.7); engine restrictions
from the 2.26 edition of the same page. All arithmetic is float32; results of comparisons are 1.0 and 0.0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf as _math_erf
from math import pi, sqrt

import numpy as np

Array = np.ndarray


@dataclass(frozen=True, slots=True)
class AluOp:
    """One operator of the vector-style engines. `identity` is what an accumulator starts from; None: not reducible."""

    name: str
    apply: Callable[[Array, Array], Array]
    kind: str  # arithmetic, bitvec, unary
    identity: float | None = None
    targets: tuple[str, ...] = ("trn2", "trn3")
    engines: tuple[str, ...] = ("vector",)


@dataclass(frozen=True, slots=True)
class Activation:
    """One function of ScalarE with the input range in which its approximation holds."""

    name: str
    apply: Callable[[Array], Array]
    low: float = -np.inf
    high: float = np.inf


def _compare(op: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: op(a, b).astype(np.float32)


def _logical(op: Callable[[Array, Array], Array]) -> Callable[[Array, Array], Array]:
    return lambda a, b: op(a != 0, b != 0).astype(np.float32)


def _signed_extreme(larger: bool) -> Callable[[Array, Array], Array]:
    def apply(a: Array, b: Array) -> Array:
        first = np.abs(a) > np.abs(b) if larger else np.abs(a) < np.abs(b)
        return np.where(first, a, b)

    return apply


def _shift(left: bool) -> Callable[[Array, Array], Array]:
    def apply(a: Array, b: Array) -> Array:
        unsigned = np.dtype(f"uint{a.dtype.itemsize * 8}")
        bits, by = a.astype(unsigned), np.asarray(b).astype(unsigned)
        kept = by < a.dtype.itemsize * 8
        by = np.where(kept, by, 0).astype(unsigned)
        moved = (bits << by if left else bits >> by) if bits.size else bits
        return np.where(kept, moved, 0).astype(unsigned).view(a.dtype)

    return apply


ALL_VECTOR_LIKE = ("vector", "gpsimd", "scalar")
_OPS = [
    AluOp("add", np.add, "arithmetic", 0.0, engines=ALL_VECTOR_LIKE),
    AluOp("subtract", np.subtract, "arithmetic", 0.0),
    AluOp("multiply", np.multiply, "arithmetic", 1.0, engines=ALL_VECTOR_LIKE),
    AluOp("maximum", np.maximum, "arithmetic", -np.inf),
    AluOp("minimum", np.minimum, "arithmetic", np.inf),
    AluOp("power", lambda a, b: np.power(a, b), "arithmetic", engines=("gpsimd",)),
    AluOp("equal", _compare(np.equal), "arithmetic"),
    AluOp("not_equal", _compare(np.not_equal), "arithmetic"),
    AluOp("greater", _compare(np.greater), "arithmetic"),
    AluOp("greater_equal", _compare(np.greater_equal), "arithmetic"),
    AluOp("less", _compare(np.less), "arithmetic"),
    AluOp("less_equal", _compare(np.less_equal), "arithmetic"),
    AluOp("logical_and", _logical(np.logical_and), "arithmetic", 1.0),
    AluOp("logical_or", _logical(np.logical_or), "arithmetic", 0.0),
    AluOp("logical_xor", _logical(np.logical_xor), "arithmetic", 0.0),
    AluOp("abs_max", _signed_extreme(True), "arithmetic", 0.0, targets=("trn3",)),
    AluOp("abs_min", _signed_extreme(False), "arithmetic", np.inf, targets=("trn3",)),
    AluOp("bitwise_and", np.bitwise_and, "bitvec", -1),
    AluOp("bitwise_or", np.bitwise_or, "bitvec", 0),
    AluOp("bitwise_xor", np.bitwise_xor, "bitvec", 0),
    AluOp("invert", lambda a, b: np.invert(a), "bitvec"),
    AluOp("left_shift", _shift(True), "bitvec"),
    AluOp("right_shift", _shift(False), "bitvec"),
    AluOp("abs", lambda a, b: np.abs(a), "unary", engines=("vector", "scalar")),
    AluOp("square", lambda a, b: np.square(a), "unary", targets=("trn3",)),
    AluOp("relu", lambda a, b: np.maximum(a, np.float32(0)), "unary", targets=("trn3",)),
    AluOp("rsqrt", lambda a, b: np.float32(1) / np.sqrt(a), "unary", engines=("gpsimd",)),
    AluOp("reciprocal", lambda a, b: np.float32(1) / a, "unary", engines=("vector", "scalar")),
    AluOp("bypass", lambda a, b: a, "unary"),
]
ALU: dict[str, AluOp] = {op.name: op for op in _OPS}


# -- activation functions, in float64 inside and rounded to float32: the hardware's own error is not documented -----

_erf = np.vectorize(_math_erf, otypes=[np.float64])


def _wide(fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def apply(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return fn(x.astype(np.float64)).astype(np.float32)

    return apply


def _narrow(fn: Callable[[Array], Array]) -> Callable[[Array], Array]:
    def apply(x: Array) -> Array:
        with np.errstate(all="ignore"):
            return fn(x)

    return apply


def erf(x: Array) -> Array:
    """erf in float64 (Abramowitz & Stegun 7.1.5 through math.erf)."""
    return _erf(x)


def _sigmoid(x: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-x))


def _pdf(x: Array) -> Array:
    return np.exp(-0.5 * x * x) / sqrt(2 * pi)


def _gelu(x: Array) -> Array:
    return 0.5 * x * (1.0 + erf(x / sqrt(2.0)))


def _gelu_tanh(x: Array) -> Array:
    return 0.5 * x * (1.0 + np.tanh(sqrt(2 / pi) * (x + 0.044715 * x**3)))


def _silu_dx(x: Array) -> Array:
    s = _sigmoid(x)
    return s * (1.0 + x * (1.0 - s))


def _gelu_sigmoid_dx(x: Array) -> Array:
    s = _sigmoid(1.702 * x)
    return s * (1.0 + 1.702 * x * (1.0 - s))


def _softplus(x: Array) -> Array:
    return np.logaddexp(0.0, x)


def _sine(x: Array) -> Array:
    """sin inside [-pi, pi]; outside, the odd polynomial that the hardware evaluates without range reduction."""
    inside = np.sin(x)
    polynomial = x * (1 + x * x * (-1 / 6 + x * x * (1 / 120 + x * x * (-1 / 5040 + x * x / 362880))))
    return np.where(np.abs(x) <= pi, inside, polynomial)


_ACTIVATIONS = [
    Activation("copy", lambda x: x),
    Activation("square", _narrow(np.square)),
    Activation("sigmoid", _wide(_sigmoid)),
    Activation("relu", lambda x: np.maximum(x, np.float32(0))),
    Activation("prelu", lambda x: x),  # the slope is a parameter of activate2
    Activation("gelu", _wide(_gelu)),
    Activation("gelu_dx", _wide(lambda x: 0.5 * (1.0 + erf(x / sqrt(2.0))) + x * _pdf(x))),
    Activation("gelu_apprx_tanh", _wide(_gelu_tanh)),
    Activation("gelu_apprx_sigmoid", _wide(lambda x: x * _sigmoid(1.702 * x))),
    Activation("gelu_apprx_sigmoid_dx", _wide(_gelu_sigmoid_dx)),
    Activation("silu", _wide(lambda x: x * _sigmoid(x))),
    Activation("silu_dx", _wide(_silu_dx)),
    Activation("tanh", _narrow(np.tanh)),
    Activation("softplus", _wide(_softplus)),
    Activation("mish", _wide(lambda x: x * np.tanh(_softplus(x)))),
    Activation("erf", _wide(erf)),
    Activation("erf_dx", _wide(lambda x: 2.0 / sqrt(pi) * np.exp(-x * x))),
    Activation("exp", _narrow(np.exp)),
    Activation("sign", _narrow(np.sign)),
    Activation("abs", np.abs),
    Activation("log", _narrow(np.log), 2.0**-64, 2.0**64),
    Activation("sqrt", _narrow(np.sqrt), 2.0**-116, 2.0**118),
    Activation("rsqrt", _narrow(lambda x: np.float32(1) / np.sqrt(x)), 2.0**-87, 2.0**97),
    Activation("reciprocal", _narrow(lambda x: np.float32(1) / x), -(2.0**42), 2.0**42),
    Activation("sin", _wide(_sine), -pi, pi),
    Activation("arctan", _wide(np.arctan), -pi / 2, pi / 2),
]
ACTIVATIONS: dict[str, Activation] = {a.name: a for a in _ACTIVATIONS}
