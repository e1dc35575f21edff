"""Rules that every instruction obeys: parameters, memories, dtypes, partitions, bounds. Default-deny."""

from __future__ import annotations

from nkismith.verify.simulator.hardware import PARTITIONS, Target
from nkismith.verify.simulator.instruction import Tile, define
from nkismith.verify.simulator.instructions import TABLE
from nkismith.verify.simulator.legality.indirection import check_indirect
from nkismith.verify.simulator.machine import extent, row_elements
from nkismith.verify.simulator.site import Site
from nkismith.verify.simulator.trace import Buffer, Instr, ScalarRef

assert TABLE  # importing the package fills the table
_NUMBERS = (bool, int, float, ScalarRef, type(None))


def check_instruction(
    instr: Instr,
    buffers: tuple[Buffer, ...] | list[Buffer],
    machine: Target,
    lnc: int = 1,
    files: tuple[str, ...] = (),
) -> None:
    """Check one instruction against the generic rules and those of its definition. Raises LegalityError."""
    definition = define(instr.op)
    site = Site(instr, definition, buffers, machine, lnc, files)
    if machine.name not in definition.targets:
        raise site.refuse("target", f"exists on {', '.join(definition.targets)}, not on {machine.name}", "compose it")
    kinds: dict[str, Tile] = {}
    for name in instr.operands:
        kind = definition.params.get(name) or definition.params.get(name.rstrip("0123456789"))
        if not isinstance(kind, Tile):
            known = ", ".join(n for n, k in definition.params.items() if isinstance(k, Tile))
            raise site.refuse("operand_name", f"has no tensor parameter {name!r}", f"it has {known}")
        kinds[name] = kind
    for name, kind in definition.params.items():
        if isinstance(kind, Tile) and not (kind.optional or kind.many) and name not in instr.operands:
            raise site.refuse("operand_missing", f"{name} is missing", "pass a tile")
    for name, value in instr.attrs.items():
        if isinstance(definition.params.get(name), Tile) and not isinstance(value, _NUMBERS):
            raise site.refuse("operand_type", f"{name} is {type(value).__name__}", "a tile or a number")
    for name, kind in kinds.items():  # now that all are there: the engine may depend on them
        _check_operand(site, name, kind)
    engine = site.engine
    if engine not in definition.engines:
        raise site.refuse("engine", f"cannot run on {engine}", f"use {', '.join(definition.engines)}")
    if engine == "gpsimd":
        for name in instr.operands:
            if site.space(name) == "psum":
                raise site.refuse("gpsimd_psum", f"{name} is in PSUM, which GpSimdE cannot reach", "copy it to SBUF")
    definition.check(site)


def _check_operand(site: Site, name: str, kind: Tile) -> None:
    operand, buffer = site.operand(name), site.buffer(name)
    if buffer.space not in kind.spaces:
        raise site.refuse("buffer", f"{name} is in {buffer.space}", f"it must be in {' or '.join(kind.spaces)}")
    if operand.dtype not in kind.dtypes:
        raise site.refuse("dtype", f"{name} is {operand.dtype}", f"one of {', '.join(sorted(kind.dtypes))}")
    if operand.dynamic is not None and operand.dynamic.kind == "gather":
        check_indirect(site, name, kind)
    if kind.vector and site.has(name) and operand.free != 1:
        raise site.refuse("vector_shape", f"{name} is {operand.shape}", "a number or a (P, 1) tile")
    if operand.partitions:
        if operand.partitions > PARTITIONS:
            raise site.refuse(
                "partition_limit",
                f"{name} has {operand.partitions} partitions, at most {PARTITIONS}",
                "tile dimension 0",
            )
        if operand.start + operand.partitions > buffer.shape[0]:
            raise site.refuse(
                "operand_bounds",
                f"{name} reaches partition {operand.start + operand.partitions} of {buffer.shape[0]}",
                "stay inside the tensor",
            )
        if site.engine != "dma" and kind.aligned:
            _check_start(site, name, operand.partitions, operand.start + (buffer.address[0] if buffer.address else 0))
    if operand.dynamic is None:
        low, high = extent(operand)
        if low < 0 or high > row_elements(buffer, operand.dtype):
            raise site.refuse(
                "operand_bounds",
                f"{name} reaches elements {low} .. {high - 1} of {row_elements(buffer, operand.dtype)}",
                "stay inside the tensor",
            )


def _check_start(site: Site, name: str, partitions: int, start: int) -> None:
    allowed = (0,) if partitions > 64 else (0, 64) if partitions > 32 else (0, 32, 64, 96)
    if start not in allowed:
        raise site.refuse(
            "start_partition",
            f"{name} spans {partitions} partitions from {start}",
            f"start at {' or '.join(map(str, allowed))}",
        )
