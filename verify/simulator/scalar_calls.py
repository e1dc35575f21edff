"""nisa.scalar_load and scalar_store: the calls that return or take an NkiScalar. Source: nki-scalar (NKI 0.7)."""

from __future__ import annotations

from nkismith.verify.simulator.recorder import current
from nkismith.verify.simulator.scalars import NkiScalar
from nkismith.verify.simulator.tensor import NkiTensor, refuse


def scalar_load(src: NkiTensor) -> NkiScalar:
    """Read a 1x1 tile of int32 or int64 in SBUF or HBM into a scalar."""
    if src.dtype not in ("int32", "int64"):
        raise refuse("scalar_width", f"scalar_load of {src.dtype}", "load int32 or int64 (view unsigned as signed)")
    recorder = current()
    recorder.check_live(src)
    return recorder.scalar("scalar_load", src.dtype, {"src": src.operand()})


def scalar_store(dst: NkiTensor, value: NkiScalar) -> None:
    """Write a scalar into a 1x1 tile of its width."""
    if not isinstance(value, NkiScalar):
        raise refuse("scalar_value", f"scalar_store of {type(value).__name__}", "write constants with nisa.memset")
    if dst.dtype != value.dtype:
        raise refuse("scalar_width", f"a {value.dtype} scalar into {dst.dtype}", "use a tile of the scalar's width")
    current().emit("scalar_store", {"dst": dst.operand()}, {"value": value.ref}, None)
