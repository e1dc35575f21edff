"""Traces of the kernels written in these tests."""

from __future__ import annotations

from collections.abc import Callable

from nkismith.verify.simulator.kernel import TensorType, record
from nkismith.verify.simulator.trace import Trace


def trace(kernel: Callable, *shapes: tuple, target: str = "trn2", lnc: int = 1, **options: object) -> Trace:
    """Record `kernel` on tensors given as (shape, dtype)."""
    arguments = tuple(TensorType(shape, dtype) for shape, dtype in shapes)
    return record(kernel, arguments, options, target=target, lnc=lnc)[0]
