"""Rules of single instructions of VectorE and GpSimdE: shuffles, selections, random numbers, gathers, searches."""

from nkismith.verify.simulator.hardware import QUADRANT
from nkismith.verify.simulator.legality.rules.rule import Example, Rule

RULES = (
    Rule(
        "shuffle_mask",
        what=f"shuffle_mask holds {QUADRANT} ints: a source lane of the quadrant that src has, or 255 to keep dst.",
        why="VectorE shuffles the lanes of each quadrant alike.",
        fix="Complete the mask with 255.",
        source="nki.isa.nc_stream_shuffle",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, turned = nl.load(x), nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
                -     nisa.nc_stream_shuffle(dst=turned, src=tile, shuffle_mask=[32 - lane for lane in range(32)])
                +     nisa.nc_stream_shuffle(dst=turned, src=tile, shuffle_mask=[31 - lane for lane in range(32)])
                      nl.store(y, turned)
                      return y
                """,
                says="nc_stream_shuffle: shuffle_mask has 32 entries, 32 is one",
                gives="x[::-1]",
                given="x float32 (32, 4)",
            ),
        ),
    ),
    Rule(
        "range_start",
        what="range_start is an int known while building, and all indices stay exact in float32.",
        why="Indices are compared with the bounds in float32.",
        fix="Process the range in parts.",
        source="nki.isa.range_select",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, low, high):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      nisa.range_select(
                          dst=tile, on_true_tile=tile, comp_op0=nl.greater_equal, comp_op1=nl.less,
                          bound0=nl.load(low), bound1=nl.load(high),
                -         range_start=(1 << 24) - 7,
                +         range_start=(1 << 24) - 8,
                      )
                      nl.store(y, tile)
                      return y
                """,
                says="range_select: indices 16777209 to 16777216",
                gives="np.where(np.arange(8) < 3, x, np.finfo(np.float32).min)",
                given="x float32 (2, 8); low float32 [[0], [0]]; high float32 [[16777211], [16777211]]",
                at="range_select(",
            ),
        ),
    ),
    Rule(
        "on_false_value",
        what="on_false_value of nisa.range_select is the lowest finite float32, its default.",
        why="The instruction has no other constant.",
        fix="Leave it out, and combine with nisa.select_reduce for another value.",
        source="nki.isa.range_select",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, low, high):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      nisa.range_select(
                          dst=tile, on_true_tile=tile, comp_op0=nl.greater_equal, comp_op1=nl.less,
                          bound0=nl.load(low), bound1=nl.load(high),
                -         on_false_value=0.0,
                +         on_false_value=-3.4028235e38,
                      )
                      nl.store(y, tile)
                      return y
                """,
                says="range_select: on_false_value=0.0",
                gives="np.where((np.arange(8) >= 2) & (np.arange(8) < 5), x, np.finfo(np.float32).min)",
                given="x float32 (2, 8); low float32 [[2], [2]]; high float32 [[5], [5]]",
                at="range_select(",
            ),
        ),
    ),
    Rule(
        "random_range",
        what="Bounds and probabilities of the random instructions make sense: min below max, 0 <= prob <= 1.",
        why="The result would be meaningless.",
        fix="Check the order of the arguments.",
        source="nki.isa.rand2, nki.isa.dropout",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nisa.dropout(dst=tile, data=tile, prob=100.0)
                +     nisa.dropout(dst=tile, data=tile, prob=1.0)
                      nl.store(y, tile)
                      return y
                """,
                says="dropout: prob=100.0",
                gives="np.zeros(x.shape)",
            ),
        ),
    ),
    Rule(
        "affine_pattern",
        what="A pattern has 1 to 4 pairs [step, count]; offset and channel_multiplier are int32.",
        why="GpSimdE generates the indices in up to four nested loops.",
        fix="Write the pattern as in .ap, without the partition dimension.",
        source="nki.isa.iota, nki.isa.affine_select",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 16), dtype=nl.int32, buffer=nl.shared_hbm)
                      tile = nl.ndarray((4, 16), dtype=nl.int32, buffer=nl.sbuf)
                -     nisa.iota(dst=tile, pattern=[[8, 2], [4, 2], [2, 2], [1, 2], [0, 1]], channel_multiplier=100)
                +     nisa.iota(dst=tile, pattern=[[8, 2], [4, 2], [2, 2], [1, 2]], channel_multiplier=100)
                      nl.store(y, tile)
                      return y
                """,
                says="iota: pattern=((8, 2), (4, 2), (2, 2), (1, 2), (0, 1))",
                gives="100 * np.arange(4)[:, None] + np.arange(16)",
            ),
        ),
    ),
    Rule(
        "partition_groups",
        what="Gathers of GpSimdE work on whole groups of 16 partitions.",
        why="Each of its eight processors serves 16.",
        fix="Allocate a multiple of 16 partitions.",
        source="nki.isa.local_gather, nki.isa.topk",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, i):
                      y = nl.ndarray((16, 16), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, index = nl.load(x), nl.load(i)
                      picked = nl.ndarray((16, 16), dtype=x.dtype, buffer=nl.sbuf)
                -     nisa.local_gather(dst=picked[0:8], src_buffer=tile[0:8], index=index[0:8])
                +     nisa.local_gather(dst=picked[0:16], src_buffer=tile[0:16], index=index[0:16])
                      nl.store(y, picked)
                      return y
                """,
                says="local_gather: src_buffer has 8 partitions",
                gives="x[:, ::-1]",
                given="x float32 (16, 16); i uint16 [[15 - n] for n in range(16)]",
            ),
        ),
    ),
    Rule(
        "gather_count",
        what="nisa.local_gather reads at least one index a group, at most those the tile holds and 4096.",
        why="A processor keeps the indices in its own memory.",
        fix="Gather in several calls.",
        source="nki.isa.local_gather",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, i):
                      y = nl.ndarray((16, 16), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, index = nl.load(x), nl.load(i)
                      picked = nl.ndarray((16, 16), dtype=x.dtype, buffer=nl.sbuf)
                -     nisa.local_gather(dst=picked, src_buffer=tile, index=index, num_valid_indices=17)
                +     nisa.local_gather(dst=picked, src_buffer=tile, index=index, num_valid_indices=16)
                      nl.store(y, picked)
                      return y
                """,
                says="local_gather: 17 indices of 16 a group",
                gives="x[:, ::-1]",
                given="x float32 (16, 16); i uint16 [[15 - n] for n in range(16)]",
            ),
        ),
    ),
    Rule(
        "gather_run",
        what="num_elem_per_idx is 1, 2, 4, 8, 16 or 32.",
        why="Runs are moved in powers of two.",
        fix="Split the run, or gather a larger one.",
        source="nki.isa.local_gather",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, i):
                      y = nl.ndarray((16, 32), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, index = nl.load(x), nl.load(i)
                      picked = nl.ndarray((16, 32), dtype=x.dtype, buffer=nl.sbuf)
                -     nisa.local_gather(dst=picked, src_buffer=tile, index=index, num_elem_per_idx=3)
                +     nisa.local_gather(dst=picked, src_buffer=tile, index=index, num_elem_per_idx=2)
                      nl.store(y, picked)
                      return y
                """,
                says="local_gather: num_elem_per_idx=3",
                gives="x[:, (i + np.arange(2)).reshape(-1)]",
                given="x float32 (16, 17); i uint16 [[15 - n] for n in range(16)]",
            ),
        ),
    ),
    Rule(
        "topk_size",
        what="nisa.topk takes 8 to 65535 elements, and K at most as many and below 32768.",
        why="Positions and counts are 16-bit numbers.",
        fix="Search parts, then among their results.",
        source="nki.isa.topk",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 1), dtype=x.dtype, buffer=nl.shared_hbm)
                      values = nl.ndarray((16, 4), dtype=nl.bfloat16, buffer=nl.sbuf)
                      places = nl.ndarray((16, 4), dtype=nl.uint32, buffer=nl.sbuf)
                -     nisa.topk(val_dst=values, idx_dst=places, src=nl.load(x), n=7)
                +     nisa.topk(val_dst=values, idx_dst=places, src=nl.load(x), n=8)
                      nl.store(y, values[0:4, 0:1])
                      return y
                """,
                says="topk: n=7",
                gives="np.sort(x[0:8], axis=0)[4:8]",
                given="x bfloat16 (16, 1)",
            ),
        ),
    ),
)
