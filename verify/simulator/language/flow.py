"""Loops, program identity, ordering and printing of nki.language. Source: nki-loops, nki.language (NKI 0.7)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

from nkismith.verify.simulator.enums import MemoryRegion
from nkismith.verify.simulator.recorder import current
from nkismith.verify.simulator.tensor import DynamicSlice, NkiTensor, refuse

__all__ = [
    "affine_range", "device_print", "ds", "dynamic_range", "fori_loop", "is_hbm", "is_on_chip", "is_psum", "is_sbuf",
    "no_reorder", "num_programs", "program_id", "program_ndim", "sequential_range", "static_range", "while_loop",
]  # fmt: skip


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any], Any], step: int = 1) -> None:
    """A counted loop on the device: body_fun(i) is called once here and runs for lower, lower+step, ... < upper."""
    current().fori(lower, upper, body_fun, step)


def while_loop(init: Any, body_fun: Callable[[Any], Any]) -> None:
    """A loop on the device while the condition is non-zero; body_fun(condition) returns the next one."""
    current().while_(init, body_fun)


def dynamic_range(start: Any, stop: Any = None, step: int = 1) -> Iterator[Any]:
    """A counted loop on the device in the form that NKI 0.7 removed: the body of the Python loop is recorded once."""
    lower, upper = (0, start) if stop is None else (start, stop)
    with current().counted(lower, upper, step) as index:
        yield index


def no_reorder() -> AbstractContextManager[None]:
    """Keep program order for the instructions of a with-block."""
    return current().ordered()


def program_id(axis: int = 0) -> int:
    """Which core of the launch this program is."""
    _check_axis(axis)
    return current().core


def num_programs(axes: Any = 0) -> int:
    """How many cores the launch has."""
    for axis in axes if isinstance(axes, tuple | list) else (axes or 0,):
        _check_axis(axis)
    return current().lnc


def program_ndim() -> int:
    """Dimensions of the launch grid: 0 without one."""
    return 0 if current().lnc == 1 else 1


def _check_axis(axis: Any) -> None:
    if axis != 0:
        raise refuse("launch", f"axis {axis!r} of the launch grid", "a launch has one axis, 0: the cores")


def ds(start: Any, size: int) -> DynamicSlice:
    """`size` elements from `start`, an int or a run-time scalar."""
    return DynamicSlice(start, size)


def static_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """Python's range (deprecated name)."""
    return range(start) if stop is None else range(start, stop, step)


affine_range = sequential_range = static_range


def device_print(print_prefix: str, tensor: NkiTensor) -> None:
    """Print a prefix and the values of a tile in SBUF or HBM while the kernel executes."""
    if not isinstance(print_prefix, str):
        raise refuse("operand_type", f"device_print prefix of type {type(print_prefix).__name__}", "a constant string")
    if not isinstance(tensor, NkiTensor):
        raise refuse("operand_type", f"device_print of {type(tensor).__name__}", "a tensor in SBUF or HBM")
    recorder = current()
    recorder.check_live(tensor)
    recorder.emit("device_print", {"tensor": tensor.operand()}, {"prefix": print_prefix}, None)


def is_hbm(buffer: MemoryRegion) -> bool:
    """Is it a region of HBM?"""
    return buffer.space == "hbm"


def is_sbuf(buffer: MemoryRegion) -> bool:
    """Is it SBUF?"""
    return buffer.space == "sbuf"


def is_psum(buffer: MemoryRegion) -> bool:
    """Is it PSUM?"""
    return buffer.space == "psum"


def is_on_chip(buffer: MemoryRegion) -> bool:
    """Is it SBUF or PSUM?"""
    return buffer.space != "hbm"
