"""When each on-chip tile is live, and how much room it takes.

A buffer is split where no instruction reaches across (the tiles of a list, the slices of a big tile), and each slice
lives from its first to its last access. Everything that a compiled loop touches lives for the whole loop, because
its body is emitted once. Sources: memory-hierarchy-overview (partitions), nki-loops (storage of loop bodies),
migration guide (PSUM banks).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from nkismith.verify.simulator.capacity.regions import region
from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.hardware import PARTITIONS, PSUM_BANK_BYTES, QUADRANT
from nkismith.verify.simulator.instruction import define
from nkismith.verify.simulator.trace import Buffer, Instr, Loop, Node, Operand, Program, Trace, While

QUADRANTS = PARTITIONS // QUADRANT  # tiles start at a multiple of a quadrant, so capacity is kept for each


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


def share(buffer: Buffer, bytes_: int) -> int:
    """Bytes a partition that a slice takes: in PSUM a tile never straddles a bank, and larger ones take whole banks."""
    if buffer.space != "psum":
        return bytes_
    if bytes_ > PSUM_BANK_BYTES:
        return -(-bytes_ // PSUM_BANK_BYTES) * PSUM_BANK_BYTES
    return PSUM_BANK_BYTES // (PSUM_BANK_BYTES // bytes_)


def quadrants_of(buffer: Buffer) -> list[int]:
    """Bit masks of the quadrants a buffer may occupy (one choice if it is wide or the author placed it)."""
    partitions = buffer.shape[0]
    if buffer.address is not None:
        start = buffer.address[0]
        return [sum(1 << q for q in range(start // QUADRANT, (start + partitions - 1) // QUADRANT + 1))]
    if partitions > 2 * QUADRANT:
        return [0b1111]
    return [0b0011, 0b1100] if partitions > QUADRANT else [1 << q for q in range(QUADRANTS)]
