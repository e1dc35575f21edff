"""Rules on views of tensors, indices known while building, and grids of tiles."""

from nkismith.verify.simulator.legality.rules.rule import Example, Rule

_TENSOR = "nki.language.NkiTensor"

RULES = (
    Rule(
        "index_bounds",
        what="An index or slice known while building stays inside the dimension and selects at least one element; so "
        "does the size of nl.ds, and the counts of .ap are positive.",
        why="Slices are not shortened as NumPy does: the address would be computed as it stands.",
        fix="Clamp the last tile: size = min(step, n - start).",
        source="nki-language-guide",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 4), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nl.store(y[:, 0:3], tile[:, 5:9])
                +     nl.store(y[:, 0:4], tile[:, 4:8])
                      return y
                """,
                says="index 5:9 in dimension 1 of a tensor of shape (4, 8)",
                gives="x[:, 4:8]",
            ),
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 1), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      start = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
                      nisa.memset(dst=start, value=3)
                -     nl.store(y, tile[:, nl.ds(nisa.scalar_load(start), 0)])
                +     nl.store(y, tile[:, nl.ds(nisa.scalar_load(start), 1)])
                      return y
                """,
                says="index nl.ds(..., 0) in dimension 1 of a tensor of shape (4, 8)",
                gives="x[:, 3:4]",
            ),
        ),
    ),
    Rule(
        "index_type",
        what="A tensor is indexed with ints, slices, Ellipsis, nl.ds or a run-time scalar.",
        why="An access is a pattern of strides and counts; lists and masks are none.",
        fix="Gather with .vector_select, .indirect or a gather instruction.",
        source=_TENSOR,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 4), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nl.store(y, tile[:, [0, 2, 4, 6]])
                +     nl.store(y, tile[:, 0:8:2])
                      return y
                """,
                says="index of type list in dimension 1",
                gives="x[:, 0:8:2]",
            ),
        ),
    ),
    Rule(
        "view_dim",
        what="A view names dimensions that exist, each once where all are named.",
        why="The call has no other meaning.",
        fix="Count dimensions from 0; the partition dimension is 0.",
        source=_TENSOR,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 2, 3), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nl.store(y, tile.permute((0, 2, 2)))
                +     nl.store(y, tile.permute((0, 2, 1)))
                      return y
                """,
                says="permute((0, 2, 2)) of a tensor of shape (4, 3, 2)",
                gives="x.transpose(0, 2, 1)",
                given="x float32 (4, 3, 2)",
            ),
        ),
    ),
    Rule(
        "view_partition",
        what="A view of an on-chip tensor leaves the partition dimension where it is and as long as it is.",
        why="Partitions are different memories: no access pattern moves data between them.",
        fix="Transpose with nisa.nc_transpose, broadcast with a matmul or by loading from a repeated source.",
        source=_TENSOR,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((3, 4, 2), dtype=x.dtype, buffer=nl.shared_hbm)
                -     nl.store(y, nl.load(x).permute((1, 0, 2)))
                +     nl.store(y, nl.load(x.permute((1, 0, 2))))
                      return y
                """,
                says="permute((1, 0, 2)) moves the partition dimension",
                gives="x.transpose(1, 0, 2)",
                given="x float32 (4, 3, 2)",
            ),
        ),
    ),
    Rule(
        "partition_stride",
        what="The partitions of an on-chip operand follow each other.",
        why="An engine addresses a first partition and a number of them, without a stride.",
        fix="Keep what belongs together in neighbouring partitions.",
        source="trainium2_arch",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((2, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
                -     nl.store(y, nl.load(x)[0:4:2])
                +     nl.store(y, nl.load(x[0:4:2]))
                      return y
                """,
                says="partitions of 't2' with stride 2",
                gives="x[0:4:2]",
            ),
        ),
    ),
    Rule(
        "ap_partition",
        what="On chip a pattern of .ap leads with [elements a partition, partitions] and has a free dimension.",
        why="The first pair is the partition dimension, whose stride the hardware fixes.",
        fix="Lead with the pair that the message gives.",
        source="nki-aps",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 4), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nl.store(y, tile.ap([[4, 4], [1, 4]]))
                +     nl.store(y, tile.ap([[8, 4], [1, 4]]))
                      return y
                """,
                says="pattern [[4, 4], [1, 4]] on an on-chip tensor with 8 elements a row",
                gives="x[:, 0:4]",
            ),
        ),
    ),
    Rule(
        "view_layout",
        what="A view can be written with strides: elements lie where the new shape needs them.",
        why="A view moves nothing; a reshape across a permuted dimension would have to.",
        fix="Copy into a new tile first, or reshape before permuting.",
        source=_TENSOR,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 6), dtype=x.dtype, buffer=nl.shared_hbm)
                      turned = nl.load(x).permute((0, 2, 1))
                -     nl.store(y, turned.reshape((4, 6)))
                +     nl.store(y, nl.copy(turned).reshape((4, 6)))
                      return y
                """,
                says="reshape((4, 6)) of a view with shape (4, 2, 3) and strides (6, 1, 2)",
                gives="x.transpose(0, 2, 1).reshape(4, 6)",
                given="x float32 (4, 3, 2)",
            ),
        ),
    ),
    Rule(
        "view_size",
        what="A reshaped view has as many elements as the tensor.",
        why="A view moves, drops and adds nothing.",
        fix="Leave one extent as -1, or slice first.",
        source=_TENSOR,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 2, 4), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nl.store(y, tile.reshape((4, 3, 3)))
                +     nl.store(y, tile.reshape((4, 2, -1)))
                      return y
                """,
                says="shape (4, 3, 3) for 32 elements",
                gives="x.reshape(4, 2, 4)",
            ),
        ),
    ),
    Rule(
        "view_broadcast",
        what="Only a dimension of extent 1 is broadcast, to a positive size.",
        why="A stride of 0 repeats one element.",
        fix="Select one element, or add a dimension with .expand_dim.",
        source=_TENSOR,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nl.store(y, tile[:, 0:2].broadcast(1, 8))
                +     nl.store(y, tile[:, 0:1].broadcast(1, 8))
                      return y
                """,
                says="dimension 1 of shape (4, 2) has not extent 1",
                gives="np.repeat(x[:, 0:1], 8, axis=1)",
            ),
        ),
    ),
    Rule(
        "view_rearrange",
        what="A rearrangement names every dimension once on both sides, at least one in each group, and positive sizes "
        "divide the extents they split.",
        why="Otherwise the pattern does not say where each element goes.",
        fix="Give fixed_sizes for all but one name of a group.",
        source=_TENSOR,
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 4, 2), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nl.store(y, tile.rearrange(("p", ("a", "b")), ("p", "b", "a"), {"a": 3}))
                +     nl.store(y, tile.rearrange(("p", ("a", "b")), ("p", "b", "a"), {"a": 2}))
                      return y
                """,
                says="extent 8 does not split into ('a', 'b') with {'a': 3}",
                gives="x.reshape(4, 2, 4).transpose(0, 2, 1)",
            ),
        ),
    ),
    Rule(
        "grid_data",
        what=".data of a selection of tiles exists where one access pattern covers it.",
        why="Tiles of several rows may lie apart in a way that strides cannot express.",
        fix="Index one tile or block; .is_data_representable tells beforehand.",
        source="nki.language.NkiGrid",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
                      grid = nl.tiles(x, tile_shape=(4, 8))
                -     first = nl.load(grid[0:3, 0].data)
                +     first = nl.load(grid[0, 0].data)
                      nl.store(y, first)
                      return y
                """,
                says="no access pattern covers (10, 8) elements in tiles of (4, 8)",
                gives="x[0:4]",
                given="x float32 (10, 8)",
            ),
        ),
    ),
    Rule(
        "grid_retile",
        what="A selection of tiles that does not lie densely keeps its tile shape.",
        why="Other tiles would cut through the gaps.",
        fix="Tile the tensor itself, or keep the tiles and group them into blocks.",
        source="nki.language.tiles",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 16), dtype=x.dtype, buffer=nl.shared_hbm)
                      grid = nl.alloc_tiles(tile_shape=(4, 8), element_shape=(8, 8), buffer=nl.sbuf, dtype=x.dtype)
                      for row in range(2):
                          nisa.dma_copy(dst=grid[row, 0].data, src=x[4 * row : 4 * row + 4])
                -     whole = nl.tiles(grid, tile_shape=(2, 8))
                +     whole = nl.tiles(grid, tile_shape=(4, 8))
                      nl.store(y, whole.data)
                      return y
                """,
                says="tiles of (4, 8) as tiles of (2, 8)",
                gives="x.reshape(2, 4, 8).transpose(1, 0, 2).reshape(4, 16)",
                given="x float32 (8, 8)",
            ),
        ),
    ),
)
