"""Which line made a wrong element: a backward slice of the trace, and what sets wrong elements apart from right ones.

From an element of a result the trace is walked backwards: an instruction that wrote something still needed is part of
the slice, and what it read is needed next. Lines that a wrong element passes and a right neighbour does not are where
the mistake is likely to be; the one nearest to the output is named.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.instruction import define
from nkismith.verify.simulator.trace import Instr, Node, Operand, Trace

MAX_INSTRUCTIONS = 50_000  # beyond this a slice takes longer than the check that asks for it


@dataclass(frozen=True, slots=True)
class Blame:
    """`line` is where to look first; `lines` are all that only the wrong element passes (or, if there is no right
    element to compare with, all that it passes), nearest to the output first."""

    line: int
    lines: tuple[int, ...]


def blame(trace: Trace, buffer: int, wrong: int, right: int | None) -> Blame | None:
    """Blame for a wrong element of an HBM buffer, given as flat indices; None where the trace is too long or empty."""
    order = [i for program in trace.programs for i in _backwards(program.body)]
    if len(order) > MAX_INSTRUCTIONS:
        return None
    passed = _slice(trace, order, buffer, wrong)
    if right is not None:
        apart = _slice(trace, order, buffer, right)
        passed = [i for i in passed if i.id not in {a.id for a in apart}] or passed
        own = [i for i in passed if i.line not in {a.line for a in apart}]
        passed = own or passed
    lines = tuple(dict.fromkeys(i.line for i in passed))
    if not lines:
        return None
    computing = [i.line for i in passed if not i.op.startswith("dma_")]
    return Blame(computing[0] if computing else lines[0], lines)


def _backwards(body: list[Node]) -> Iterator[Instr]:
    """Instructions last to first; a loop body twice, since what one pass reads another may have written."""
    for node in reversed(body):
        if isinstance(node, Instr):
            yield node
        else:
            for _ in range(2 if hasattr(node, "id") else 1):
                yield from _backwards(node.body)


def _slice(trace: Trace, order: list[Instr], buffer: int, element: int) -> list[Instr]:
    """The instructions that an element of a buffer depends on, nearest first."""
    needed: dict[int, np.ndarray] = {buffer: np.zeros(_bytes(trace, buffer), bool)}
    size = ITEMSIZE[trace.buffers[buffer].dtype]
    needed[buffer][element * size : (element + 1) * size] = True
    found: dict[int, Instr] = {}
    for instr in order:
        definition = define(instr.op)
        wanted = None
        for name in definition.writes:
            target = instr.operands.get(name)
            if target is None or target.buffer not in needed:
                continue
            seen = _view(trace, needed[target.buffer], target)
            if seen.any():
                wanted = seen.copy() if name == "dst" or wanted is None else wanted
                if target.dynamic is None and instr.attrs.get("accumulate", True) is not None:
                    _clear(instr, seen)
        if wanted is None:
            continue
        found.setdefault(instr.id, instr)
        for name, operand in instr.operands.items():
            if name in definition.reads or name.rstrip("0123456789") in definition.reads:
                _need(trace, needed, operand, wanted, definition.taint)
    return list(found.values())


def _clear(instr: Instr, seen: np.ndarray) -> None:
    """A write that does not add to what was there makes older writes unneeded."""
    if not instr.op.startswith("nc_matmul"):
        seen[...] = False


def _need(trace: Trace, needed: dict[int, np.ndarray], operand: Operand, wanted: np.ndarray, how: object) -> None:
    if operand.buffer not in needed:
        needed[operand.buffer] = np.zeros(_bytes(trace, operand.buffer), bool)
    view = _view(trace, needed[operand.buffer], operand)
    elements = np.asarray(wanted.reshape(*wanted.shape[:-1], -1).any(axis=-1))
    rows = wanted.shape[0]
    if operand.dynamic is not None:
        needed[operand.buffer][:] = True
    elif how == "elementwise" and elements.size * ITEMSIZE[operand.dtype] == view.size:
        view |= elements.reshape(view.shape[:-1])[..., None]
    elif how in ("elementwise", "rows") and operand.partitions == rows:
        view |= elements.reshape(rows, -1).any(axis=1).reshape(rows, *[1] * (view.ndim - 1))
    elif elements.size * ITEMSIZE[operand.dtype] == view.size:  # a move: element i comes from element i
        view |= elements.reshape(view.shape[:-1])[..., None]
    else:
        view[...] = True


def _bytes(trace: Trace, id_: int) -> int:
    buffer = trace.buffers[id_]
    return (buffer.shape[0] if buffer.space != "hbm" else 1) * buffer.free * ITEMSIZE[buffer.dtype]


def _view(trace: Trace, mask: np.ndarray, operand: Operand) -> np.ndarray:
    """The bytes of an operand, shaped like it with the bytes of an element last; all of it for a run-time region."""
    if operand.dynamic is not None:
        return mask
    buffer = trace.buffers[operand.buffer]
    size = ITEMSIZE[operand.dtype]
    row = buffer.free * ITEMSIZE[buffer.dtype]
    shape = [n for _, n in operand.pattern]
    strides = [s * size for s, _ in operand.pattern]
    if operand.partitions:
        shape, strides = [operand.partitions, *shape], [row, *strides]
    return np.ndarray((*shape, size), bool, mask, operand.start * row + operand.offset * size, (*strides, 1))
