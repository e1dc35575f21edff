"""Loops, program identity and ordering of nki.language. Source: nki-loops, nki.language (NKI 0.7)."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from nkismith.verify.simulator.recorder import current
from nkismith.verify.simulator.tensor import DynamicSlice


def fori_loop(lower: Any, upper: Any, body_fun: Callable[[Any], Any], step: int = 1) -> None:
    """A counted loop on the device: body_fun(i) is called once here and runs for lower, lower+step, ... < upper."""
    current().fori(lower, upper, body_fun, step)


def while_loop(init: Any, body_fun: Callable[[Any], Any]) -> None:
    """A loop on the device while the condition is non-zero; body_fun(condition) returns the next one."""
    current().while_(init, body_fun)


def no_reorder() -> AbstractContextManager[None]:
    """Keep program order for the instructions of a with-block."""
    return current().ordered()


def program_id(axis: int = 0) -> int:
    """Which core of the launch this program is."""
    return current().core


def num_programs(axes: Any = 0) -> int:
    """How many cores the launch has."""
    return current().lnc


def program_ndim() -> int:
    """Dimensions of the launch grid: 0 without one."""
    return 0 if current().lnc == 1 else 1


def ds(start: Any, size: int) -> DynamicSlice:
    """`size` elements from `start`, an int or a run-time scalar."""
    return DynamicSlice(start, size)


def static_range(start: int, stop: int | None = None, step: int = 1) -> range:
    """Python's range (deprecated name)."""
    return range(start) if stop is None else range(start, stop, step)


affine_range = sequential_range = static_range
