"""DMA transposition: direct, and of rows gathered at run time."""

import numpy as np

from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.enums import dge_mode, oob_mode
from nkismith.verify.simulator.instruction import DMA_MEMORY, ENUM, PLAIN, SBUF, instruction, out, tile
from nkismith.verify.simulator.instructions.dma import marked, on_dma
from nkismith.verify.simulator.instructions.dma_rows import check_dge, check_dma, gathered, is_vector, rows

ERROR = oob_mode.error
UNKNOWN_DGE = dge_mode.unknown
AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}
LAST_MAX = 128  # the last dimension becomes the partitions
GROUP = 16  # rows that a descriptor of the transposing DMA moves (nki.isa.dma_transpose)


@instruction(
    engines=("dma",),
    limits=(
        "axes (1, 0), (2, 1, 0) or (3, 1, 2, 0); dst in SBUF has the transposed shape and src's dtype",
        "last dimension of src <= 128",
        "dge_mode.hwdge: 2-byte dtype; 2-D src.shape[0] == 16; 3-D and 4-D src.shape[0] in {1, 2, 4, 8, 16} with "
        "src.shape[0] * src.shape[-2] a multiple of 16",
        "vector_offset: src in HBM, 2-byte dtype, src.shape[0] a multiple of 16, 2-D uint32 index of 16..128 rows in "
        "multiples of 16 (128 if it has several columns), dge_mode swdge or unknown",
    ),
    cost="as a copy of the bytes at the transpose efficiency",
)
class dma_transpose:
    """dst = src with its axes permuted by the DMA: (1, 0), (2, 1, 0) or (3, 1, 2, 0), bit exact.

    With a vector_offset it gathers rows first, in the order of the index read column by column.
    """

    def signature(
        dst: out(SBUF),
        src: tile(DMA_MEMORY),
        axes: PLAIN = None,
        priority: PLAIN = None,
        dge_mode: ENUM = UNKNOWN_DGE,
        oob_mode: ENUM = ERROR,
    ): ...

    engine = on_dma

    def check(site):
        shape = site.shape("src")
        axes = AXES.get(len(shape))
        if axes is None or site.attr("axes") not in (None, axes):
            raise site.refuse(
                "transpose_axes", f"axes={site.attr('axes')} of shape {shape}", "(1, 0), (2, 1, 0) or (3, 1, 2, 0)"
            )
        if site.shape("dst") != tuple(shape[a] for a in axes):
            raise site.refuse(
                "operand_shapes",
                f"dst is {site.shape('dst')}, src {shape}",
                f"dst must be {tuple(shape[a] for a in axes)}, rank included",
            )
        if site.dtype("dst") != site.dtype("src"):
            raise site.refuse("dtype", f"{site.dtype('src')} to {site.dtype('dst')}", "dst has the dtype of src")
        check_dma(site, "dst", "src")
        dynamic = site.operand("src").dynamic
        if site.operand("dst").dynamic is not None:
            raise site.refuse("static_address", "dst has a run-time address", "transpose into a tile, then move it")
        if site.attr("oob_mode") == "skip" and dynamic is None:
            raise site.refuse("oob_mode", "oob_mode.skip on a static transpose", "only with a run-time index on src")
        if is_vector(site.operand("src")):
            check_indirect(site, shape)
        elif dynamic is None:
            check_direct(site, shape)

    def run(m, site):
        source = m.operand("src")
        if source.size == 0:
            return  # a run-time offset out of bounds under oob_mode.skip
        axes = AXES[len(site.shape("src"))]
        target = m.operand("dst")
        if is_vector(source):
            found = rows(m, site, "src")
            check_groups(site, found, source.pattern[0][1])
            values, tainted = gathered(m, found, source.shape)
            merge(m, target, values.transpose(axes), tainted, found.chosen, axes)
            return
        tainted = m.memory.taint(source)
        values = m.memory.view(source).transpose(axes)
        m.memory.view(target, overwrite=True)[...] = values.copy() if source.buffer == target.buffer else values
        m.memory.mark(target, False if tainted is None else tainted.transpose(axes))

    taint = marked


def check_direct(site, shape):
    """A static transpose; the hardware descriptor engine has more rules."""
    check_dge(site, ("hwdge", "none"), "without a vector_offset")
    if site.attr("dge_mode") != "hwdge":
        return
    check_two_bytes(site, "dge_mode.hwdge")
    if len(shape) == 2 and shape[0] != GROUP:
        raise site.refuse("transpose_size", f"src has {shape[0]} rows under dge_mode.hwdge", f"exactly {GROUP}")
    if len(shape) > 2 and (shape[0] not in (1, 2, 4, 8, 16) or shape[0] * shape[-2] % GROUP):
        raise site.refuse(
            "transpose_size",
            f"src is {shape} under dge_mode.hwdge",
            f"shape[0] in 1, 2, 4, 8, 16 and shape[0] * shape[-2] a multiple of {GROUP}",
        )


def check_indirect(site, shape):
    """A gather-transpose."""
    check_dge(site, ("swdge",), "with a vector_offset")
    check_two_bytes(site, "a gather-transpose")
    index = site.operand("src").dynamic.index
    if len(shape) == 4 and 1 not in shape[1:3]:
        raise site.refuse("transpose_size", f"src is {shape}", "shape[1] or shape[2] must be 1")
    if shape[0] % GROUP:
        raise site.refuse("transpose_size", f"src has {shape[0]} rows", f"a multiple of {GROUP}")
    if index.dtype != "uint32":
        raise site.refuse("index_tile", f"the index is {index.dtype}", "use uint32")
    if len(index.shape) != 2 or not GROUP <= index.partitions <= LAST_MAX or index.partitions % GROUP:
        raise site.refuse("index_tile", f"the index is {index.shape}", f"2-D, 16 to 128 rows, a multiple of {GROUP}")
    if index.free > 1 and index.partitions != LAST_MAX:
        raise site.refuse("index_tile", f"the index is {index.shape}", f"several columns need {LAST_MAX} rows")


def check_two_bytes(site, what):
    """These transposes move 2-byte elements."""
    if ITEMSIZE[site.dtype("src")] != 2:
        raise site.refuse("dtype", f"{what} of {site.dtype('src')}", "a 2-byte dtype; view 4-byte data as two halves")


def check_groups(site, found, count):
    """Descriptors move 16 rows: all of them exist or none (the device halts otherwise)."""
    inside = np.zeros(count, bool)
    inside[found.chosen] = True
    mixed = inside.reshape(-1, GROUP)
    split = np.flatnonzero(mixed.any(axis=1) != mixed.all(axis=1))
    if len(split):
        first = int(split[0]) * GROUP
        raise site.refuse(
            "gather_groups",
            f"of the indices {first} to {first + GROUP - 1} only {int(mixed[split[0]].sum())} are in bounds",
            f"pad to whole groups of {GROUP} rows",
        )


def merge(m, target, values, tainted, chosen, axes):
    """Write the columns of the rows that exist; the others keep what they held."""
    view = m.memory.view(target)
    old = m.memory.taint(target)
    mask = np.zeros(target.shape, bool) if old is None else old
    columns = (slice(None),) * (len(axes) - 1) + (chosen,)
    view[columns] = values[columns]
    mask[columns] = False if tainted is None else tainted.transpose(axes)[columns]
    m.memory.mark(target, mask if mask.any() else False)
