"""Rows chosen at run time: the gather and scatter addresses of DMA (`vector_offset`), and the rules of all DMAs."""

from typing import NamedTuple

import numpy as np

from nkismith.verify.simulator.dtypes import PACKED, as_float32
from nkismith.verify.simulator.machine import extent, row_elements

VECTOR_INDEX_DTYPES = frozenset({"uint32", "int32"})
PRIORITIES = (0, 1, 2, 3)


def is_vector(operand):
    """Does the operand choose rows through an index tile?"""
    return operand.dynamic is not None and operand.dynamic.kind == "vector"


def check_dma(site, *names):
    """What every DMA obeys: index tiles that fit, priorities of NeuronCore-v4 only."""
    for name in names:
        operand = site.operand(name)
        term = operand.dynamic
        if is_vector(operand):
            if term.index.dtype not in VECTOR_INDEX_DTYPES:
                raise site.refuse("index_tile", f"{name} is indexed by {term.index.dtype}", "use uint32 or int32")
            if term.index.size < operand.pattern[0][1]:
                raise site.refuse(
                    "index_tile",
                    f"{name} takes {operand.pattern[0][1]} rows from an index of {term.index.size}",
                    "one index a row",
                )
    priority = site.attr("priority")
    if priority is not None:
        if site.target.generation < 4:
            raise site.refuse("dma_priority", f"priority={priority} on {site.target.name}", "leave it out before trn3")
        if priority not in PRIORITIES:
            raise site.refuse("dma_priority", f"priority={priority!r}", "0 (most urgent) to 3")


def check_dge(site, allowed, why):
    """The descriptor mode is one that the access can have."""
    mode = site.attr("dge_mode")
    if mode not in ("unknown", *allowed):
        raise site.refuse("dge_mode", f"dge_mode.{mode} {why}", f"unknown or {' or '.join(allowed)}")


def check_cast(site, source, dst="dst"):
    """DMA converts through float32: not packed types, and no 64-bit integers."""
    pair = (site.dtype(source), site.dtype(dst))
    if pair[0] != pair[1] and any(d in PACKED or d in ("int64", "uint64") for d in pair):
        raise site.refuse("dtype", f"{source} is {pair[0]} and {dst} {pair[1]}", "reinterpret with .view(dtype)")


class Rows(NamedTuple):
    """Where a vector-indexed operand points: the rows that exist, which of all they are, and a view of all rows."""

    chosen: np.ndarray  # positions of the rows that are in bounds
    rows: np.ndarray  # their row numbers
    all: object  # static operand over rows 0 .. max(rows)


def rows(m, site, name):
    """Resolve a vector-indexed operand. Rows out of bounds raise, or go missing under oob_mode.skip."""
    operand = m.operand(name)
    term = operand.dynamic
    if m.memory.taint(term.index) is not None:
        what = f"{name} is indexed by a tile {term.index.shape} with elements that nothing wrote"
        raise site.refuse("unwritten_index", what, "load all of them")
    wanted = index_order(m.memory.view(term.index), term.index)[: operand.pattern[0][1]]
    inside = (wanted >= 0) & (wanted < term.limit)
    if not inside.all() and site.attr("oob_mode") != "skip":
        bad = int(wanted[~inside][0])
        raise site.refuse("dynamic_bounds", f"{name}: row {bad}, there are {term.limit}", "clamp it or oob_mode.skip")
    chosen = np.flatnonzero(inside)
    numbers = wanted[chosen]
    reach = int(numbers.max()) + 1 if len(numbers) else 1
    every = operand._replace(pattern=((term.stride, reach), *operand.pattern[1:]), dynamic=None)
    low, high = extent(every)
    if low < 0 or high > row_elements(m.buffers[operand.buffer], operand.dtype):
        raise site.refuse("dynamic_bounds", f"{name}: row {reach - 1} leaves the tensor", "clamp the index")
    return Rows(chosen, numbers, every)


def index_order(values, operand):
    """Indices in the order the DMA takes them: column by column, partitions first."""
    return values.reshape(operand.partitions, -1).T.reshape(-1).astype(np.int64)


def gathered(m, found, shape):
    """(values, taint) of the rows of a source; rows out of bounds hold zeros and are tainted by nobody."""
    store = m.memory.view(found.all)
    values = np.zeros(shape, store.dtype)
    values[found.chosen] = store[found.rows]
    mask = m.memory.taint(found.all)
    if mask is None or not mask[found.rows].any():
        return values, None
    tainted = np.zeros(shape, bool)
    tainted[found.chosen] = mask[found.rows]
    return values, tainted


def scatter(m, found, values, tainted, keep):
    """Write rows of a destination in order, so that the last of equal rows stays; `keep` are the rows to write."""
    store = m.memory.view(found.all)
    wanted = np.isin(found.chosen, keep)
    positions, numbers = found.chosen[wanted], found.rows[wanted]
    store[numbers] = values[positions].reshape(len(numbers), *store.shape[1:])
    if tainted is None and m.memory.taint(found.all) is None:
        return
    (stride, _), *inner = found.all.pattern
    for position, row in zip(positions, numbers, strict=True):
        one = found.all._replace(offset=found.all.offset + int(row) * stride, pattern=tuple(inner) or ((1, 1),))
        m.memory.mark(one, False if tainted is None else tainted[position].reshape(one.shape))


def read(m, site, name):
    """(values, taint, positions) of a DMA source: its array and, for run-time rows, which of them exist."""
    operand = m.operand(name)
    if not is_vector(operand):
        return m.memory.view(operand), m.memory.taint(operand), None
    found = rows(m, site, name)
    values, tainted = gathered(m, found, operand.shape)
    return values, tainted, found.chosen


def move(m, dst, src):
    """Copy between static operands of one dtype."""
    memory = m.memory
    values, tainted, target = memory.view(src), memory.taint(src), memory.view(dst, overwrite=True)
    target[...] = values if values.shape == target.shape else values.reshape(target.shape)
    memory.mark(dst, False if tainted is None else tainted.reshape(target.shape))


def converted(m, values, source, target):
    """Values of one dtype as another: the same bits if equal, else through float32."""
    return values if source == target else m.cast(as_float32(values, source), target)


def write(m, site, values, tainted, keep):
    """Write `values` to dst, which may be static or scattered; `keep` names the leading positions, None is all."""
    operand = m.operand("dst")
    count = len(values)
    if is_vector(operand):
        found = rows(m, site, "dst")
        count = operand.pattern[0][1]
        flat = values.reshape(count, -1)
        mask = None if tainted is None else tainted.reshape(count, -1)
        scatter(m, found, flat, mask, np.arange(count) if keep is None else keep)
        return
    if keep is None or len(keep) == count:
        view = m.memory.view(operand, overwrite=True)
        view[...] = values.reshape(view.shape)
        m.memory.mark(operand, False if tainted is None else tainted.reshape(operand.shape))
        return
    view = m.memory.view(operand)
    merged = view.reshape(count, -1).copy()
    merged[keep] = values.reshape(count, -1)[keep]
    old = m.memory.taint(operand)
    mask = np.zeros(merged.shape, bool) if old is None else old.reshape(count, -1)
    mask[keep] = False if tainted is None else tainted.reshape(count, -1)[keep]
    view[...] = merged.reshape(view.shape)
    m.memory.mark(operand, mask.reshape(operand.shape))
