"""What SBUF and PSUM a trace needs: a linear scan over live slices, and refusal or spills where they do not fit.

Sources: NKI 0.7 nki.compiler (linear scan, nki_alloc_fallback), memory-hierarchy-overview (spills).
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

from nkismith.verify.simulator.capacity.liveness import QUADRANTS, Liveness, Slice, quadrants_of, share
from nkismith.verify.simulator.capacity.spilling import Spill, spills
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.hardware import PSUM_BANK_BYTES, PSUM_BYTES, QUADRANT, target
from nkismith.verify.simulator.trace import Buffer, Trace


@dataclass(frozen=True, slots=True)
class Address:
    """Where the linear scan put a slice. A fragmented memory can leave a slice without one."""

    buffer: int
    low: int  # first byte of the slice in its buffer's partition row
    bytes: int  # a partition
    partition: int
    offset: int  # bytes into the partition


@dataclass(frozen=True, slots=True)
class Allocation:
    """On-chip memory of the most demanding core. Peaks are bytes a partition; PSUM counts whole bank shares."""

    sbuf_peak_bytes: int
    psum_peak_bytes: int
    spills: tuple[tuple[Spill, ...], ...]  # per core
    addresses: tuple[tuple[Address, ...], ...]  # per core
    life: tuple[Liveness, ...] = field(repr=False)  # per core, for the schedule

    @property
    def spill_bytes(self) -> int:
        """HBM traffic of all spills."""
        return sum(s.bytes for core in self.spills for s in core)


def allocate(trace: Trace, *, capacity: str = "refuse") -> Allocation:
    """Place the on-chip buffers of every core.

    Raises LegalityError `sbuf_overflow` or `psum_overflow` when live slices do not fit. With capacity="spill", SBUF
    slices are saved to HBM instead (farthest next use first); PSUM has no way to HBM and still refuses.
    """
    sbuf_bytes = target(trace.target).sbuf_usable_bytes
    lives = tuple(Liveness(trace, program) for program in trace.programs)
    moved: list[tuple[Spill, ...]] = []
    addresses: list[tuple[Address, ...]] = []
    sbuf_peak = psum_peak = 0
    for life in lives:
        psum = _LinearScan(trace, "psum", PSUM_BYTES)
        psum.place_all(life)
        psum_peak = max(psum_peak, psum.peak)
        moved.append(spills(trace, life, [*life.slices("sbuf")], sbuf_bytes) if capacity == "spill" else ())
        if moved[-1]:
            sbuf_peak = sbuf_bytes
            addresses.append(tuple(psum.addresses))
            continue
        sbuf = _LinearScan(trace, "sbuf", sbuf_bytes)
        sbuf.place_all(life)
        sbuf_peak = max(sbuf_peak, sbuf.peak)
        addresses.append((*sbuf.addresses, *psum.addresses))
    return Allocation(sbuf_peak, psum_peak, tuple(moved), tuple(addresses), lives)


class _LinearScan:
    """First fit in program order. Legality is by the bytes that are live, addresses are best effort."""

    def __init__(self, trace: Trace, space: str, limit: int) -> None:
        self.trace, self.space, self.limit = trace, space, limit
        self.live = [0] * QUADRANTS
        self.peak = 0
        self.addresses: list[Address] = []
        self._ends: list[tuple[int, int, int, int, Slice]] = []  # (last position, serial, lanes, bytes, slice)
        self._taken: list[tuple[int, int, int, int]] = []  # (offset, end, lanes, serial) sorted by offset
        self._serial = 0

    def place_all(self, life: Liveness) -> None:
        """Place the slices of a core. Raises LegalityError at the first that does not fit."""
        for piece in sorted(life.slices(self.space), key=lambda s: s.first):
            self.place(piece)

    def place(self, piece: Slice) -> None:
        """Make a slice live; slices whose last access lies before its first are gone."""
        buffer = self.trace.buffers[piece.buffer]
        while self._ends and self._ends[0][0] < piece.first:
            _, serial, mask, size, _ = heapq.heappop(self._ends)
            for q in range(QUADRANTS):
                self.live[q] -= size * (mask >> q & 1)
            self._taken = [t for t in self._taken if t[3] != serial]
        size = share(buffer, piece.high - piece.low)
        mask = min(quadrants_of(buffer), key=lambda m: max(self.live[q] for q in range(QUADRANTS) if m >> q & 1))
        for q in range(QUADRANTS):
            self.live[q] += size * (mask >> q & 1)
        if max(self.live) > self.limit and buffer.address is None:
            raise self._overflow(piece, buffer, size)
        self.peak = min(max(self.peak, *self.live), self.limit)
        self._serial += 1
        heapq.heappush(self._ends, (piece.last, self._serial, mask, size, piece))
        self._assign(piece, buffer, mask, size)

    def _assign(self, piece: Slice, buffer: Buffer, mask: int, size: int) -> None:
        offset = buffer.address[1] if buffer.address is not None else self._first_fit(mask, size)
        if offset is None:
            return
        self._taken.append((offset, offset + size, mask, self._serial))
        self._taken.sort()
        partition = (
            buffer.address[0] if buffer.address is not None else (mask & -mask).bit_length() * QUADRANT - QUADRANT
        )
        self.addresses.append(Address(piece.buffer, piece.low, piece.high - piece.low, partition, offset))

    def _first_fit(self, mask: int, size: int) -> int | None:
        at = 0
        for offset, end, lanes, _ in self._taken:
            if lanes & mask == 0:
                continue
            if self._bank_free(at, size) + size <= offset:
                break
            at = max(at, end)
        at = self._bank_free(at, size)
        return at if at + size <= self.limit else None

    def _bank_free(self, at: int, size: int) -> int:
        """The first offset from `at` on where a PSUM tile does not straddle a bank."""
        if self.space != "psum":
            return at
        left = PSUM_BANK_BYTES - at % PSUM_BANK_BYTES
        return at if left >= size or left == PSUM_BANK_BYTES else at + left

    def _overflow(self, piece: Slice, buffer: Buffer, size: int) -> LegalityError:
        others = sorted((e for e in self._ends), key=lambda e: -e[3])[:3]
        names = ", ".join(
            f"{self.trace.buffers[s.buffer].name} (line {self.trace.buffers[s.buffer].line}, {b:,})"
            for _, _, _, b, s in others
        )
        beside = f"; the largest live tiles are {names}" if names else ""
        fix = {
            "sbuf": "make tiles smaller, or make them inside the loop that uses them so that they die earlier",
            "psum": "copy finished tiles to SBUF before starting more, or reuse a tile: there are 8 banks of 2 KiB",
        }[self.space]
        return LegalityError(
            "sbuf_overflow" if self.space == "sbuf" else "psum_overflow",
            f"{buffer.name} needs {size:,} bytes a partition and would bring {self.space.upper()} to "
            f"{max(self.live):,} of {self.limit:,}{beside}",
            fix,
            buffer.line,
            self.trace.files[0],
        )
