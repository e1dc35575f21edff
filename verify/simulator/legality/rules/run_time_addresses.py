"""Rules on addresses that only the device knows."""

from nkismith.verify.simulator.hardware import QUADRANT
from nkismith.verify.simulator.legality.rules.rule import Example, Rule

_TENSOR = "nki.language.NkiTensor"
_POISON = "not defined by the documentation; what the memory holds differs from run to run"

RULES = (
    Rule(
        "dynamic_bounds",
        what="An address computed at run time stays inside its tensor.",
        why="The device stops with an error, or reaches other data.",
        fix="Clamp the index, check stride and offset, or pass oob_mode.skip to a DMA that shall leave such rows out.",
        source="nki.isa.oob_mode; nki-aps",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 2), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, start = nl.load(x), nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
                -     nisa.memset(dst=start, value=7)
                +     nisa.memset(dst=start, value=6)
                      nl.store(y, tile[:, nl.ds(nisa.scalar_load(start), 2)])
                      return y
                """,
                says="dma_copy: src: run-time index 7, which may be 0 to 6",
                gives="x[:, 6:8]",
                at="nl.store",
            ),
        ),
    ),
    Rule(
        "dynamic_partition",
        what="The partition dimension of an on-chip tensor is not indexed at run time.",
        why="The partition is fixed in the instruction; only the offset within it can come from a register.",
        fix="Index a free dimension, or move the data with a DMA.",
        source=_TENSOR,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, n):
                      y = nl.ndarray((4, 1), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, at = nl.load(x), nisa.scalar_load(n)
                -     nl.store(y, tile[nl.ds(at, 1), :])
                +     nl.store(y, tile[:, nl.ds(at, 1)])
                      return y
                """,
                says="a run-time index on the partition dimension of an on-chip tensor (4, 4)",
                gives="x[:, 3:4]",
                given="x float32 (4, 4); n int32 [[3]]",
            ),
        ),
    ),
    Rule(
        "dynamic_slice",
        what="The bounds of a Python slice are known while building.",
        why="The number of elements is part of the instruction.",
        fix="Write nl.ds(start, size): the start may be a run-time scalar, the size is a constant.",
        source="nki.language.ds",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, n):
                      y = nl.ndarray((4, 2), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, start = nl.load(x), nisa.scalar_load(n)
                -     nl.store(y, tile[:, start:start + 2])
                +     nl.store(y, tile[:, nl.ds(start, 2)])
                      return y
                """,
                says="a run-time scalar as a slice bound in dimension 1",
                gives="x[:, 3:5]",
                given="x float32 (4, 8); n int32 [[3]]",
            ),
        ),
    ),
    Rule(
        "index_tile",
        what="An index tile is an integer tile in SBUF of the shape that the access reads: 1x1 for one offset, one row "
        "an element for a gather of rows.",
        why="The engine or the descriptor generator reads it as it stands.",
        fix="Copy the indices into an SBUF tile of uint32 or int32 with one index a row.",
        source=_TENSOR + "; nki.isa.dma_transpose",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, i):
                      y = nl.ndarray((3, 4), dtype=x.dtype, buffer=nl.shared_hbm)
                      ids = nl.load(i)
                -     rows = nl.load(x.vector_select(0, i))
                +     rows = nl.load(x.vector_select(0, ids))
                      nl.store(y, rows)
                      return y
                """,
                says="vector_offset is int32 in hbm",
                gives="x[[5, 0, 7]]",
                given="x float32 (8, 4); i int32 [[5], [0], [7]]",
            ),
        ),
    ),
    Rule(
        "indirect_dim",
        what="Rows are chosen by a vector in dimension 0.",
        why="A descriptor is made for each row.",
        fix="Permute the HBM view so that the dimension comes first.",
        source=_TENSOR,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, i):
                      y = nl.ndarray((3, 8), dtype=x.dtype, buffer=nl.shared_hbm)
                      ids = nl.load(i)
                -     nl.store(y, nl.load(x.vector_select(1, ids)))
                +     nl.store(y, nl.load(x.permute((1, 0)).vector_select(0, ids)))
                      return y
                """,
                says="vector_select on dimension 1",
                gives="x[:, [3, 0, 2]].T",
                given="x float32 (8, 4); i int32 [[3], [0], [2]]",
            ),
        ),
    ),
    Rule(
        "indirect_view",
        what="An access has one run-time term; its dimension is not viewed further, and a kernel returns no such view.",
        why="The hardware adds one register or one index to an address.",
        fix="Arrange the view first and index last; combine offsets with scalar arithmetic.",
        source=_TENSOR,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, i):
                      y = nl.ndarray((2, 4), dtype=x.dtype, buffer=nl.shared_hbm)
                      ids = nl.load(i)
                -     nl.store(y, nl.load(x.vector_select(0, ids)[0:2]))
                +     nl.store(y, nl.load(x.vector_select(0, ids[0:2])))
                      return y
                """,
                says="dimension 0 of shape (3, 4), which is addressed at run time, is sliced",
                gives="x[[5, 0]]",
                given="x float32 (8, 4); i int32 [[5], [0], [7]]",
            ),
            Example(
                """
                  @nki.jit
                  def kernel(x, i):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      nl.store(y, nl.load(x))
                -     return y.vector_select(0, nl.load(i))
                +     return y
                """,
                says="output 't2' is a run-time view",
                gives="x",
                given="x float32 (8, 4); i int32 [[5], [0], [7]]",
                at="y = nl.ndarray",
            ),
        ),
    ),
    Rule(
        "indirect_operand",
        what="A tensor gathered with .indirect is passed only where the instruction's page allows it.",
        why="The gather is a function of single read and write ports.",
        fix="Gather into a tile with nisa.tensor_copy, then use the tile.",
        source="the part on tensor indirection of each instruction's page",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, i):
                      y = nl.ndarray((16, 16), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, columns = nl.load(x), nl.load(i)
                      picked = tile.indirect(columns, num_elem=16)
                -     nisa.reciprocal(dst=tile, data=picked)
                +     nisa.activation(dst=tile, op=nl.exp, data=picked)
                      nl.store(y, tile)
                      return y
                """,
                says="reciprocal: data is an .indirect() view",
                gives="np.exp(x[:, ::-1])",
                given="x float32 (16, 16); i uint32 [[15 - n] for n in range(16)]",
                target="trn3",
            ),
        ),
    ),
    Rule(
        "indirect_placement",
        what=f"With author-given addresses the index of .indirect starts on a multiple of {QUADRANT} partitions, and "
        "on the partition of what it indexes.",
        why="Index and data are read by the same lanes.",
        fix="Give both the same start partition, or leave the addresses out.",
        source="the part on tensor indirection of each instruction's page",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, i):
                      y = nl.ndarray((16, 16), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.ndarray((16, 16), dtype=x.dtype, buffer=nl.sbuf, address=(0, 0))
                -     columns = nl.ndarray((16, 1), dtype=nl.uint32, buffer=nl.sbuf, address=(32, 1024))
                +     columns = nl.ndarray((16, 1), dtype=nl.uint32, buffer=nl.sbuf, address=(0, 1024))
                      nisa.dma_copy(dst=tile, src=x)
                      nisa.dma_copy(dst=columns, src=i)
                      picked = nl.ndarray((16, 16), dtype=x.dtype, buffer=nl.sbuf)
                      nisa.tensor_copy(dst=picked, src=tile.indirect(columns, num_elem=16))
                      nl.store(y, picked)
                      return y
                """,
                says="tensor_copy: the index of src starts on partition 32 and src on 0",
                gives="x[:, ::-1]",
                given="x float32 (16, 16); i uint32 [[15 - n] for n in range(16)]",
                target="trn3",
                at="tensor_copy",
            ),
        ),
    ),
    Rule(
        "unwritten_index",
        what="An index that nothing wrote is not used as an address.",
        why="The address would be arbitrary.",
        fix="Load or compute every index that the access reads.",
        source=_POISON,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, i):
                      y = nl.ndarray((3, 4), dtype=x.dtype, buffer=nl.shared_hbm)
                      ids = nl.ndarray((3, 1), dtype=nl.int32, buffer=nl.sbuf)
                -     nisa.dma_copy(dst=ids[0:2], src=i[0:2])
                +     nisa.dma_copy(dst=ids, src=i)
                      nl.store(y, nl.load(x.vector_select(0, ids)))
                      return y
                """,
                says="dma_copy: src is indexed by a tile (3, 1) with elements that nothing wrote",
                gives="x[[5, 0, 7]]",
                given="x float32 (8, 4); i int32 [[5], [0], [7]]",
                at="vector_select",
            ),
        ),
    ),
)
