"""Functions of nki.language that take several instructions. Source: nki.language (NKI 0.7).

Trigonometry reduces its argument to the range in which ScalarE's sine holds; rounding goes through int32, whose
conversion rounds to nearest. Division and remainders have no instruction and are refused with what to write instead.
"""

from __future__ import annotations

from math import pi, prod
from typing import Any

from nkismith.verify.simulator.instruction import TABLE
from nkismith.verify.simulator.language.create import sbuf_tile
from nkismith.verify.simulator.language.maths import OPERATORS, activated, binary, repeated
from nkismith.verify.simulator.language.reduce import free_axes, reduced
from nkismith.verify.simulator.tensor import NkiTensor, refuse

__all__ = [
    "ceil", "cos", "divide", "dropout", "floor", "fmod", "logical_not", "mod", "negative", "rms_norm", "softmax", "tan",
    "trunc", "where",
]  # fmt: skip

_EXACT = float(1 << 23)  # float32 values from here on are whole numbers
# 2 pi in three float32 parts: whole turns times the first two are exact.
_TURN = (6.28125, 0.0019350051879882812, 3.0199159819567e-07)


def negative(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """-x"""
    return binary("multiply", x, -1.0, dtype)


def logical_not(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """1 - x for values 0 and 1 (exclusive or with 1)."""
    return binary("logical_xor", x, 1.0, dtype)


def sine(x: NkiTensor, phase: float, dtype: Any = None) -> NkiTensor:
    """sin(x + phase), any argument."""
    turns = sbuf_tile(x.shape, "int32")
    TABLE["tensor_scalar"].call(
        turns, x, OPERATORS["multiply"], 1.0 / (2 * pi), False, OPERATORS["add"], phase / (2 * pi)
    )
    whole = OPERATORS["copy"](turns, dtype="float32")
    rest: NkiTensor = x
    for part in _TURN:
        step = binary("multiply", whole, -part)
        rest = binary("add", rest, step, "float32")
    if phase:
        rest = binary("add", rest, phase)
    inside = sbuf_tile(x.shape, "float32")
    TABLE["tensor_scalar"].call(inside, rest, OPERATORS["minimum"], pi, False, OPERATORS["maximum"], -pi)
    return activated("sin", inside, dtype or x.dtype)


def cos(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Cosine, any argument."""
    return sine(x, pi / 2, dtype)


def tan(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """Tangent: sine times the reciprocal of cosine."""
    return binary("multiply", sine(x, 0.0, "float32"), OPERATORS["reciprocal"](cos(x, "float32")), dtype or x.dtype)


def floor(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """The largest whole number that is not above x."""
    return _rounded(x, "greater", "subtract", dtype)


def ceil(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """The smallest whole number that is not below x."""
    return _rounded(x, "less", "add", dtype)


def trunc(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """x without its fraction."""
    magnitude = _rounded(activated("abs", x, "float32"), "greater", "subtract", "float32")
    return binary("multiply", magnitude, activated("sign", x, "float32"), dtype or x.dtype)


def _rounded(x: NkiTensor, overshoots: str, back: str, dtype: Any) -> NkiTensor:
    nearest = OPERATORS["copy"](OPERATORS["copy"](x, dtype="int32"), dtype="float32")
    result = sbuf_tile(x.shape, "float32")
    too_far = binary(overshoots, nearest, x, "float32")
    TABLE["tensor_tensor"].call(result, nearest, too_far, OPERATORS[back])
    whole = binary("greater_equal", activated("abs", x, "float32"), _EXACT, "uint8")
    TABLE["tensor_copy_predicated"].call(result, OPERATORS["copy"](x, dtype="float32"), whole)
    return OPERATORS["copy"](result, dtype=dtype or x.dtype)


def softmax(x: NkiTensor, axis: Any = -1, dtype: Any = None) -> NkiTensor:
    """exp(x - max) / sum over the last free dimensions, in float32."""
    axes = free_axes(x, axis, "softmax")
    shifted = sbuf_tile(x.shape, "float32")
    top = reduced("maximum", x, axes, "float32", True)
    TABLE["tensor_tensor"].call(shifted, x, repeated(top, x.shape), OPERATORS["subtract"])
    powers = activated("exp", shifted, "float32")
    share = OPERATORS["reciprocal"](reduced("add", powers, axes, "float32", True))
    result = sbuf_tile(x.shape, dtype or x.dtype)
    TABLE["tensor_tensor"].call(result, powers, repeated(share, x.shape), OPERATORS["multiply"])
    return result


def rms_norm(
    x: NkiTensor, w: NkiTensor, axis: Any, n: int, epsilon: float = 1e-6, dtype: Any = None, compute_dtype: Any = None
) -> NkiTensor:
    """x / sqrt(sum(x * x over axis) / n + epsilon) * w"""
    kind = compute_dtype or "float32"
    axes = free_axes(x, axis, "rms_norm")
    squares = activated("square", x, "float32")
    mean = binary("multiply", reduced("add", squares, axes, "float32", True), 1.0 / n)
    scale = OPERATORS["rsqrt"](binary("add", mean, epsilon))
    normed = sbuf_tile(x.shape, kind)
    TABLE["tensor_tensor"].call(normed, x, repeated(scale, x.shape), OPERATORS["multiply"])
    return binary("multiply", normed, w, dtype or x.dtype)


def where(condition: NkiTensor, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """x where condition is not 0, else y; x and y are tiles of the condition's elements, or numbers."""
    tiles = [v for v in (x, y) if isinstance(v, NkiTensor)]
    shape = (tiles[0] if tiles else condition).shape
    if prod(shape) != condition.size:
        raise refuse("operand_shapes", f"nl.where: condition {condition.shape}, values {shape}", "equal shapes")
    kind = dtype or (tiles[0].dtype if tiles else "float32")
    result = sbuf_tile(shape, kind)
    if isinstance(y, NkiTensor):
        TABLE["tensor_copy"].call(result, y)
    else:
        TABLE["memset"].call(result, y)
    chosen = binary("not_equal", condition, 0.0, "uint8")
    source = OPERATORS["copy"](x, dtype=kind) if isinstance(x, NkiTensor) and x.dtype != result.dtype else x
    TABLE["tensor_copy_predicated"].call(result, source, chosen)
    return result


def dropout(x: NkiTensor, rate: Any, dtype: Any = None) -> NkiTensor:
    """x with elements set to zero with probability `rate`, a number or a (P, 1) tile; nothing is rescaled."""
    result = sbuf_tile(x.shape, x.dtype)
    TABLE["dropout"].call(result, x, rate)
    return result if dtype is None else OPERATORS["copy"](result, dtype=dtype)


def divide(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Refused: there is no division."""
    raise refuse("no_instruction", "nl.divide: the hardware does not divide", "nl.multiply(x, nl.reciprocal(y))")


def fmod(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Refused: there is no remainder."""
    raise refuse(
        "no_instruction", "nl.fmod does not compile for the device",
        "subtract nl.trunc(nl.multiply(x, nl.reciprocal(y))) times y from x",
    )  # fmt: skip


def mod(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """Refused: there is no remainder."""
    raise refuse(
        "no_instruction", "nl.mod does not compile for the device",
        "subtract nl.floor(nl.multiply(x, nl.reciprocal(y))) times y from x",
    )  # fmt: skip
