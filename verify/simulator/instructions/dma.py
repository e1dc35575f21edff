"""DMA: moves between HBM and SBUF, with casts, run-time rows and transposition."""

import numpy as np

from nkismith.verify.simulator.dtypes import as_float32, cast
from nkismith.verify.simulator.enums import dge_mode, engine, oob_mode
from nkismith.verify.simulator.instruction import DMA_MEMORY, ENUM, PLAIN, instruction, out, tile
from nkismith.verify.simulator.trace import Operand

ERROR = oob_mode.error
UNKNOWN_DGE = dge_mode.unknown
UNKNOWN = engine.unknown


@instruction(engines=("dma",), limits=("SBUF and HBM only",), cost="fixed latency plus bytes over the bandwidth")
class dma_copy:
    """dst = src between SBUF and HBM; element counts must match, different dtypes go through float32.

    A view with vector_offset gathers or scatters rows; oob_mode.skip leaves rows with an index outside untouched.
    """

    def signature(
        dst: out(DMA_MEMORY),
        src: tile(DMA_MEMORY),
        priority: PLAIN = None,
        oob_mode: ENUM = ERROR,
        dge_mode: ENUM = UNKNOWN_DGE,
        engine: ENUM = UNKNOWN,
    ): ...

    def engine(site):
        return "dma"

    def check(site):
        if site.operand("dst").size != site.operand("src").size:
            raise site.refuse(
                "operand_shapes",
                f"dst {site.shape('dst')} and src {site.shape('src')} differ in elements",
                "slice both to the same extent",
            )

    def run(m, site):
        values, _, keep = rows_of(m, site, "src")
        if site.dtype("src") != site.dtype("dst"):
            values = cast(as_float32(values, site.dtype("src")), site.dtype("dst"))
        write_rows(m, site, values, keep)

    def taint(m, site):
        _, tainted, keep = rows_of(m, site, "src")
        mark_rows(m, site, tainted, keep)


def row_index(m, site, name):
    """Run-time rows of a vector-indexed operand and which of them exist; refuses or skips the others."""
    operand = m.operand(name)
    term = operand.dynamic
    if m.memory.taint(term.index) is not None:
        raise site.refuse("unwritten_index", f"{name} is indexed by a tile that nothing wrote", "load the indices")
    rows = m.memory.view(term.index).reshape(-1).astype(np.int64)
    inside = (rows >= 0) & (rows < term.limit)
    if not inside.all() and site.attr("oob_mode") != "skip":
        bad = int(rows[~inside][0])
        raise site.refuse("dynamic_bounds", f"{name}: row {bad}, there are {term.limit}", "clamp it or oob_mode.skip")
    return operand, np.where(inside, rows, 0), inside


def _row(operand: Operand, row: int) -> Operand:
    return operand._replace(
        offset=operand.offset + row * operand.dynamic.stride, pattern=operand.pattern[1:] or ((1, 1),), dynamic=None
    )


def rows_of(m, site, name):
    """(values, taint, rows kept or None) of a source: an array view, or gathered rows."""
    operand = m.operand(name)
    if operand.dynamic is None:
        return m.memory.view(operand), m.memory.taint(operand), None
    operand, rows, inside = row_index(m, site, name)
    values = np.stack([m.memory.view(_row(operand, r)) for r in rows])
    taints = [m.memory.taint(_row(operand, r)) for r in rows]
    tainted = None
    if any(t is not None for t in taints):
        tainted = np.stack([np.zeros(values.shape[1:], bool) if t is None else t for t in taints])
    return values, tainted, inside


def write_rows(m, site, values, keep):
    """Write a destination that may be static, skip rows, or be scattered."""
    operand = m.operand("dst")
    if operand.dynamic is not None:
        operand, rows, inside = row_index(m, site, "dst")
        flat = values.reshape(len(rows), -1)
        for r, row, ok in zip(range(len(rows)), rows, inside, strict=True):
            if ok and (keep is None or keep[r]):
                view = m.memory.view(_row(operand, row))
                view[...] = flat[r].reshape(view.shape)
        return
    view = m.memory.view(operand)
    if keep is None or keep.all():
        view[...] = values.reshape(view.shape)
    else:
        flat = values.reshape(len(keep), -1)
        target = view.reshape(len(keep), -1)
        target[keep] = flat[keep]
        view[...] = target.reshape(view.shape)


def mark_rows(m, site, tainted, keep):
    """The written-mask of what write_rows wrote."""
    operand = m.operand("dst")
    if operand.dynamic is not None:
        operand, rows, inside = row_index(m, site, "dst")
        flat = None if tainted is None else tainted.reshape(len(rows), -1)
        for r, row, ok in zip(range(len(rows)), rows, inside, strict=True):
            if ok:
                static = _row(operand, row)
                m.memory.mark(static, False if flat is None else flat[r].reshape(static.shape))
        return
    if keep is None or keep.all():
        m.memory.mark(operand, False if tainted is None else tainted.reshape(operand.shape))
        return
    old = m.memory.taint(operand)
    mask = np.zeros((len(keep), operand.size // len(keep)), bool) if old is None else old.reshape(len(keep), -1)
    mask[keep] = False if tainted is None else tainted.reshape(len(keep), -1)[keep]
    m.memory.mark(operand, mask.reshape(operand.shape))
