"""Element-wise functions of nki.language: each emits one instruction, and each doubles as an operator of nki.isa."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkismith.verify.simulator.enums import MemoryRegion
from nkismith.verify.simulator.instruction import TABLE
from nkismith.verify.simulator.language.create import ndarray
from nkismith.verify.simulator.operators import ACTIVATIONS, ALU
from nkismith.verify.simulator.tensor import NkiTensor


class Operator:
    """An operator of nki.language: callable on tiles, and a value for the op parameters of nki.isa."""

    def __init__(self, name: str, call: Callable[..., Any] | None, doc: str) -> None:
        self.nki_op, self._call, self.__name__, self.__doc__ = name, call, name, doc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._call is None:
            raise TypeError(f"nl.{self.nki_op} is an operator constant, not a function")
        return self._call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"nl.{self.nki_op}"


def _result(x: NkiTensor, dtype: Any) -> NkiTensor:
    return ndarray(x.shape, dtype or x.dtype, MemoryRegion.sbuf)


def _binary(name: str) -> Callable[..., NkiTensor]:
    def call(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
        tile = x if isinstance(x, NkiTensor) else y
        dst = _result(tile, dtype)
        if isinstance(x, NkiTensor) and isinstance(y, NkiTensor) and x.shape == y.shape:
            TABLE["tensor_tensor"].call(dst, x, y, OPERATORS[name])
        elif isinstance(x, NkiTensor):
            TABLE["tensor_scalar"].call(dst, x, OPERATORS[name], y)
        else:
            TABLE["tensor_scalar"].call(dst, y, OPERATORS[name], x, reverse0=True)
        return dst

    return call


def _unary(name: str) -> Callable[..., NkiTensor]:
    def call(x: NkiTensor, dtype: Any = None) -> NkiTensor:
        dst = _result(x, dtype)
        TABLE["activation"].call(dst, OPERATORS[name], x)
        return dst

    return call


def _operators() -> dict[str, Operator]:
    found = {}
    for name, op in ALU.items():
        binary = op.kind in ("arithmetic", "bitvec") and name != "invert"
        call = _binary(name) if binary else _unary(name) if name in ACTIVATIONS else None
        found[name] = Operator(name, call, f"{name}, element by element.")
    for name in ACTIVATIONS:
        if name not in found:
            call = None if name == "prelu" else _unary(name)
            found[name] = Operator(name, call, f"{name}, element by element.")
    return found


OPERATORS: dict[str, Operator] = _operators()
