"""Where an operand lies: byte ranges of a buffer, exact for regular patterns.

A region is a partition range times a regular set of bytes in each partition (HBM: one row holds everything).
Two instructions depend on each other only if their regions share a byte. Addresses that are known only at run time
cover every position they could reach.
"""

from __future__ import annotations

from functools import lru_cache
from math import gcd
from typing import NamedTuple

from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.trace import Buffer, Operand


class Region(NamedTuple):
    """Partitions start .. stop-1; bytes low .. high-1 of each, of which `run` bytes every `stride` are touched."""

    start: int
    stop: int
    low: int
    high: int
    stride: int = 0  # 0: every byte of low .. high-1
    run: int = 0

    def overlaps(self, other: Region) -> bool:
        """Do both touch a byte? Exact for dense regions and for interleaved ones of one common stride."""
        if self.start >= other.stop or other.start >= self.stop or self.low >= other.high or other.low >= self.high:
            return False
        return not (self.stride or other.stride) or _interleaved(self, other)

    def covers(self, other: Region) -> bool:
        """Does this region touch every byte of the other one?"""
        return (
            not self.stride
            and self.start <= other.start
            and other.stop <= self.stop
            and self.low <= other.low
            and other.high <= self.high
        )


def _interleaved(a: Region, b: Region) -> bool:
    if not a.stride or not b.stride:
        dense, sparse = (a, b) if not a.stride else (b, a)
        phase = (max(dense.low, sparse.low) - sparse.low) % sparse.stride
        return phase < sparse.run or phase + dense.high - max(dense.low, sparse.low) > sparse.stride
    step = gcd(a.stride, b.stride)
    phase = (b.low - a.low) % step
    return phase < a.run or phase + b.run > step


def region(operand: Operand, buffer: Buffer, offset: int | None = None) -> Region:
    """The region of an operand. `offset` is what its run-time scalar adds, in elements, or None if unknown.

    A pattern with more than one sparse dimension becomes the dense range that holds it.
    """
    size = ITEMSIZE[operand.dtype]
    start, stop = (operand.start, operand.start + operand.partitions) if operand.partitions else (0, 1)
    first = operand.offset
    if operand.dynamic is not None:
        if operand.dynamic.kind != "scalar" or offset is None:
            return Region(start, stop, 0, buffer.free * ITEMSIZE[buffer.dtype])
        first += offset
    low, high, stride, run = _pattern(size, operand.pattern)
    return Region(start, stop, first * size + low, first * size + high, stride, run)


@lru_cache(maxsize=4096)
def _pattern(size: int, pattern: tuple[tuple[int, int], ...]) -> tuple[int, int, int, int]:
    """(lowest byte, highest + 1, stride, run) of a pattern over elements of `size` bytes, from its first element."""
    low = high = 0
    run, stride, span = size, 0, 0
    dense = True
    for step, count in sorted((abs(s) * size, n) for s, n in pattern if s and n > 1):
        high += step * (count - 1)
        if not stride and step <= run:
            run += step * (count - 1)
        elif not stride:
            stride, span = step, step * count
        elif step == span:
            span = step * count
        else:
            dense = False  # a second sparse dimension
    for step, count in pattern:
        if step < 0:
            low, high = low + step * size * (count - 1), high + step * size * (count - 1)
    return (low, high + size, stride, run) if stride and dense else (low, high + size, 0, 0)
