"""Run-time integers: NkiScalar, VirtualRegister, and the calls of nki.isa that make and use them.

Their arithmetic is recorded, never evaluated. Source: nki.isa.NkiScalar, nki-scalar, nki.isa.register_* (NKI 0.7).
"""

from __future__ import annotations

from typing import Any

from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.trace import WORD, ScalarRef

INT32_MIN, INT32_MAX, UINT32_MAX = -(1 << 31), (1 << 31) - 1, (1 << 32) - 1


class NkiScalar:
    """One integer computed on the device: the result of scalar_load, of arithmetic, or a loop index."""

    __slots__ = ("dtype", "is_comparison", "ref")

    def __init__(self, ref: ScalarRef, dtype: str = "int32", is_comparison: bool = False) -> None:
        _require_made(ref)
        self.ref, self.dtype, self.is_comparison = ref, dtype, is_comparison

    def _binary(self, op: str, other: Any, swapped: bool = False) -> NkiScalar:
        if isinstance(other, bool) or not isinstance(other, int | NkiScalar):
            raise LegalityError(
                "scalar_operand", f"arithmetic of an NkiScalar with {type(other).__name__}",
                "combine it with an int or with a scalar of its dtype",
            )  # fmt: skip
        if isinstance(other, NkiScalar) and other.dtype != self.dtype:
            raise LegalityError(
                "scalar_width", f"{self.dtype} and {other.dtype} scalars in one expression",
                "load both with the same dtype",
            )  # fmt: skip
        if isinstance(other, int) and not -WORD <= other < WORD:
            raise LegalityError("scalar_width", f"arithmetic of an NkiScalar with {other}", "stay in 64 bits")
        for scalar in (self, other):
            if isinstance(scalar, NkiScalar) and scalar.is_comparison:
                raise LegalityError("scalar_comparison", "arithmetic on a comparison", "use arithmetic on the scalars")
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
        return self._compare(other) if isinstance(other, int | NkiScalar) else NotImplemented

    def __ne__(self, other: object) -> Any:
        return self._compare(other) if isinstance(other, int | NkiScalar) else NotImplemented

    __hash__ = object.__hash__

    def __bool__(self) -> bool:
        raise _host_use("an NkiScalar")

    def __index__(self) -> int:
        raise _host_use("an NkiScalar")

    __int__ = __index__

    def __float__(self) -> float:
        raise _host_use("an NkiScalar")

    def __repr__(self) -> str:
        return f"NkiScalar({self.dtype})"


def _unsupported(symbol: str) -> Any:
    def operator(self: NkiScalar, *_: Any) -> Any:
        raise LegalityError(
            "scalar_operator", f"the operator {symbol} on an NkiScalar", "scalars have +, - and *; use tiles for others"
        )

    return operator


for _name, _symbol in {
    "floordiv": "//", "rfloordiv": "//", "truediv": "/", "rtruediv": "/", "mod": "%", "rmod": "%", "pow": "**",
    "rpow": "**", "lshift": "<<", "rlshift": "<<", "rshift": ">>", "rrshift": ">>", "and": "&", "rand": "&",
    "or": "|", "ror": "|", "xor": "^", "rxor": "^", "invert": "~", "abs": "abs", "matmul": "@",
}.items():  # fmt: skip
    setattr(NkiScalar, f"__{_name}__", _unsupported(_symbol))


class VirtualRegister:
    """A 32-bit register of a sequencer, written by register_move and register_load."""

    __slots__ = ("frozen", "ref")

    def __init__(self, ref: ScalarRef, frozen: bool = False) -> None:
        _require_made(ref)
        self.ref, self.frozen = ref, frozen

    def __bool__(self) -> bool:
        raise _host_use("a VirtualRegister")

    def __index__(self) -> int:
        raise _host_use("a VirtualRegister")

    __int__ = __index__

    def __float__(self) -> float:
        raise _host_use("a VirtualRegister")

    def _arithmetic(self, *_: Any) -> Any:
        raise LegalityError(
            "register_arithmetic", "arithmetic on a VirtualRegister", "load an NkiScalar with nisa.scalar_load"
        )

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __neg__ = _arithmetic
    __floordiv__ = __mod__ = __truediv__ = __lt__ = __le__ = __gt__ = __ge__ = _arithmetic

    def __repr__(self) -> str:
        return "VirtualRegister(frozen)" if self.frozen else "VirtualRegister()"


class HostControlFlow(LegalityError, TypeError):
    """A run-time scalar used as a Python value; the documented exception type is TypeError."""


def _host_use(kind: str) -> HostControlFlow:
    return HostControlFlow(
        "host_control_flow",
        f"{kind} as a Python value: it has none while the kernel is built",
        "loop with nl.fori_loop or nl.while_loop; address with scalar_offset, select or nl.ds",
    )


def combine(terms: list[tuple[Any, int]]) -> NkiScalar:
    """The recorded sum of scalar * factor."""
    total = None
    for scalar, factor in terms:
        term = scalar if factor == 1 else scalar * factor
        total = term if total is None else total + term
    return total  # type: ignore[return-value]


def _require_made(ref: object) -> None:
    if type(ref) is not ScalarRef:
        raise TypeError("run-time integers are made by nisa.scalar_load, nisa.register_alloc and compiled loops")


def _recorder() -> Any:
    from nkismith.verify.simulator.recorder import current

    return current()
