"""The dtype of a result of two. Source: nki.api.shared of SDK 2.26, type promotion; no newer text."""

from __future__ import annotations

from nkismith.verify.simulator.dtypes import DTYPES, FLOATS, FP8, INTEGERS, ITEMSIZE, DType

_SIGNED = ("int8", "int16", "int32")


def promoted(a: str, b: str) -> DType:
    """The narrowest dtype that holds both; float32 where none of 32 bits does."""
    if a == b:
        return DTYPES[a]
    floats = [d for d in (a, b) if d in FLOATS]
    if len(floats) == 1:
        return DTYPES[floats[0]]
    if floats:
        return DTYPES[_float(a, b)]
    return DTYPES[_integer("uint8" if a == "bool_" else a, "uint8" if b == "bool_" else b)]


def _float(a: str, b: str) -> str:
    if "float32" in (a, b):
        return "float32"
    if {a, b} <= FP8:
        return "bfloat16"
    if {a, b} == {"float16", "bfloat16"}:
        return "float32"
    return max(a, b, key=lambda d: ITEMSIZE[d])


def _integer(a: str, b: str) -> str:
    if a == b or a not in INTEGERS or b not in INTEGERS:
        return a
    wide, narrow = (a, b) if ITEMSIZE[a] >= ITEMSIZE[b] else (b, a)
    if wide in _SIGNED and (narrow in _SIGNED or ITEMSIZE[narrow] < ITEMSIZE[wide]):
        return wide
    if wide not in _SIGNED and narrow not in _SIGNED:
        return wide
    return {1: "int16", 2: "int32"}.get(ITEMSIZE[wide], "float32")
