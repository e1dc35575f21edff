"""Rules of single engines and instructions: TensorE, the searches and shuffles of VectorE, GpSimdE."""

from nkismith.verify.simulator.hardware import PARTITIONS, QUADRANT, STATIONARY_FREE_MAX, TRN2, TRN3
from nkismith.verify.simulator.legality.rules.rule import Rule

RULES = (
    Rule(
        "matmul_contraction",
        what=f"stationary and moving hold the contraction on the same number of partitions, at most {PARTITIONS}.",
        why="Row k of the array multiplies partition k of both.",
        fix=f"Tile K by {PARTITIONS} and accumulate in PSUM; slice both operands alike for the last tile.",
        source="nki.isa.nc_matmul",
    ),
    Rule(
        "matmul_stationary",
        what=f"stationary has at most {STATIONARY_FREE_MAX} columns; an even number for nc_matmul_mx.",
        why="The array has that many columns.",
        fix="Tile M by nl.tile_size.gemm_stationary_fmax.",
        source="nki.isa.nc_matmul",
    ),
    Rule(
        "matmul_moving",
        what=f"moving has at most {TRN2.matmul_free_max_fp32} columns on trn2; on trn3 {TRN3.matmul_free_max_fp32} "
        f"into float32 and {TRN3.matmul_free_max_bf16} into bfloat16.",
        why="The product has to lie in the PSUM that one instruction can write.",
        fix="Tile N by nl.tile_size.gemm_moving_fmax.",
        source="nki.isa.nc_matmul",
    ),
    Rule(
        "matmul_dtypes",
        what="float32 pairs with float32 only, and the two fp8 formats with four exponent bits do not mix.",
        why="The array multiplies one format at a time.",
        fix="Cast one operand with nisa.tensor_copy.",
        source="nki.isa.nc_matmul",
    ),
    Rule(
        "matmul_dst",
        what="A product is written to PSUM as float32, on trn3 also as bfloat16; a transposition also in the data's "
        "dtype.",
        why="The array accumulates in float32.",
        fix="Allocate the PSUM tile as nl.float32 and cast when copying it to SBUF.",
        source="nki.isa.nc_matmul",
    ),
    Rule(
        "matmul_tile",
        what="tile_position and tile_size come together, name a legal tile of the array, and the stationary operand "
        "fits into it.",
        why=f"The array splits into tiles of whole groups of {QUADRANT} rows and columns.",
        fix="Position tiles at multiples of their size, inside the array; gathered operands use the whole array.",
        source="nki.isa.nc_matmul",
    ),
    Rule(
        "matmul_double_row",
        what="perf_mode double_row takes fp8 operands of shape (K, 2, columns), no transposition and no column tiling.",
        why="Each row of the array multiplies two values of the contraction.",
        fix="Put the second half of the contraction into dimension 1, or leave perf_mode out.",
        source="nki.isa.nc_matmul",
    ),
    Rule(
        "mx_partitions",
        what=f"Operands of the MX instructions span {QUADRANT}, {2 * QUADRANT}, {3 * QUADRANT} or {PARTITIONS} "
        "partitions.",
        why="A scale belongs to 8 partitions by 4 elements, and scales are read by quadrants.",
        fix="Pad the contraction with zeros.",
        source="mxfp-matmul",
    ),
    Rule(
        "mx_scale",
        what="Scales have the data's columns and lie on the first partitions of each quadrant, from 0, 4, 8 or 12 on.",
        why="The instruction reads them from there.",
        fix="Allocate (P/8, N) inside one quadrant, else (P, N), and let nisa.quantize_mx fill it.",
        source="nki.isa.nc_matmul_mx",
    ),
    Rule(
        "transpose_size",
        what="A transposition fits its engine: 128 x 128 from SBUF to PSUM on TensorE, 32 x 32 on VectorE, and for DMA "
        "at most 128 last elements in whole groups of 16 rows.",
        why="Each transposes blocks of that size.",
        fix="Tile it, or choose another engine.",
        source="nki.isa.nc_transpose, nki.isa.dma_transpose",
    ),
    Rule(
        "transpose_fp8_step",
        what="On trn2 the transpose of fp8 data goes to every second element of a PSUM tile.",
        why="TensorE writes 16 bits for each element there.",
        fix="Allocate the tile twice as wide and slice it with step 2.",
        source="nki.isa.nc_transpose",
    ),
    Rule(
        "shuffle_mask",
        what=f"shuffle_mask holds {QUADRANT} ints: a source lane of the quadrant that src has, or 255 to keep dst.",
        why="VectorE shuffles the lanes of each quadrant alike.",
        fix="Complete the mask with 255.",
        source="nki.isa.nc_stream_shuffle",
    ),
    Rule(
        "range_start",
        what="range_start is an int known while building, and all indices stay exact in float32.",
        why="Indices are compared with the bounds in float32.",
        fix="Process the range in parts.",
        source="nki.isa.range_select",
    ),
    Rule(
        "on_false_value",
        what="on_false_value of nisa.range_select is the lowest finite float32, its default.",
        why="The instruction has no other constant.",
        fix="Leave it out, and combine with nisa.select_reduce for another value.",
        source="nki.isa.range_select",
    ),
    Rule(
        "random_range",
        what="Bounds and probabilities of the random instructions make sense: min below max, 0 <= prob <= 1.",
        why="The result would be meaningless.",
        fix="Check the order of the arguments.",
        source="nki.isa.rand2, nki.isa.dropout",
    ),
    Rule(
        "affine_pattern",
        what="A pattern has 1 to 4 pairs [step, count]; offset and channel_multiplier are int32.",
        why="GpSimdE generates the indices in up to four nested loops.",
        fix="Write the pattern as in .ap, without the partition dimension.",
        source="nki.isa.iota, nki.isa.affine_select",
    ),
    Rule(
        "partition_groups",
        what="Gathers of GpSimdE work on whole groups of 16 partitions.",
        why="Each of its eight processors serves 16.",
        fix="Allocate a multiple of 16 partitions.",
        source="nki.isa.local_gather, nki.isa.topk",
    ),
    Rule(
        "gather_count",
        what="nisa.local_gather reads at least one index a group, at most those the tile holds and 4096.",
        why="A processor keeps the indices in its own memory.",
        fix="Gather in several calls.",
        source="nki.isa.local_gather",
    ),
    Rule(
        "gather_run",
        what="num_elem_per_idx is 1, 2, 4, 8, 16 or 32.",
        why="Runs are moved in powers of two.",
        fix="Split the run, or gather a larger one.",
        source="nki.isa.local_gather",
    ),
    Rule(
        "topk_size",
        what="nisa.topk takes 8 to 65535 elements, and K at most as many and below 32768.",
        why="Positions and counts are 16-bit numbers.",
        fix="Search parts, then among their results.",
        source="nki.isa.topk",
    ),
)
