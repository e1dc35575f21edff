"""What leaves SBUF when tiles do not fit: decided as by a compiler that knows every later use.

Source: memory-hierarchy-overview (the compiler spills to HBM and reloads).
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from nkismith.verify.simulator.capacity.liveness import QUADRANTS, Liveness, Slice, quadrants_of
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.trace import Trace


@dataclass(frozen=True, slots=True)
class Spill:
    """A slice that leaves SBUF, or comes back, before an instruction. One that is still in HBM is just dropped."""

    before: int  # instruction id
    kind: str  # save, drop, reload
    buffer: int
    low: int
    high: int
    bytes: int  # moved, over all its partitions


def spills(trace: Trace, life: Liveness, slices: list[Slice], limit: int) -> tuple[Spill, ...]:
    """The spills that make `slices` fit `limit` bytes a partition: when full, what is needed last goes.

    Raises LegalityError `sbuf_overflow` if the tiles of one instruction or loop alone do not fit.
    """
    by_position: dict[int, list[int]] = defaultdict(list)
    for index, piece in enumerate(slices):
        for position in dict.fromkeys(p for p, _ in piece.uses):
            by_position[position].append(index)
    weight = [(piece.high - piece.low) * quadrants_of(trace.buffers[piece.buffer])[0].bit_count() for piece in slices]
    room = limit * QUADRANTS
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
                wanted = sum(weight[i] for i in needed) // QUADRANTS
                raise LegalityError(
                    "sbuf_overflow",
                    f"one instruction or loop needs {wanted:,} bytes a partition at once, SBUF has {limit:,}",
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
    return tuple(out)
