"""Mutants of a kernel's traces: mistakes in instructions, loops and the precision of tiles."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from nkismith.verify.mutation.edits import edits
from nkismith.verify.mutation.moves import moves
from nkismith.verify.mutation.mutant import (
    Edit,
    Kind,
    Mutant,
    Scene,
    Site,
    bodies,
    with_programs,
    with_replaced,
)
from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.trace import Buffer, Instr, Loop, Node, Operand, Ordered, ScalarRef, Trace, walk

Change = Callable[[Scene], Trace]


def trace_mutants(scenes: Sequence[Scene]) -> Iterator[Mutant]:
    """Every mutant that changes at least one of the scenes (a kernel's traces at several shapes).

    Lines are mutated as they stand in the largest trace that has them.
    """
    seen: set[Site] = set()
    for scene in sorted(scenes, key=lambda s: sum(map(len, s.sites.values())), reverse=True):
        for site, instances in scene.sites.items():
            if site not in seen:
                seen.add(site)
                yield from _instruction_mutants(site, instances[0], scene)
    yield from _dtype_mutants(scenes)
    yield from _loop_mutants(scenes)


def _instruction_mutants(site: Site, instr: Instr, scene: Scene) -> Iterator[Mutant]:
    for edit in (*edits(instr), *moves(instr, scene)):
        yield Mutant(edit.kind, site.line, edit.what, _everywhere(site, edit))
        at_the_end = _at_the_end(site, edit)
        if edit.kind is Kind.DROP:
            yield Mutant(Kind.SKIP_LAST, site.line, f"the last {instr.op} is left out", at_the_end)
        else:
            yield Mutant(edit.kind, site.line, f"{edit.what}, in the last tile only", at_the_end, spare=True)


def _everywhere(site: Site, edit: Edit) -> Change:
    def change(scene: Scene) -> Trace:
        replaced: dict[int, Instr | None] = {}
        before = None
        for instr in scene.sites.get(site, ()):
            new = edit.apply(instr, scene, before)
            if new is None or (new != instr and scene.legal(new)):
                replaced[id(instr)] = new
            before = instr
        return with_replaced(scene.trace, replaced)

    return change


def _at_the_end(site: Site, edit: Edit) -> Change:
    def change(scene: Scene) -> Trace:
        if len(instances := scene.sites.get(site, [])) < 2:
            return scene.trace
        last = instances[-1]
        new = edit.apply(last, scene, instances[-2])
        same = new == last or (new is not None and not scene.legal(new))
        return scene.trace if same else with_replaced(scene.trace, {id(last): new})

    return change


# -- precision of tiles -------------------------------------------------------------------------------------------


def _dtype_mutants(scenes: Sequence[Scene]) -> Iterator[Mutant]:
    lines = {b.line for scene in scenes for b in scene.trace.buffers if _is_wide(b)}
    for line in sorted(lines):
        yield Mutant(Kind.DTYPE, line, "the float32 tile made here is bfloat16", _narrower(line))


def _is_wide(buffer: Buffer) -> bool:
    return buffer.space != "hbm" and buffer.kind == "internal" and buffer.dtype == "float32"


def _narrower(line: int) -> Change:
    def change(scene: Scene) -> Trace:
        trace = scene.trace
        chosen = {b.id for b in trace.buffers if b.line == line and _is_wide(b)}
        buffers = tuple(replace(b, dtype="bfloat16") if b.id in chosen else b for b in trace.buffers)
        replaced: dict[int, Instr | None] = {}
        for program in trace.programs:
            for instr in walk(program.body):
                if any(o.buffer in chosen for o in instr.operands.values()):
                    if any(o.buffer in chosen and ITEMSIZE[o.dtype] != 4 for o in instr.operands.values()):
                        return trace  # its bits are looked at
                    operands = {n: _as_bfloat16(o, chosen) for n, o in instr.operands.items()}
                    replaced[id(instr)] = replace(instr, operands=operands)
        changed = with_replaced(replace(trace, buffers=buffers), replaced)
        legal = Scene(changed).legal
        return changed if replaced and all(new is not None and legal(new) for new in replaced.values()) else trace

    return change


def _as_bfloat16(operand: Operand, chosen: set[int]) -> Operand:
    return operand._replace(dtype="bfloat16") if operand.buffer in chosen else operand


# -- compiled loops -----------------------------------------------------------------------------------------------


def _loop_mutants(scenes: Sequence[Scene]) -> Iterator[Mutant]:
    places = {
        (node.file, node.line)
        for scene in scenes
        for program in scene.trace.programs
        for node in bodies(program)
        if isinstance(node, Loop)
    }
    for file, line in sorted(places):
        for bound, by, what in (
            ("lower", 1, "the first iteration is left out"),
            ("upper", -1, "the last iteration is left out"),
            ("upper", 1, "one iteration too many"),
        ):
            yield Mutant(Kind.LOOP, line, what, _other_bound(file, line, bound, by))


def _other_bound(file: int, line: int, bound: str, by: int) -> Change:
    def change(scene: Scene) -> Trace:
        chosen = {
            id(node): program
            for program in scene.trace.programs
            for node in bodies(program)
            if isinstance(node, Loop) and (node.file, node.line) == (file, line)
        }
        if not chosen:
            return scene.trace
        changed = with_programs(
            scene.trace, lambda node: _bound(node, bound, by, chosen[id(node)].scalars) if id(node) in chosen else node
        )
        return replace(changed, programs=tuple(replace(p, scalars=p.scalars + 1) for p in changed.programs))

    return change


def _bound(node: Any, bound: str, by: int, scalar: int) -> Node:
    """A loop with another bound; a run-time one becomes a scalar of its own, computed just before the loop."""
    old = getattr(node, bound)
    if not isinstance(old, ScalarRef):
        return replace(node, **{bound: old + by * node.step})
    attrs = {"result": ScalarRef(scalar), "dtype": "int32", "a": old, "b": by}
    sum_ = Instr(-1, "scalar_add", {}, attrs, node.line, node.file)
    return Ordered([sum_, replace(node, **{bound: ScalarRef(scalar)})], node.line, node.file)
