"""Author-given addresses: alignment, reach, and tiles that overwrite each other's live data.

An automatic tile gets a legal place from the allocator. With `address=(partition, byte)` the author must keep the
rules. Two tiles, or two tensors in HBM, may share bytes one after the other; reading one after another has written over
it is a clash, and what the kernel returns is read at its end.
Source: nki-migration (PSUM starts on a bank), trainium2_arch (start partitions), nki.language.ndarray.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.hardware import PARTITIONS, PSUM_BANK_BYTES, PSUM_BYTES, QUADRANT, Target
from nkismith.verify.simulator.instruction import define
from nkismith.verify.simulator.trace import Buffer, Instr, Node, Operand, Program

Box = tuple[int, int, int, int]  # partitions [a, b) and bytes [c, d) of a memory


@dataclass(slots=True)
class _Tile:
    """A tile at a fixed address: where it lies, and which parts another tile has overwritten."""

    buffer: Buffer
    box: Box
    lost: list[tuple[Box, Instr]]


def check_addresses(
    buffers: tuple[Buffer, ...], program: Program, target: Target, outputs: tuple[Operand, ...] = ()
) -> None:
    """Check the fixed addresses of one core. Raises LegalityError."""
    tiles = {}
    for buffer in buffers:
        if buffer.address is None or buffer.core not in (-1, program.core):
            continue
        _check_place(buffer, target)
        tiles[buffer.id] = _Tile(buffer, _box(buffer), [])
    if len(tiles) > 1:
        _check_clashes(tiles, program, outputs)


def _box(buffer: Buffer) -> Box:
    assert buffer.address is not None
    if buffer.space == "hbm":
        (offset,) = buffer.address
        return (0, 1, offset, offset + buffer.free * ITEMSIZE[buffer.dtype])
    start, offset = buffer.address
    return (start, start + buffer.shape[0], offset, offset + buffer.free * ITEMSIZE[buffer.dtype])


def _check_place(buffer: Buffer, target: Target) -> None:
    if buffer.address is None or len(buffer.address) != (1 if buffer.space == "hbm" else 2):
        raise _refuse(
            "address", buffer, f"address {buffer.address}", "give (start partition, byte offset), or (offset,)"
        )
    if buffer.space == "hbm":
        return
    start, end, low, high = _box(buffer)
    size = PSUM_BYTES if buffer.space == "psum" else target.sbuf_usable_bytes
    if end > PARTITIONS or high > size:
        raise _refuse(
            "address",
            buffer,
            f"partitions {start}..{end - 1}, bytes {low}..{high - 1}",
            f"stay in {PARTITIONS} partitions of {size} bytes",
        )
    if start % QUADRANT:
        raise _refuse("start_partition", buffer, f"starts at partition {start}", "start at 0, 32, 64 or 96")
    if buffer.space == "psum" and low % PSUM_BANK_BYTES:
        raise _refuse("psum_bank", buffer, f"starts at byte {low}", f"start at a multiple of {PSUM_BANK_BYTES}")


def _check_clashes(tiles: dict[int, _Tile], program: Program, outputs: tuple[Operand, ...]) -> None:
    sharing: dict[int, list[_Tile]] = {}
    for id_, tile in tiles.items():
        others = [
            t
            for t in tiles.values()
            if t is not tile and t.buffer.space == tile.buffer.space and _meet(t.box, tile.box)
        ]
        if others:
            sharing[id_] = others
    if not sharing:
        return
    for instr in _unrolled(program.body):
        definition = define(instr.op)
        for name, operand in instr.operands.items():
            if operand.buffer in sharing and (
                name in definition.reads or name.rstrip("0123456789") in definition.reads
            ):
                _check_read(tiles[operand.buffer], operand, instr)
        for name in definition.writes:
            written = instr.operands.get(name)
            if written is not None and written.buffer in sharing:
                _note_write(tiles[written.buffer], sharing[written.buffer], written, instr)
    for operand in outputs:
        if operand.buffer in sharing:
            _check_read(tiles[operand.buffer], operand, None)


def _unrolled(body: list[Node]) -> Iterator[Instr]:
    """Program order with every loop body twice, so that the second pass sees what the first left behind."""
    for node in body:
        if isinstance(node, Instr):
            yield node
        else:
            for _ in range(2 if hasattr(node, "id") else 1):
                yield from _unrolled(node.body)


def _region(tile: _Tile, operand: Operand) -> Box:
    size = ITEMSIZE[operand.dtype]
    low = high = operand.offset
    for stride, extent in operand.pattern:
        reach = stride * (extent - 1)
        low, high = low + min(reach, 0), high + max(reach, 0)
    if operand.dynamic is not None:
        low, high = 0, tile.buffer.free * ITEMSIZE[tile.buffer.dtype] // size - 1
    start, _, offset, _ = tile.box
    first = start + operand.start
    return (first, first + (operand.partitions or 1), offset + low * size, offset + (high + 1) * size)


def _check_read(tile: _Tile, operand: Operand, instr: Instr | None) -> None:
    """`instr` is None for the end of the kernel, which returns the tensor."""
    region = _region(tile, operand)
    for lost, writer in tile.lost:
        if _meet(lost, region):
            reader = instr.op if instr else "the caller"
            raise LegalityError(
                "address_clash",
                f"{reader} reads {tile.buffer.name!r} (line {tile.buffer.line}) where line {writer.line} has written "
                "another tile that was given the same address",
                "move one of the tiles, or read before the other is written",
                instr.line if instr else writer.line,
            )


def _note_write(tile: _Tile, others: list[_Tile], operand: Operand, instr: Instr) -> None:
    region = _region(tile, operand)
    if operand.dynamic is None and operand.free * ITEMSIZE[operand.dtype] == region[3] - region[2]:  # nothing left out
        tile.lost = [(rest, by) for box, by in tile.lost for rest in _without(box, region)]
    for other in others:
        common = _meet(other.box, region)
        if common:
            other.lost.append((common, instr))


def _meet(a: Box, b: Box) -> Box | None:
    box = (max(a[0], b[0]), min(a[1], b[1]), max(a[2], b[2]), min(a[3], b[3]))
    return box if box[0] < box[1] and box[2] < box[3] else None


def _without(box: Box, region: Box) -> list[Box]:
    """What is left of a box after a region is written: up to four boxes."""
    common = _meet(box, region)
    if common is None:
        return [box]
    top, bottom, left, right = common
    rest = [(box[0], top, box[2], box[3]), (bottom, box[1], box[2], box[3])]
    rest += [(top, bottom, box[2], left), (top, bottom, right, box[3])]
    return [b for b in rest if b[0] < b[1] and b[2] < b[3]]


def _refuse(rule: str, buffer: Buffer, what: str, fix: str) -> LegalityError:
    return LegalityError(rule, f"tile {buffer.name!r} of shape {buffer.shape} {buffer.dtype}: {what}", fix, buffer.line)
