"""DMA copies and sums between HBM and SBUF, with casts and rows chosen at run time."""

import numpy as np

from nkismith.verify.simulator.dtypes import as_float32
from nkismith.verify.simulator.enums import dge_mode, engine, oob_mode
from nkismith.verify.simulator.instruction import ANY_DTYPE, DMA_MEMORY, ENUM, OP, PLAIN, instruction, out, tile, tiles
from nkismith.verify.simulator.instructions.dma_rows import (
    check_cast,
    check_dge,
    check_dma,
    converted,
    is_vector,
    move,
    read,
    rows,
    scatter,
    write,
)

ERROR = oob_mode.error
UNKNOWN_DGE = dge_mode.unknown
UNKNOWN = engine.unknown
COPY_DTYPES = ANY_DTYPE | {"int64", "uint64"}
MAX_SOURCES = 16
TRIGGERS = ("sync", "scalar")


def on_dma(site):
    """DMA queues execute it, whoever triggers it."""
    return "dma"


def marked(m, site):
    """`run` has recorded what was written."""


@instruction(
    engines=("dma",),
    limits=(
        "dst and src in SBUF or HBM, equal element counts",
        "dge_mode.hwdge: equal dtypes, no vector_offset; engine=sync or scalar only with it",
        "vector_offset: (P, 1) int32/uint32 index in SBUF, rows of an HBM tensor, dge_mode swdge or unknown",
        "priority 0-3 on trn3 only",
    ),
    cost="fixed latency plus bytes over the bandwidth",
)
class dma_copy:
    """dst = src between SBUF and HBM; element counts must match, different dtypes go through float32.

    A view with vector_offset gathers or scatters rows; oob_mode.skip leaves alone what a run-time index outside the
    tensor would have moved.
    """

    def signature(
        dst: out(DMA_MEMORY, COPY_DTYPES),
        src: tile(DMA_MEMORY, COPY_DTYPES),
        priority: PLAIN = None,
        oob_mode: ENUM = ERROR,
        dge_mode: ENUM = UNKNOWN_DGE,
        engine: ENUM = UNKNOWN,
    ): ...

    engine = on_dma

    def check(site):
        if site.operand("dst").size != site.operand("src").size:
            raise site.refuse(
                "operand_shapes",
                f"dst {site.shape('dst')} and src {site.shape('src')} differ in elements",
                "slice both to the same extent",
            )
        check_dma(site, "dst", "src")
        check_cast(site, "src")
        hardware = site.attr("dge_mode") == "hwdge"
        if any(is_vector(site.operand(n)) for n in ("dst", "src")):
            check_dge(site, ("swdge",), "with a vector_offset")
        if hardware and site.dtype("src") != site.dtype("dst"):
            raise site.refuse(
                "dtype",
                f"dge_mode.hwdge moves bytes: {site.dtype('src')} to {site.dtype('dst')}",
                "use another dge_mode for a cast",
            )
        trigger = site.attr("engine")
        if trigger != "unknown" and not hardware:
            raise site.refuse("dma_engine", f"engine.{trigger} without dge_mode.hwdge", "it names the trigger of hwdge")
        if trigger not in ("unknown", *TRIGGERS):
            raise site.refuse("dma_engine", f"engine.{trigger} cannot trigger hwdge", "engine.sync or engine.scalar")

    def run(m, site):
        dst, src = site.operand("dst"), site.operand("src")
        if dst.dynamic is None and src.dynamic is None and dst.dtype == src.dtype:
            move(m, dst, src)
            return
        if 0 in (m.operand("dst").size, m.operand("src").size):
            return  # a run-time address out of bounds under oob_mode.skip
        values, tainted, keep = read(m, site, "src")
        write(m, site, converted(m, values, site.dtype("src"), site.dtype("dst")), tainted, keep)

    taint = marked


