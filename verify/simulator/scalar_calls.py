"""The calls of nki.isa that make, move and store run-time scalars and registers.

Source: nki.isa.scalar_load, scalar_store, register_alloc, register_move, register_load, register_store (NKI 0.7).
"""

from __future__ import annotations

from typing import Any

from nkismith.verify.simulator.recorder import Recorder, current
from nkismith.verify.simulator.scalars import INT32_MIN, UINT32_MAX, NkiScalar, VirtualRegister
from nkismith.verify.simulator.tensor import NkiTensor, refuse


def scalar_load(src: NkiTensor) -> NkiScalar:
    """Read a 1x1 tile of int32 or int64 in SBUF or HBM into a scalar."""
    recorder = _live(src, "scalar_load: src")
    if src.dtype not in ("int32", "int64"):
        raise refuse("scalar_width", f"scalar_load of {src.dtype}", "load int32 or int64 (view unsigned as signed)")
    return recorder.scalar("scalar_load", src.dtype, {"src": src.operand()})


def scalar_store(dst: NkiTensor, value: NkiScalar) -> None:
    """Write a scalar into a 1x1 tile of its width."""
    recorder = _live(dst, "scalar_store: dst")
    if not isinstance(value, NkiScalar):
        raise refuse("operand_type", f"scalar_store of {type(value).__name__}", "write constants with nisa.memset")
    if value.is_comparison:
        raise refuse("scalar_comparison", "scalar_store of a comparison", "compare on tiles, with nisa.tensor_scalar")
    if dst.dtype != value.dtype:
        raise refuse("scalar_width", f"a {value.dtype} scalar into {dst.dtype}", "use a tile of the scalar's width")
    recorder.emit("scalar_store", {"dst": dst.operand()}, {"value": value.ref}, None)


def register_alloc(x: int | None = None) -> VirtualRegister:
    """A virtual register, with a value if `x` is given."""
    recorder = current()
    register = VirtualRegister(recorder.new_scalar())
    if x is not None:
        register_move(register, x)
    return register


def register_move(dst: VirtualRegister, src: int | VirtualRegister) -> None:
    """Set a register to a constant or to another register's value."""
    _writable(dst)
    if isinstance(src, VirtualRegister):
        value: Any = src.ref
    elif isinstance(src, bool | NkiTensor | NkiScalar) or not hasattr(src, "__index__"):
        raise refuse(
            "register_value", f"register_move from {type(src).__name__}",
            "a constant int or a register; load tiles with nisa.register_load",
        )  # fmt: skip
    else:
        value = int(src)
        if not INT32_MIN <= value <= UINT32_MAX:
            raise refuse("register_value", f"{value} in a 32-bit register", "stay in 32 bits")
    current().emit("register_move", {}, {"result": dst.ref, "src": value}, None)


def register_load(dst: VirtualRegister, src: NkiTensor) -> None:
    """Read a tensor of one element in SBUF or HBM into a register."""
    _writable(dst)
    _live(src, "register_load: src").emit("register_load", {"src": src.operand()}, {"result": dst.ref}, None)


def register_store(dst: NkiTensor, src: VirtualRegister) -> None:
    """Write a register into a tensor of one element in SBUF or HBM."""
    if not isinstance(src, VirtualRegister):
        raise refuse(
            "register_value", f"register_store of {type(src).__name__}", "store a register; scalars with scalar_store"
        )
    _live(dst, "register_store: dst").emit("register_store", {"dst": dst.operand()}, {"src": src.ref}, None)


def _live(tensor: Any, what: str) -> Recorder:
    if not isinstance(tensor, NkiTensor):
        raise refuse("operand_type", f"nisa.{what} is {type(tensor).__name__}, not a tensor", "pass a 1x1 tile")
    recorder = current()
    recorder.check_live(tensor)
    return recorder


def _writable(register: Any) -> None:
    if not isinstance(register, VirtualRegister):
        raise refuse("register_value", f"{type(register).__name__} as a register", "nisa.register_alloc() makes one")
    if register.frozen:
        raise refuse(
            "frozen_register", "a write to the induction register of a loop",
            "the loop alone counts; keep other state in a register of your own",
        )  # fmt: skip
