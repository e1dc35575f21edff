"""What the schedule asks of memory: who touched a region before, and when a new tile finds room.

Tiles made anew in every Python iteration may be in flight together as long as SBUF or PSUM holds them: room is
granted in program order, at the time enough earlier tiles have been read for the last time.
"""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator

from nkismith.verify.simulator.capacity.liveness import QUADRANTS, Liveness, Slice, quadrants_of, share
from nkismith.verify.simulator.capacity.regions import Region
from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.hardware import PSUM_BYTES, Target
from nkismith.verify.simulator.instruction import define
from nkismith.verify.simulator.trace import Buffer, Program, Trace, walk

TRUE, ANTI, OUTPUT = 0, 1, 2  # read after write, write after read, write after write
_PRUNE = 48  # entries of one list before those that can no longer delay anything are dropped
_BUCKETS = 256  # parts of an HBM buffer that are looked up separately
_PIECES = 16  # different ranges of a slice from which it is looked up in parts, too


class Accesses:
    """Reads and writes of one storage that a later access may have to wait for."""

    __slots__ = ("reads", "writes")

    def __init__(self) -> None:
        self.writes: list[tuple[Region, int]] = []
        self.reads: list[tuple[Region, int, int]] = []  # region, step, lane

    def read(self, region: Region, step: int, lane: int, found: list[tuple[int, int]]) -> None:
        """Record a read and append (step, kind) of the writes it depends on."""
        for other, writer in self.writes:
            if other.overlaps(region):
                found.append((writer, TRUE))
        for i, (other, _, reader_lane) in enumerate(self.reads):
            if reader_lane == lane and other == region:  # an engine reads in order: the last read stands for all
                self.reads[i] = (region, step, lane)
                return
        self.reads.append((region, step, lane))

    def write(self, region: Region, step: int, found: list[tuple[int, int]], settled: Callable[[int], bool]) -> None:
        """Record a write and append (step, kind) of the accesses it depends on."""
        for other, writer in self.writes:
            if other.overlaps(region):
                found.append((writer, OUTPUT))
        for other, reader, _ in self.reads:
            if reader != step and other.overlaps(region):
                found.append((reader, ANTI))
        self.writes = [w for w in self.writes if not region.covers(w[0])]
        self.reads = [r for r in self.reads if r[1] == step or not region.covers(r[0])]
        self.writes.append((region, step))
        if len(self.writes) > _PRUNE:
            self.writes = [w for w in self.writes if not settled(w[1])]
        if len(self.reads) > _PRUNE:
            self.reads = [r for r in self.reads if not settled(r[1])]


class Room:
    """Space of a memory by the time it becomes free: a claim takes the earliest."""

    def __init__(self, size: int) -> None:
        self._free: list[tuple[float, int, int]] = [(0.0, -1, size)]  # (time, step that frees it, bytes)

    def claim(self, size: int) -> tuple[float, int] | None:
        """(time, step that makes the last of the room), or None if not enough is known to become free."""
        taken: list[tuple[float, int, int]] = []
        got = 0
        while got < size and self._free:
            taken.append(heapq.heappop(self._free))
            got += taken[-1][2]
        if got < size:
            for entry in taken:
                heapq.heappush(self._free, entry)
            return None
        time, step, _ = taken[-1]
        if got > size:
            heapq.heappush(self._free, (time, step, got - size))
        return time, step

    def release(self, time: float, step: int, size: int) -> None:
        """`size` bytes are free from `time` on."""
        heapq.heappush(self._free, (time, step, size))


