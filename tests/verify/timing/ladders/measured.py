"""Published measurements, and how each is modelled. docs/timing.md says where each comes from.

All are modelled as trn2 at LNC 1, also those of the fused Mamba tutorial, which does not name its chip.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import nki.isa as nisa
import nki.language as nl

from nkismith.verify.timing import Profile, model
from tests.verify.timing.ladders import mamba, matmul
from tests.verify.timing.recorded import trace


@dataclass(frozen=True)
class Point:
    """One measurement: `us` microseconds of `kernel` on tensors of `shapes`."""

    name: str
    us: float
    kernel: Callable
    shapes: tuple[tuple[int, ...], ...]
    dtype: str
    options: dict[str, int] = field(default_factory=dict)

    def profile(self) -> Profile:
        """The modelled profile; what does not fit SBUF spills, as it did for the tutorial."""
        recorded = trace(self.kernel, *((s, self.dtype) for s in self.shapes), **self.options)
        return model(recorded, capacity="spill").profile


def rows(x, count):
    """`count` loads of 128 rows each, one after another."""
    for i in range(count):
        nisa.dma_copy(nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf), x[i * 128 : (i + 1) * 128])


def chain(a, b, count):
    """`count` matmuls of the same operands, back to back."""
    left, right = matmul.loaded(a), matmul.loaded(b)
    sums = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
    for _ in range(count):
        nisa.nc_matmul(sums, left, right)
    matmul.finish(nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.shared_hbm), slice(0, 128), slice(0, 512), sums)


def at_rate(name: str, row_bytes: int, gb_s: float, count: int = 400) -> Point:
    """Loads of 128 rows of `row_bytes` at `gb_s` in all."""
    us = count * 128 * row_bytes / gb_s / 1e3
    return Point(name, us, rows, ((count * 128, row_bytes // 2),), "bfloat16", options={"count": count})


SQUARE = ((4096, 4096), (4096, 4096))
TALL = ((8192, 4096), (8192, 8192))


def scan_shapes(channels: int, length: int) -> tuple[tuple[int, ...], ...]:
    return (channels, length), (channels, length), (channels, 16), (16, length), (16, length)


MATMUL = (
    Point("4096^3 bf16, naive", 8600, matmul.naive, SQUARE, "bfloat16"),
    Point("4096^3 bf16, blocked", 2450, matmul.blocked, SQUARE, "bfloat16"),
    Point("4096^3 bf16, loads of long rows", 1800, matmul.in_rows, SQUARE, "bfloat16"),
)
MATMUL_FP32 = (
    Point("4096x8192x8192 fp32, naive", 39890, matmul.naive, TALL, "float32"),
    Point("4096x8192x8192 fp32, all blocked", 28300, matmul.in_rows, TALL, "float32"),
    Point("4096x8192x8192 fp32, loads hoisted", 28200, matmul.hoisted, TALL, "float32"),
)
RATES = (
    at_rate("rows of 1 KiB at 259 GB/s", 1024, 259.0),
    at_rate("rows of 2 KiB at 245.8 GB/s", 2048, 245.8),
    at_rate("rows of 4 KiB at 354 GB/s", 4096, 354.0),
    Point(
        "2048 matmuls at 77.2 TFLOP/s",
        2048 * 2 * 128 * 128 * 512 / 77.2e6,
        chain,
        ((128, 128), (128, 512)),
        "bfloat16",
        options={"count": 2048},
    ),
)
MAMBA = (
    Point("fused Mamba, states outside", 2340, mamba.states_outside, scan_shapes(4096, 512), "float32"),
    Point("fused Mamba, states inside", 1610, mamba.states_inside, scan_shapes(4096, 512), "float32"),
)
# An eighth of the channels, and of the published time: channels are independent.
MAMBA_LONG = (
    Point("fused Mamba, 8192 positions at once", 53330 / 8, mamba.states_inside, scan_shapes(512, 8192), "float32"),
    Point("fused Mamba, 8192 positions in pieces", 27800 / 8, mamba.in_pieces, scan_shapes(512, 8192), "float32"),
)
MAMBA_SCALE = tuple(
    Point(f"fused Mamba, {n} positions in pieces", ms * 1000 / 8, mamba.in_pieces, scan_shapes(512, n), "float32")
    for n, ms in ((1024, 3.3), (2048, 6.6), (4096, 13.3))
)
POINTS = (*MATMUL, *RATES, *MAMBA, *MAMBA_LONG, *MAMBA_SCALE)
