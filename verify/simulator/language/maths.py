"""Element-wise functions of nki.language: each emits one instruction, and each doubles as an operator of nki.isa.

Tiles of different shapes combine where extents of 1 in free dimensions can repeat; partitions never do.
Source: nki.language (NKI 0.7): rsqrt runs on GpSimdE, power takes two tiles, copy is exact and on VectorE.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nkismith.verify.simulator.enums import engine
from nkismith.verify.simulator.instruction import TABLE, NamedOperator
from nkismith.verify.simulator.language.create import sbuf_tile
from nkismith.verify.simulator.language.promotion import promoted
from nkismith.verify.simulator.operators import ACTIVATIONS, ALU
from nkismith.verify.simulator.scalars import NkiScalar, VirtualRegister
from nkismith.verify.simulator.tensor import NkiTensor, refuse


class Operator(NamedOperator):
    """An operator of nki.language: callable on tiles, and a value for the op parameters of nki.isa."""

    def __init__(self, name: str, call: Callable[..., Any] | None, doc: str) -> None:
        self.nki_op, self._call, self.__name__, self.__doc__ = name, call, name, doc

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._call is None:
            raise TypeError(f"nl.{self.nki_op} is an operator constant, not a function")
        return self._call(*args, **kwargs)

    def __repr__(self) -> str:
        return f"nl.{self.nki_op}"


def binary(name: str, x: Any, y: Any, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile x op y; at least one of x and y is a tile, the other a tile or a number."""
    op = OPERATORS[name]
    tiles = [v for v in (x, y) if isinstance(v, NkiTensor)]
    if not tiles:
        raise refuse("operand_type", f"nl.{name} of {type(x).__name__} and {type(y).__name__}", "one must be a tile")
    for value in (x, y):
        if not isinstance(value, NkiTensor | int | float) and not hasattr(value, "__float__"):
            raise refuse("operand_type", f"nl.{name}: {type(value).__name__}", "a tile or a number")
        if isinstance(value, NkiScalar | VirtualRegister):
            raise refuse("operand_type", f"nl.{name}: {type(value).__name__}", "store it in a tile first")
    if len(tiles) == 2:
        return _two_tiles(name, x, y, dtype)
    if name == "power":
        raise refuse("operator", "nl.power of a tile and a number", "nl.square, nl.sqrt, or fill a tile with nl.full")
    dst = sbuf_tile(tiles[0].shape, dtype or tiles[0].dtype)
    if isinstance(x, NkiTensor):
        TABLE["tensor_scalar"].call(dst, x, op, y)
    else:
        TABLE["tensor_scalar"].call(dst, y, op, x, reverse0=True)
    return dst


def _two_tiles(name: str, x: NkiTensor, y: NkiTensor, dtype: Any) -> NkiTensor:
    shape = common_shape(name, x.shape, y.shape)
    dst = sbuf_tile(shape, dtype or promoted(x.dtype, y.dtype))
    op = OPERATORS[name]
    if name != "power" and ALU[name].kind == "arithmetic":
        if _is_column(y, x) and y.dtype == "float32":
            TABLE["tensor_scalar"].call(dst, x, op, y)
            return dst
        if _is_column(x, y) and x.dtype == "float32":
            TABLE["tensor_scalar"].call(dst, y, op, x, reverse0=True)
            return dst
    TABLE["tensor_tensor"].call(dst, repeated(x, shape), repeated(y, shape), op)
    return dst


def _is_column(column: NkiTensor, tile: NkiTensor) -> bool:
    return column.shape[0] == tile.shape[0] and column.size == column.shape[0] and tile.size > column.size


def common_shape(name: str, a: tuple[int, ...], b: tuple[int, ...]) -> tuple[int, ...]:
    """The shape two tiles repeat to, free dimensions aligned at the last. Raises LegalityError if there is none."""
    free: list[int] = []
    for i in range(1, max(len(a), len(b))):
        m, n = (s[-i] if i < len(s) else 1 for s in (a, b))
        if m != n and 1 not in (m, n):
            break
        free.insert(0, max(m, n))
    else:
        if a[0] == b[0]:
            return (a[0], *free)
    raise refuse(
        "operand_shapes", f"nl.{name} of tiles of shape {a} and {b}",
        "equal partitions, and free extents that are equal or 1; nl.broadcast_to repeats partitions",
    )  # fmt: skip


def repeated(tile: NkiTensor, shape: tuple[int, ...]) -> NkiTensor:
    """A view with `shape`, extents of 1 in free dimensions repeated."""
    if tile.shape == shape:
        return tile
    view = tile
    while view.ndim < len(shape):
        view = view.expand_dim(1)
    for dim in range(1, len(shape)):
        if view.shape[dim] != shape[dim]:
            view = view.broadcast(dim, shape[dim])
    return view


def activated(name: str, x: NkiTensor, dtype: Any = None) -> NkiTensor:
    """A new SBUF tile with an activation function of ScalarE."""
    dst = sbuf_tile(x.shape, dtype or x.dtype)
    TABLE["activation"].call(dst, OPERATORS[name], x)
    return dst


def _rsqrt(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    dst = sbuf_tile(x.shape, dtype or x.dtype)
    TABLE["tensor_scalar"].call(dst, x, OPERATORS["rsqrt"], 0.0, engine=engine.gpsimd)
    return dst


def _reciprocal(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    dst = sbuf_tile(x.shape, dtype or x.dtype)
    TABLE["reciprocal"].call(dst, x)
    return dst


def _invert(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    return binary("bitwise_xor", x, -1, dtype)


def _copy(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    dst = sbuf_tile(x.shape, dtype or x.dtype)
    TABLE["tensor_copy"].call(dst, x, engine=engine.vector)
    return dst


def _sin(x: NkiTensor, dtype: Any = None) -> NkiTensor:
    from nkismith.verify.simulator.language.compose import sine

    return sine(x, 0.0, dtype)


def _binary(name: str) -> Callable[..., NkiTensor]:
    def call(x: Any, y: Any, dtype: Any = None) -> NkiTensor:
        return binary(name, x, y, dtype)

    return call


def _unary(name: str) -> Callable[..., NkiTensor]:
    def call(x: NkiTensor, dtype: Any = None) -> NkiTensor:
        return activated(name, x, dtype)

    return call


_OWN = {"rsqrt": _rsqrt, "reciprocal": _reciprocal, "invert": _invert, "copy": _copy, "sin": _sin}
_CONSTANTS = ("bypass", "prelu")  # operators of nki.isa only


def _operators() -> dict[str, Operator]:
    found = {}
    for name in (*ALU, *ACTIVATIONS):
        if name in found:
            continue
        call: Callable[..., Any] | None = _OWN.get(name)
        if call is None and name not in _CONSTANTS:
            call = _binary(name) if name in ALU and ALU[name].kind in ("arithmetic", "bitvec") else _unary(name)
        found[name] = Operator(name, call, f"{name}, element by element.")
    return found


OPERATORS: dict[str, Operator] = _operators()
