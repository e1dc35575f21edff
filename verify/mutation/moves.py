"""Mistakes in where the operands of one recorded instruction lie: slices, regions, tiles, run-time addresses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from nkismith.verify.mutation.mutant import Apply, Edit, Kind, Scene, is_read, look
from nkismith.verify.simulator.hardware import QUADRANT
from nkismith.verify.simulator.instruction import define
from nkismith.verify.simulator.trace import Instr, Operand


def moves(instr: Instr, scene: Scene) -> Iterator[Edit]:
    """Every mistake of this sort that could be made in an instruction like this one."""
    definition = define(instr.op)
    for name in instr.operands:
        yield from _shifts(instr, name)
        yield from _slots(instr, name)
        if is_read(definition, name) and scene.buffer(instr, name).space != "hbm":
            yield from _stale(instr, name, scene)
    yield from _shrinks(instr)


def _moved(name: str, changes: Callable[[Operand], list[Operand]]) -> Apply:
    """The first of several changes of an operand that the hardware would take."""

    def apply(instr: Instr, scene: Scene, before: Instr | None) -> Instr:
        if name in instr.operands:
            for operand in changes(instr.operands[name]):
                moved = replace(instr, operands={**instr.operands, name: operand})
                if scene.legal(moved):
                    return moved
        return instr

    return apply


def _shifts(instr: Instr, name: str) -> Iterator[Edit]:
    operand = instr.operands[name]
    yield Edit(Kind.SHIFT, f"{instr.op}: {name} lies one element further", _moved(name, _beside))
    if operand.partitions:
        yield Edit(Kind.SHIFT, f"{instr.op}: {name} lies some partitions further", _moved(name, _below))
    if len(operand.pattern) > 1:
        yield Edit(Kind.SHIFT, f"{instr.op}: {name} lies one row of its pattern further", _moved(name, _next_row))


def _beside(operand: Operand) -> list[Operand]:
    return [operand._replace(offset=operand.offset + by) for by in (1, -1)]


def _next_row(operand: Operand) -> list[Operand]:
    stride = next((s for s, count in operand.pattern[:-1] if s and count > 1), operand.pattern[0][0])
    return [operand._replace(offset=operand.offset + by) for by in (stride, -stride)]


def _below(operand: Operand) -> list[Operand]:
    steps = (1, -1, QUADRANT, -QUADRANT, 2 * QUADRANT)
    return [operand._replace(start=operand.start + by) for by in steps if operand.start + by >= 0]


def _shrinks(instr: Instr) -> Iterator[Edit]:
    """One element less on the last axis or one row less on the first: in one operand, or in all that have as many."""
    for axis, what in ((-1, "element"), (0, "row")):
        extents = {name: operand.shape[axis] for name, operand in instr.operands.items()}
        groups = [[name] for name in extents]
        for extent in sorted(set(extents.values())):
            groups.append([name for name in extents if extents[name] == extent])
        seen: list[list[str]] = []
        for names in groups:
            if names not in seen:
                seen.append(names)
                text = f"{instr.op}: {' and '.join(names)} without the last {what}"
                yield Edit(Kind.SHRINK, text, _shrink(names, axis))


def _shrink(names: list[str], axis: int) -> Apply:
    def apply(instr: Instr, scene: Scene, before: Instr | None) -> Instr:
        if any(name not in instr.operands or instr.operands[name].shape[axis] < 2 for name in names):
            return instr
        return replace(instr, operands=instr.operands | {n: _shorter(instr.operands[n], axis) for n in names})

    return apply


def _shorter(operand: Operand, axis: int) -> Operand:
    if axis == 0 and operand.partitions:
        return operand._replace(partitions=operand.partitions - 1)
    pattern = list(operand.pattern)
    stride, count = pattern[axis]
    pattern[axis] = (stride, count - 1)
    return operand._replace(pattern=tuple(pattern))


def _slots(instr: Instr, name: str) -> Iterator[Edit]:
    if instr.operands[name].dynamic is None:
        return
    yield Edit(Kind.SLOT, f"{instr.op}: {name} without its run-time address", _moved(name, _static))
    yield Edit(Kind.SLOT, f"{instr.op}: the run-time address of {name} is one more", _moved(name, _next_slot))
    yield Edit(Kind.SLOT, f"{instr.op}: the run-time address of {name} counts wider steps", _moved(name, _wider))


def _static(operand: Operand) -> list[Operand]:
    return [operand._replace(dynamic=None)]


def _next_slot(operand: Operand) -> list[Operand]:
    return [operand._replace(offset=operand.offset + operand.dynamic.stride)] if operand.dynamic else []


def _wider(operand: Operand) -> list[Operand]:
    term = operand.dynamic
    return [operand._replace(dynamic=term._replace(stride=term.stride + 1))] if term and term.stride else []


def _stale(instr: Instr, name: str, scene: Scene) -> Iterator[Edit]:
    yield Edit(Kind.STALE, f"{instr.op}: {name} is the tile of the iteration before", _previous(name))
    own = scene.buffer(instr, name)
    lines = [b.line for b in scene.alike[look(own)] if b.id < own.id and b.line != own.line]
    for line in dict.fromkeys(reversed(lines[-8:])):
        yield Edit(Kind.STALE, f"{instr.op}: {name} is the tile made in line {line}", _other_tile(name, line))


def _previous(name: str) -> Apply:
    def apply(instr: Instr, scene: Scene, before: Instr | None) -> Instr:
        if before is None or name not in before.operands or name not in instr.operands:
            return instr
        old, new = instr.operands[name], before.operands[name]
        if old.buffer == new.buffer or (old.shape, old.dtype) != (new.shape, new.dtype):
            return instr
        return replace(instr, operands={**instr.operands, name: new})

    return apply


def _other_tile(name: str, line: int) -> Apply:
    def apply(instr: Instr, scene: Scene, before: Instr | None) -> Instr:
        if name not in instr.operands:
            return instr
        own = scene.buffer(instr, name)
        others = [b.id for b in scene.alike[look(own)] if b.line == line and b.id < own.id]
        if not others:
            return instr
        return replace(instr, operands={**instr.operands, name: instr.operands[name]._replace(buffer=others[-1])})

    return apply
