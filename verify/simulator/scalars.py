"""Run-time integers: NkiScalar and VirtualRegister.

Their arithmetic is recorded, never evaluated. Source: nki.isa.NkiScalar, nki-scalar (NKI 0.7).
"""

from __future__ import annotations

from typing import Any

from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.trace import ScalarRef

HOST_USE = "a run-time scalar has no value while the kernel is built"


class NkiScalar:
    """One integer computed on the device: the result of scalar_load, of arithmetic, or a loop index."""

    __slots__ = ("dtype", "is_comparison", "ref")

    def __init__(self, ref: ScalarRef, dtype: str = "int32", is_comparison: bool = False) -> None:
        self.ref, self.dtype, self.is_comparison = ref, dtype, is_comparison

    def _binary(self, op: str, other: Any, swapped: bool = False) -> NkiScalar:
        if isinstance(other, bool) or not isinstance(other, int | NkiScalar):
            raise TypeError(f"an NkiScalar combines with an int or a scalar of its dtype, not {type(other).__name__}")
        if isinstance(other, NkiScalar) and other.dtype != self.dtype:
            raise LegalityError(
                "scalar_width", f"{self.dtype} and {other.dtype} scalars in one expression",
                "load both with the same dtype",
            )  # fmt: skip
        mine, theirs = self.ref, other.ref if isinstance(other, NkiScalar) else other
        a, b = (theirs, mine) if swapped else (mine, theirs)
        return _recorder().scalar(f"scalar_{op}", self.dtype, a=a, b=b)

    def __add__(self, other: Any) -> NkiScalar:
        return self._binary("add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> NkiScalar:
        return self._binary("subtract", other)

    def __rsub__(self, other: Any) -> NkiScalar:
        return self._binary("subtract", other, swapped=True)

    def __mul__(self, other: Any) -> NkiScalar:
        return self._binary("multiply", other)

    __rmul__ = __mul__

    def __neg__(self) -> NkiScalar:
        return self._binary("subtract", 0, swapped=True)

    def __pos__(self) -> NkiScalar:
        return self

    def _compare(self, other: Any) -> NkiScalar:
        if self.dtype == "int64":
            raise LegalityError("scalar_width", "comparison of int64 scalars", "compare int32 scalars")
        return NkiScalar(self.ref, self.dtype, is_comparison=True)

    __lt__ = __le__ = __gt__ = __ge__ = _compare

    def __eq__(self, other: object) -> Any:
        return self._compare(other)

    def __ne__(self, other: object) -> Any:
        return self._compare(other)

    __hash__ = object.__hash__

    def _host(self, *_: Any) -> Any:
        raise TypeError(f"{HOST_USE}: use nl.fori_loop or nl.while_loop instead of Python control flow")

    __bool__ = __int__ = __index__ = __float__ = _host

    def __repr__(self) -> str:
        return f"NkiScalar({self.dtype})"


class VirtualRegister:
    """A 32-bit register of a sequencer, written by register_move and register_load."""

    __slots__ = ("frozen", "ref")

    def __init__(self, ref: ScalarRef, frozen: bool = False) -> None:
        self.ref, self.frozen = ref, frozen

    def _host(self, *_: Any) -> Any:
        raise TypeError(f"{HOST_USE}: use nl.fori_loop or nl.while_loop instead of Python control flow")

    __bool__ = __int__ = __index__ = __float__ = _host

    def _arithmetic(self, *_: Any) -> Any:
        raise TypeError("a VirtualRegister has no arithmetic: load an NkiScalar with nisa.scalar_load")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _arithmetic

    def __repr__(self) -> str:
        return "VirtualRegister()"


def combine(terms: list[tuple[Any, int]]) -> NkiScalar:
    """The recorded sum of scalar * factor."""
    total = None
    for scalar, factor in terms:
        term = scalar if factor == 1 else scalar * factor
        total = term if total is None else total + term
    return total  # type: ignore[return-value]


def _recorder() -> Any:
    from nkismith.verify.simulator.recorder import current

    return current()
