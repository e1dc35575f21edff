"""Rules on where tensors lie: memories, partitions, banks, capacity, addresses."""

from nkismith.verify.simulator.hardware import PARTITIONS, PSUM_BANK_BYTES, PSUM_BANKS, TRN2, TRN3
from nkismith.verify.simulator.legality.rules.rule import Rule

RULES = (
    Rule(
        "buffer",
        what="Each operand lies in a memory that its instruction reaches: engines use SBUF and PSUM, TensorE reads "
        "SBUF and writes PSUM, DMA moves between HBM and SBUF; a tensor is made in nl.sbuf, nl.psum, nl.shared_hbm or "
        "nl.private_hbm.",
        why="Each engine and each DMA queue is wired to some memories only.",
        fix="Move the data first: HBM to SBUF with nisa.dma_copy, PSUM to SBUF with nisa.tensor_copy.",
        source="trainium2_arch; the page of each instruction of nki.isa",
    ),
    Rule(
        "tile_shape",
        what="A shape is a tuple of positive integers known while building; on chip it has a partition and at least "
        "one free dimension.",
        why="Memory is laid out before the kernel runs.",
        fix="Take extents from the shapes of the inputs; write (P, 1) for a column.",
        source="nki.language.ndarray",
    ),
    Rule(
        "partition_limit",
        what=f"An on-chip operand spans at most {PARTITIONS} partitions.",
        why="SBUF and PSUM have that many, and an engine has one lane for each.",
        fix=f"Tile dimension 0 in steps of {PARTITIONS} (nl.tile_size.pmax), with min() for the last tile.",
        source="trainium2_arch; release note 0.6.0",
    ),
    Rule(
        "start_partition",
        what="An operand of more than 64 partitions starts on partition 0, one of more than 32 on 0 or 64, a smaller "
        "one on 0, 32, 64 or 96; a tile with an address starts on one of these four.",
        why="Engines address partitions in groups of 32, and larger accesses only from aligned starts.",
        fix="Slice at those partitions, or move the rows with nisa.dma_copy, which may start anywhere.",
        source="trainium2_arch",
    ),
    Rule(
        "psum_bank",
        what=f"A PSUM tile with an address starts on a bank: a multiple of {PSUM_BANK_BYTES} bytes a partition.",
        why="TensorE accumulates within banks.",
        fix="Give bank * nl.tile_size.psum_bank_size, or leave the address out.",
        source="nki-migration",
    ),
    Rule(
        "sbuf_overflow",
        what=f"The tiles that are live at one time fit into SBUF: {TRN2.sbuf_usable_bytes} usable bytes a partition on "
        f"trn2, {TRN3.sbuf_usable_bytes} on trn3. Liveness is counted for each slice of a tile that is written apart.",
        why="Beyond that the compiler would have to spill to HBM, and an instruction that needs more cannot run.",
        fix="Make tiles smaller, or make them inside the loop that uses them so that they die earlier.",
        source="memory-hierarchy-overview; nki.compiler (linear scan)",
    ),
    Rule(
        "psum_overflow",
        what=f"The PSUM tiles that are live at one time fit into {PSUM_BANKS} banks of {PSUM_BANK_BYTES} bytes a "
        "partition; a tile of at most a bank does not straddle two.",
        why="Nothing spills from PSUM.",
        fix="Copy finished results to SBUF before starting more, or reuse a tile.",
        source="trainium2_arch",
    ),
    Rule(
        "address",
        what="An address is (start partition, byte offset) on chip and (offset,) in HBM, and the whole tile lies "
        "inside its memory.",
        why="The author has taken the allocator's place.",
        fix="Leave the address out, or compute it from the sizes in nl.tile_size.",
        source="nki.language.ndarray",
    ),
    Rule(
        "address_clash",
        what="A tile is not read where another tile at an overlapping address has been written since.",
        why="Both tiles are the same bytes of the memory: the older data is gone.",
        fix="Move one of the tiles, or read before the other is written.",
        source="nki.language.ndarray",
    ),
)
