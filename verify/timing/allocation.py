"""What SBUF and PSUM a trace needs: liveness, a linear scan, and what has to spill.

A buffer is split where no instruction reaches across (the tiles of a list, the slices of a big tile), and each slice
lives from its first to its last access. Everything that a compiled loop touches lives for the whole loop, because
its body is emitted once. Sources: NKI 0.7 nki.compiler (linear scan, nki_alloc_fallback), memory-hierarchy-overview
(spills), nki-loops (storage of loop bodies), migration guide (PSUM banks).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.hardware import PARTITIONS, PSUM_BANK_BYTES, PSUM_BYTES, QUADRANT, target
from nkismith.verify.simulator.instruction import define
from nkismith.verify.simulator.trace import Buffer, Instr, Loop, Node, Operand, Program, Trace, While
from nkismith.verify.timing.regions import region

LANES = PARTITIONS // QUADRANT  # start partitions are multiples of a quadrant, so capacity is kept per quadrant


@dataclass(slots=True)
class Slice:
    """A part of an on-chip buffer that no instruction's access crosses: bytes low .. high-1 of each partition."""

    buffer: int
    low: int
    high: int
    first: int = 0  # position of its first and last access in program order
    last: int = 0
    uses: list[tuple[int, bool]] = field(default_factory=list)  # (position, is it written there), in order
    pieces: int = 1  # different ranges that instructions access in it


@dataclass(frozen=True, slots=True)
class Address:
    """Where the linear scan put a slice. A fragmented memory can leave a slice without one."""

    buffer: int
    low: int  # first byte of the slice in its buffer's partition row
    bytes: int  # a partition
    partition: int
    offset: int  # bytes into the partition


@dataclass(frozen=True, slots=True)
class Spill:
    """A slice that leaves SBUF, or comes back, before an instruction. One that is still in HBM is just dropped."""

    before: int  # instruction id
    kind: str  # save, drop, reload
    buffer: int
    low: int
    high: int
    bytes: int  # moved, over all its partitions


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
    peaks = {"sbuf": 0, "psum": 0}
    spills, addresses, lives = [], [], []
    for program in trace.programs:
        life = Liveness(trace, program)
        placed: list[Address] = []
        spilled: list[Spill] = []
        for space, limit in (("sbuf", target(trace.target).sbuf_usable_bytes), ("psum", PSUM_BYTES)):
            slices = sorted(life.slices(space), key=lambda s: s.first)
            if space == "sbuf" and capacity == "spill":
                spilled = _spill(trace, life, slices, limit)
            if spilled and space == "sbuf":
                peaks[space] = limit
                continue
            scan = _LinearScan(trace, space, limit)
            for piece in slices:
                scan.place(piece)
            peaks[space] = max(peaks[space], scan.peak)
            placed += scan.addresses
        spills.append(tuple(spilled))
        addresses.append(tuple(placed))
        lives.append(life)
    return Allocation(peaks["sbuf"], peaks["psum"], tuple(spills), tuple(addresses), tuple(lives))