class Storage:
    """Trackers and room of one core's memories."""

    def __init__(self, trace: Trace, program: Program, target: Target, life: Liveness) -> None:
        self.trace = trace
        self.slices: list[Slice] = [*life.slices("sbuf"), *life.slices("psum")]
        self.remaining = [len({p for p, _ in s.uses}) for s in self.slices]
        self.claimed = [False] * len(self.slices)
        self.last: list[tuple[float, int]] = [(0.0, -1)] * len(self.slices)  # last access: time, step
        self._accesses: list[dict[int, Accesses] | None] = [None] * len(self.slices)
        self._lows: dict[int, tuple[list[int], list[int]]] = {}
        for index, piece in enumerate(self.slices):
            lows, ids = self._lows.setdefault(piece.buffer, ([], []))
            lows.append(piece.low)
            ids.append(index)
        self._placed = {"sbuf": Accesses(), "psum": Accesses()}  # what the author placed, by physical address
        self._hbm: dict[int, dict[int, Accesses]] = {i: defaultdict(Accesses) for i in _read_and_written(program)}
        self._size = [self._weight(s) for s in self.slices]
        self._room = {
            "sbuf": Room(target.sbuf_usable_bytes * QUADRANTS - self._reserved("sbuf")),
            "psum": Room(PSUM_BYTES * QUADRANTS - self._reserved("psum")),
        }
        self.loop_slices: dict[int, list[int]] = defaultdict(list)
        for index, piece in enumerate(self.slices):
            for position in {p for p, _ in piece.uses}:
                if position in life.loops:
                    self.loop_slices[position].append(index)

    def _weight(self, piece: Slice) -> int:
        buffer = self.trace.buffers[piece.buffer]
        return share(buffer, piece.high - piece.low) * quadrants_of(buffer)[0].bit_count()

    def _reserved(self, space: str) -> int:
        ranges = sorted(
            (b.address[1], b.address[1] + s.high)
            for s in self.slices
            if (b := self.trace.buffers[s.buffer]).space == space and b.address is not None
        )
        total = reach = 0
        for low, high in ranges:
            total += max(0, high - max(low, reach))
            reach = max(reach, high)
        return total * QUADRANTS

    def slice_of(self, buffer: Buffer, low: int) -> int:
        """The slice of an on-chip buffer that holds a byte."""
        lows, ids = self._lows[buffer.id]
        return ids[0] if len(ids) == 1 else ids[bisect_right(lows, low) - 1]

    def trackers(self, buffer: Buffer, region: Region, piece: int) -> Iterator[tuple[Accesses, Region]]:
        """What to ask for dependencies of an access, and the region in its coordinates."""
        if buffer.space == "hbm":
            parts = self._hbm.get(buffer.id)
            if parts is not None:
                step = max(1, buffer.free * ITEMSIZE[buffer.dtype] // _BUCKETS)
                for part in range(region.low // step, (region.high - 1) // step + 1):
                    yield parts[part], region
        elif buffer.address is not None:
            partition, offset = buffer.address[0], buffer.address[1]
            start, stop, low, high, stride, run = region
            yield (
                self._placed[buffer.space],
                Region(start + partition, stop + partition, low + offset, high + offset, stride, run),
            )
        else:
            held = self._accesses[piece]
            if held is None:
                held = self._accesses[piece] = defaultdict(Accesses)
            whole = self.slices[piece]
            if whole.pieces <= _PIECES:
                yield held[0], region
                return
            step = max(1, (whole.high - whole.low) // _BUCKETS)
            for part in range((region.low - whole.low) // step, (region.high - 1 - whole.low) // step + 1):
                yield held[part], region

    def claim(self, piece: int) -> tuple[float, int] | None:
        """Make room for a slice: (time, step that frees it), or None if that is not known yet."""
        buffer = self.trace.buffers[self.slices[piece].buffer]
        granted = (0.0, -1) if buffer.address is not None else self._room[buffer.space].claim(self._size[piece])
        if granted is not None:
            self.claimed[piece] = True
        return granted

    def release(self, piece: int) -> None:
        """The slice has been accessed for the last time (until a reload)."""
        buffer = self.trace.buffers[self.slices[piece].buffer]
        if self.claimed[piece] and buffer.address is None:
            self._room[buffer.space].release(*self.last[piece], self._size[piece])
        self.claimed[piece] = False
        self._accesses[piece] = None

    def used(self, piece: int, times: int) -> None:
        """So many of the accesses of a slice are placed; after the last one its room is free."""
        self.remaining[piece] -= times
        if self.remaining[piece] <= 0:
            self.release(piece)

    def touched(self, piece: int, time: float, step: int) -> None:
        """A scheduled access of a slice ended at `time`."""
        if time > self.last[piece][0]:
            self.last[piece] = (time, step)


def _read_and_written(program: Program) -> set[int]:
    """Buffers in HBM whose order of accesses matters: inputs that are only read and outputs that are only written
    never wait."""
    reads: set[int] = set()
    writes: set[int] = set()
    for instr in walk(program.body):
        written = define(instr.op).writes
        for name, operand in instr.operands.items():
            if operand.partitions == 0:
                (writes if name in written else reads).add(operand.buffer)
        if instr.op == "core_barrier":
            both = {o.buffer for o in instr.operands.values()}
            reads |= both
            writes |= both
    return reads & writes