@instruction(
    engines=("dma",),
    limits=(
        f"at most {MAX_SOURCES} sources of dst's element count",
        "reduce_op nl.add, scales None or all 1.0, unique_indices True",
        "static addresses, except a read-modify-write: two sources, one of them dst, one side rows of HBM",
    ),
    cost="fixed latency plus bytes of all sources over the bandwidth",
)
class dma_compute:
    """dst = sum of the sources, in float32 and rounded once.

    With vector_offset it adds in place: rows of an HBM tensor (dst and one source are that view) plus an SBUF tile,
    or an SBUF tile (dst and one source) plus rows of an HBM tensor.
    """

    def signature(
        dst: out(DMA_MEMORY),
        srcs: tiles(DMA_MEMORY),
        reduce_op: OP,
        scales: PLAIN = None,
        unique_indices: PLAIN = True,
        oob_mode: ENUM = ERROR,
    ): ...

    engine = on_dma

    def check(site):
        names = sources(site)
        if not 1 <= len(names) <= MAX_SOURCES:
            raise site.refuse("operand_count", f"{len(names)} sources", f"1 to {MAX_SOURCES}")
        for name in names:
            if site.operand(name).size != site.operand("dst").size:
                raise site.refuse(
                    "operand_shapes", f"dst {site.shape('dst')} and {name} {site.shape(name)}", "equal element counts"
                )
            check_cast(site, name)
        check_dma(site, "dst", *names)
        if site.attr("reduce_op") != "add":
            raise site.refuse("operator", f"reduce_op={site.attr('reduce_op')}", "dma_compute adds: nl.add")
        scales = site.attr("scales")
        if scales is not None and scales != (1.0,) * len(names):
            raise site.refuse("dma_scales", f"scales={scales}", "None, or 1.0 for every source")
        vectors = [n for n in ("dst", *names) if is_vector(site.operand(n))]
        for name in ("dst", *names):
            if site.operand(name).dynamic is not None and name not in vectors:
                raise site.refuse("static_address", f"{name} has a run-time offset", "only vector_offset may vary")
        if vectors:
            check_modify(site, names, vectors)

    def run(m, site):
        names = sources(site)
        values, tainted, keep = None, None, None
        for name in names:
            part, unwritten, chosen = read(m, site, name)
            part = as_float32(part, site.dtype(name)).reshape(site.operand("dst").shape)
            values = part.copy() if values is None else np.add(values, part, out=values)
            if unwritten is not None:
                unwritten = unwritten.reshape(part.shape)
                tainted = unwritten if tainted is None else tainted | unwritten
            keep = chosen if chosen is not None else keep
        values = m.cast(values, site.dtype("dst"))
        if is_vector(m.operand("dst")):
            found = rows(m, site, "dst")
            numbers, times = np.unique(found.rows, return_counts=True)
            if (times > 1).any():
                raise site.refuse(
                    "duplicate_index",
                    f"row {numbers[times > 1][0]} is added to {times.max()} times",
                    "add what belongs to one row together first: of several additions one arrives",
                )
            scatter(m, found, values, tainted, found.chosen)
        else:
            write(m, site, values, tainted, keep)

    taint = marked


def sources(site):
    """Names of the recorded sources."""
    return [n for n in site.instr.operands if n != "dst"]


def check_modify(site, names, vectors):
    """The two forms of an indirect read-modify-write."""
    if not site.attr("unique_indices"):
        raise site.refuse("duplicate_index", "unique_indices=False with vector_offset", "unique indices only")
    same = [n for n in names if site.operand(n) == site.operand("dst")]
    if len(names) != 2 or not same:
        raise site.refuse(
            "dma_modify", f"vector_offset with {len(names)} sources, {len(same)} of them dst", "two sources, one is dst"
        )
    other = names[1] if same[0] == names[0] else names[0]
    scatters = "dst" in vectors and site.space(other) == "sbuf" and other not in vectors
    gathers = "dst" not in vectors and site.space("dst") == "sbuf" and other in vectors
    if not scatters and not gathers:
        raise site.refuse(
            "dma_modify",
            f"dst in {site.space('dst')} and {other} in {site.space(other)}",
            "rows of HBM plus an SBUF tile, or an SBUF tile plus rows of HBM",
        )