def share(buffer: Buffer, bytes_: int) -> int:
    """Bytes a partition that a slice takes: in PSUM a tile never straddles a bank, and larger ones take whole banks."""
    if buffer.space != "psum":
        return bytes_
    if bytes_ > PSUM_BANK_BYTES:
        return -(-bytes_ // PSUM_BANK_BYTES) * PSUM_BANK_BYTES
    return PSUM_BANK_BYTES // (PSUM_BANK_BYTES // bytes_)


class Liveness:
    """First and last access of every slice of a program's on-chip buffers, by position in program order."""

    def __init__(self, trace: Trace, program: Program) -> None:
        self.trace = trace
        self.ids: list[int] = []  # position -> instruction id
        self.loops: dict[int, int] = {}  # outermost compiled loops: first position -> last position
        self._ranges: dict[int, dict[tuple[int, int], list]] = defaultdict(dict)
        for position, instr in self._positions(program.body):
            definition = define(instr.op)
            for name, operand in instr.operands.items():
                written = name in definition.writes
                self._touch(operand, position, written)
                if operand.dynamic is not None and operand.dynamic.index is not None:
                    self._touch(operand.dynamic.index, position, False)

    def _positions(self, body: list[Node], in_loop: bool = False) -> Iterator[tuple[int, Instr]]:
        for node in body:
            if isinstance(node, Instr):
                self.ids.append(node.id)
                yield len(self.ids) - 1, node
            elif isinstance(node, Loop | While) and not in_loop:
                # Everything a loop touches lives from its first to its last position.
                start = len(self.ids)
                inside = [instr for _, instr in self._positions(node.body, in_loop=True)]
                if inside:
                    self.loops[start] = len(self.ids) - 1
                yield from ((start, instr) for instr in inside)
                yield from ((len(self.ids) - 1, instr) for instr in inside)
            else:
                yield from self._positions(node.body, in_loop)

    def _touch(self, operand: Operand, position: int, written: bool) -> None:
        buffer = self.trace.buffers[operand.buffer]
        if buffer.space == "hbm":
            return
        where = region(operand, buffer)
        uses = self._ranges[operand.buffer].setdefault((where.low, where.high), [])
        if not uses or uses[-1] != (position, written):
            uses.append((position, written))

    def slices(self, space: str) -> Iterator[Slice]:
        """The independent slices of the buffers in a memory."""
        for id_, ranges in self._ranges.items():
            buffer = self.trace.buffers[id_]
            if buffer.space != space:
                continue
            if buffer.address is not None:  # the author placed all of it
                ranges = {(0, buffer.free * ITEMSIZE[buffer.dtype]): [u for uses in ranges.values() for u in uses]}
            piece: Slice | None = None
            for (low, high), uses in sorted(ranges.items(), key=lambda item: item[0]):
                if piece is not None and low < piece.high:
                    piece.high = max(piece.high, high)
                    piece.uses += uses
                    piece.pieces += 1
                    continue
                if piece is not None:
                    yield _finished(piece)
                piece = Slice(id_, low, high, uses=list(uses))
            if piece is not None:
                yield _finished(piece)


def _finished(piece: Slice) -> Slice:
    piece.uses.sort()
    piece.first, piece.last = piece.uses[0][0], piece.uses[-1][0]
    return piece


def lanes_of(buffer: Buffer) -> list[int]:
    """Bit masks of the quadrants a buffer may occupy (one choice if it is wide or the author placed it)."""
    partitions = buffer.shape[0]
    if buffer.address is not None:
        start = buffer.address[0]
        return [sum(1 << q for q in range(start // QUADRANT, (start + partitions - 1) // QUADRANT + 1))]
    if partitions > 2 * QUADRANT:
        return [0b1111]
    return [0b0011, 0b1100] if partitions > QUADRANT else [1 << q for q in range(LANES)]


class _LinearScan:
    """First fit in program order. Legality is by the bytes that are live, addresses are best effort."""

    def __init__(self, trace: Trace, space: str, limit: int) -> None:
        self.trace, self.space, self.limit = trace, space, limit
        self.live = [0] * LANES
        self.peak = 0
        self.addresses: list[Address] = []
        self._ends: list[tuple[int, int, int, int, Slice]] = []  # (last position, serial, lanes, bytes, slice)
        self._taken: list[tuple[int, int, int, int]] = []  # (offset, end, lanes, serial) sorted by offset
        self._serial = 0

    def place(self, piece: Slice) -> None:
        """Make a slice live; slices whose last access lies before its first are gone."""
        buffer = self.trace.buffers[piece.buffer]
        while self._ends and self._ends[0][0] < piece.first:
            _, serial, mask, size, _ = heapq.heappop(self._ends)
            for q in range(LANES):
                self.live[q] -= size * (mask >> q & 1)
            self._taken = [t for t in self._taken if t[3] != serial]
        size = share(buffer, piece.high - piece.low)
        mask = min(lanes_of(buffer), key=lambda m: max(self.live[q] for q in range(LANES) if m >> q & 1))
        for q in range(LANES):
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
        fix = {
            "sbuf": "make tiles smaller, or make them inside the loop that uses them so that they die earlier",
            "psum": "copy finished tiles to SBUF before starting more, or reuse a tile: there are 8 banks of 2 KiB",
        }[self.space]
        return LegalityError(
            f"{self.space}_overflow",
            f"{buffer.name} needs {size:,} bytes a partition and would bring {self.space.upper()} to "
            f"{max(self.live):,} of {self.limit:,}; the largest live tiles are {names}",
            fix,
            buffer.line,
            self.trace.files[0],
        )


def _spill(trace: Trace, life: Liveness, slices: list[Slice], limit: int) -> list[Spill]:
    """Decide spills as a compiler with perfect knowledge would: when full, save what is needed last."""
    by_position: dict[int, list[int]] = defaultdict(list)
    for index, piece in enumerate(slices):
        for position in dict.fromkeys(p for p, _ in piece.uses):
            by_position[position].append(index)
    weight = [(piece.high - piece.low) * lanes_of(trace.buffers[piece.buffer])[0].bit_count() for piece in slices]
    room = limit * LANES
    resident: dict[int, None] = {}
    cursor = [0] * len(slices)  # next use
    dirty: set[int] = set()
    saved: set[int] = set()
    out: list[Spill] = []

    def event(kind: str, index: int, position: int) -> None:
        piece = slices[index]
        size = 0 if kind == "drop" else (piece.high - piece.low) * trace.buffers[piece.buffer].shape[0]
        out.append(Spill(life.ids[position], kind, piece.buffer, piece.low, piece.high, size))

    def next_use(index: int) -> int:
        uses = slices[index].uses
        return uses[cursor[index]][0] if cursor[index] < len(uses) else 1 << 60

    for position in sorted(by_position):
        needed = by_position[position]
        incoming = [i for i in needed if i not in resident]
        room -= sum(weight[i] for i in incoming)
        while room < 0:
            victims = [i for i in resident if i not in needed]
            if not victims:
                buffer = trace.buffers[slices[needed[0]].buffer]
                raise LegalityError(
                    "sbuf_overflow",
                    f"one instruction or loop needs {sum(weight[i] for i in needed) // LANES:,} bytes a partition at "
                    f"once, SBUF has {limit:,}",
                    "make its tiles smaller",
                    buffer.line,
                    trace.files[0],
                )
            victim = max(victims, key=next_use)
            event("save" if victim in dirty else "drop", victim, position)
            dirty.discard(victim)
            saved.add(victim)
            del resident[victim]
            room += weight[victim]
        for index in incoming:
            resident[index] = None
            if index in saved:
                event("reload", index, position)
        for index in needed:
            uses = slices[index].uses
            while cursor[index] < len(uses) and uses[cursor[index]][0] <= position:
                if uses[cursor[index]][1]:
                    dirty.add(index)
                cursor[index] += 1
            if cursor[index] == len(uses):
                del resident[index]
                room += weight[index]
    return out
