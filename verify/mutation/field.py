"""Arithmetic in the prime field of 2^31 - 1, for proofs that two traces compute the same expressions.

float32 numbers are fractions with a power of two below, so each is exactly one element. What has no meaning in a field
(a maximum, an exponential, a rounding) is a random function of its arguments: the same for the same function, and as
good as never the same for another one.
"""

from __future__ import annotations

import hashlib
from fractions import Fraction
from functools import cache

import numpy as np

PRIME = np.uint64(2**31 - 1)
SMALL = np.uint64(16)  # integers up to here are exact in every float dtype
Array = np.ndarray


def mixed(values: Array) -> Array:
    """A random-looking function of 64 bits (splitmix64)."""
    x = values + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def hashed(what: str, *values: Array) -> Array:
    """A random function of the field, one for each `what`, of ordered arguments."""
    result: Array = np.uint64(_seed(what))  # type: ignore[assignment]
    for value in values:
        result = mixed(result * np.uint64(0x100000001B3) ^ value)
    return result % PRIME


@cache
def _seed(what: str) -> int:
    return int.from_bytes(hashlib.sha256(what.encode()).digest()[:8], "little")


def constant(what: str) -> np.uint64:
    """A random element with a name."""
    return np.uint64(_seed(what) % int(PRIME))


def numbers(values: Array) -> Array:
    """float32 numbers as elements: each is a fraction with a power of two below, so it has exactly one."""
    distinct, where = np.unique(values, return_inverse=True)
    elements = [number(float(v)) for v in distinct]
    return np.array(elements, np.uint64)[where].reshape(values.shape)


@cache
def number(value: float) -> int:
    """The element of one number; infinities and NaN are random ones."""
    if not np.isfinite(value):
        return int(constant(repr(value)))
    exact, prime = Fraction(value), int(PRIME)
    return exact.numerator * pow(exact.denominator, -1, prime) % prime


def rounded(values: Array, dtype: str) -> Array:
    """A random function of its own, but for small integers, which every float dtype holds exactly."""
    small = (values <= SMALL) | (values >= PRIME - SMALL)
    return np.where(small, values, hashed(f"round to {dtype}", values))


def product(a: Array, b: Array) -> Array:
    """a * b, element by element."""
    return a * b % PRIME


def inverse(a: Array) -> Array:
    """1 / a as a^(p - 2)."""
    result, power = np.ones_like(a), a
    for bit in bin(int(PRIME) - 2)[:1:-1]:
        if bit == "1":
            result = product(result, power)
        power = product(power, power)
    return result


def matrix_product(a: Array, b: Array) -> Array:
    """a.T @ b for [K, M] and [K, N], K at most 128: in parts of 11 bits, so that float64 sums stay exact."""
    result = np.zeros((a.shape[1], b.shape[1]), np.uint64)
    right = b.astype(np.float64)
    for shift in (0, 11, 22):
        part = (a >> np.uint64(shift)) & np.uint64(0x7FF)
        sums = (part.T.astype(np.float64) @ right).astype(np.uint64) % PRIME
        result = (result + (sums << np.uint64(shift))) % PRIME
    return result


_SYMMETRIC = frozenset({"maximum", "minimum", "equal", "not_equal", "logical_and", "logical_or", "logical_xor"})


def operated(op: str, a: Array, b: Array) -> Array:
    """An ALU operator or activation function; those of one input ignore b."""
    match op:
        case "add":
            return (a + b) % PRIME
        case "subtract":
            return (a + (PRIME - b)) % PRIME
        case "multiply":
            return product(a, b)
        case "copy" | "bypass":
            return a
        case "square":
            return product(a, a)
        case "reciprocal":
            return inverse(a)
    if op in _SYMMETRIC:
        return hashed(op, (a + b) % PRIME, product(a, b))
    return hashed(op, a, b)
