"""Rules of DMA."""

from nkismith.verify.simulator.legality.rules.rule import Rule

RULES = (
    Rule(
        "dge_mode",
        what="The descriptor mode fits the access: rows chosen by a vector need swdge or unknown.",
        why="Each generator of descriptors makes some kinds only.",
        fix="Leave dge_mode out.",
        source="nki-dge; nki.isa.dma_copy, nki.isa.dma_transpose",
    ),
    Rule(
        "dma_engine",
        what="engine= of a DMA comes with dge_mode.hwdge and is sync or scalar.",
        why="It names the sequencer that triggers the hardware generator.",
        fix="Leave engine out, or set dge_mode.hwdge too.",
        source="nki.isa.dma_copy",
    ),
    Rule(
        "dma_priority",
        what="priority is 0 to 3, on trn3.",
        why="Earlier generations have no priorities.",
        fix="Leave it out before trn3.",
        source="nki.isa.dma_copy",
    ),
    Rule(
        "dma_scales",
        what="scales of nisa.dma_compute is None, or 1.0 for every source.",
        why="The DMA adds and does not multiply.",
        fix="Multiply on VectorE or ScalarE first.",
        source="nki.isa.dma_compute",
    ),
    Rule(
        "dma_modify",
        what="nisa.dma_compute with rows chosen by a vector has two sources, one of which is dst: rows of HBM plus an "
        "SBUF tile, or an SBUF tile plus rows of HBM.",
        why="The descriptors read, add and write back in one go.",
        fix="Gather the rows with nisa.dma_copy, add on VectorE, and scatter.",
        source="nki.isa.dma_compute",
    ),
    Rule(
        "duplicate_index",
        what="Rows that are added to in HBM are all different.",
        why="Descriptors run at the same time: of two additions to one row one is lost.",
        fix="Add rows with the same index together first.",
        source="nki.isa.dma_compute",
    ),
    Rule(
        "static_address",
        what="The address is known while building where the DMA takes no run-time offset.",
        why="Transposing and adding descriptors are made in a fixed form.",
        fix="Work on a tile, and move the tile with nisa.dma_copy.",
        source="nki.isa.dma_transpose, nki.isa.dma_compute",
    ),
    Rule(
        "oob_mode",
        what="oob_mode.skip of nisa.dma_transpose comes with a run-time index on src.",
        why="A static address is inside or wrong.",
        fix="Leave it out.",
        source="nki.isa.dma_transpose",
    ),
    Rule(
        "gather_groups",
        what="In a gather with transposition the indices of each group of 16 are all inside the tensor or all outside.",
        why="A descriptor moves 16 rows; the device halts where only some of them exist.",
        fix="Pad to whole groups of 16 rows.",
        source="nki.isa.dma_transpose",
    ),
)
