"""Rules of DMA."""

from nkismith.verify.simulator.legality.rules.rule import Example, Rule

RULES = (
    Rule(
        "dge_mode",
        what="The descriptor mode fits the access: rows chosen by a vector need swdge or unknown.",
        why="Each generator of descriptors makes some kinds only.",
        fix="Leave dge_mode out.",
        source="nki-dge; nki.isa.dma_copy, nki.isa.dma_transpose",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, i):
                      y = nl.ndarray((3, 4), dtype=x.dtype, buffer=nl.shared_hbm)
                      rows = nl.ndarray((3, 4), dtype=x.dtype, buffer=nl.sbuf)
                      picked = x.vector_select(0, nl.load(i))
                -     nisa.dma_copy(dst=rows, src=picked, dge_mode=nisa.dge_mode.hwdge)
                +     nisa.dma_copy(dst=rows, src=picked, dge_mode=nisa.dge_mode.swdge)
                      nl.store(y, rows)
                      return y
                """,
                says="dma_copy: dge_mode.hwdge with a vector_offset",
                gives="x[[5, 0, 7]]",
                given="x float32 (8, 4); i int32 [[5], [0], [7]]",
            ),
        ),
    ),
    Rule(
        "dma_engine",
        what="engine= of a DMA comes with dge_mode.hwdge and is sync or scalar.",
        why="It names the sequencer that triggers the hardware generator.",
        fix="Leave engine out, or set dge_mode.hwdge too.",
        source="nki.isa.dma_copy",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                -     nisa.dma_copy(dst=y, src=nl.load(x), engine=nisa.engine.scalar)
                +     nisa.dma_copy(dst=y, src=nl.load(x), engine=nisa.engine.scalar, dge_mode=nisa.dge_mode.hwdge)
                      return y
                """,
                says="dma_copy: engine.scalar without dge_mode.hwdge",
                gives="x",
            ),
        ),
    ),
    Rule(
        "dma_priority",
        what="priority is 0 to 3, on trn3.",
        why="Earlier generations have no priorities.",
        fix="Leave it out before trn3.",
        source="nki.isa.dma_copy",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                -     nisa.dma_copy(dst=y, src=nl.load(x), priority=4)
                +     nisa.dma_copy(dst=y, src=nl.load(x), priority=3)
                      return y
                """,
                says="dma_copy: priority=4",
                gives="x",
                target="trn3",
            ),
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                -     nisa.dma_copy(dst=y, src=nl.load(x), priority=0)
                +     nisa.dma_copy(dst=y, src=nl.load(x))
                      return y
                """,
                says="dma_copy: priority=0 on trn2",
                gives="x",
            ),
        ),
    ),
    Rule(
        "dma_scales",
        what="scales of nisa.dma_compute is None, or 1.0 for every source.",
        why="The DMA adds and does not multiply.",
        fix="Multiply on VectorE or ScalarE first.",
        source="nki.isa.dma_compute",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, z):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                -     nisa.dma_compute(dst=y, srcs=[x, z], reduce_op=nl.add, scales=[1.0, 2.0])
                +     nisa.dma_compute(dst=y, srcs=[x, z], reduce_op=nl.add, scales=[1.0, 1.0])
                      return y
                """,
                says="dma_compute: scales=(1.0, 2.0)",
                gives="x + z",
                given="x float32 (4, 8); z float32 (4, 8)",
            ),
        ),
    ),
    Rule(
        "dma_modify",
        what="nisa.dma_compute with rows chosen by a vector has two sources, one of which is dst: rows of HBM plus an "
        "SBUF tile, or an SBUF tile plus rows of HBM.",
        why="The descriptors read, add and write back in one go.",
        fix="Gather the rows with nisa.dma_copy, add on VectorE, and scatter.",
        source="nki.isa.dma_compute",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(table, x, i):
                      y = nl.ndarray(table.shape, dtype=table.dtype, buffer=nl.shared_hbm)
                      nisa.dma_copy(dst=y, src=table)
                      more, rows = nl.load(x), y.vector_select(0, nl.load(i))
                -     nisa.dma_compute(dst=rows, srcs=[rows, more, more], reduce_op=nl.add)
                +     nisa.dma_compute(dst=rows, srcs=[rows, more], reduce_op=nl.add)
                      return y
                """,
                says="dma_compute: vector_offset with 3 sources, 1 of them dst",
                gives="table + np.eye(8)[:, [5, 0, 7]] @ x",
                given="table float32 (8, 4); x float32 (3, 4); i int32 [[5], [0], [7]]",
            ),
        ),
    ),
    Rule(
        "duplicate_index",
        what="Rows that are added to in HBM are all different.",
        why="Descriptors run at the same time: of two additions to one row one is lost.",
        fix="Add rows with the same index together first.",
        source="nki.isa.dma_compute",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(table, x, i):
                      y = nl.ndarray(table.shape, dtype=table.dtype, buffer=nl.shared_hbm)
                      nisa.dma_copy(dst=y, src=table)
                -     ids = nl.load(i[0:3])
                +     ids = nl.load(i[1:4])
                      rows = y.vector_select(0, ids)
                      nisa.dma_compute(dst=rows, srcs=[rows, nl.load(x)], reduce_op=nl.add)
                      return y
                """,
                says="dma_compute: row 5 is added to 2 times",
                gives="table + np.eye(8)[:, [5, 0, 7]] @ x",
                given="table float32 (8, 4); x float32 (3, 4); i int32 [[5], [5], [0], [7]]",
                at="dma_compute",
            ),
        ),
    ),
    Rule(
        "static_address",
        what="The address is known while building where the DMA takes no run-time offset.",
        why="Transposing and adding descriptors are made in a fixed form.",
        fix="Work on a tile, and move the tile with nisa.dma_copy.",
        source="nki.isa.dma_transpose, nki.isa.dma_compute",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x, n):
                      y = nl.ndarray((4, 4), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, at = nl.load(x), nisa.scalar_load(n)
                -     nisa.dma_compute(dst=y, srcs=[tile[:, nl.ds(at, 4)], tile[:, 0:4]], reduce_op=nl.add)
                +     nisa.dma_compute(dst=y, srcs=[tile[:, 3:7], tile[:, 0:4]], reduce_op=nl.add)
                      return y
                """,
                says="dma_compute: srcs0 has a run-time offset",
                gives="x[:, 3:7] + x[:, 0:4]",
                given="x float32 (4, 8); n int32 [[3]]",
            ),
        ),
    ),
    Rule(
        "oob_mode",
        what="oob_mode.skip of nisa.dma_transpose comes with a run-time index on src.",
        why="A static address is inside or wrong.",
        fix="Leave it out.",
        source="nki.isa.dma_transpose",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((8, 16), dtype=x.dtype, buffer=nl.shared_hbm)
                      turned = nl.ndarray((8, 16), dtype=x.dtype, buffer=nl.sbuf)
                -     nisa.dma_transpose(dst=turned, src=x, axes=(1, 0), oob_mode=nisa.oob_mode.skip)
                +     nisa.dma_transpose(dst=turned, src=x, axes=(1, 0), oob_mode=nisa.oob_mode.error)
                      nl.store(y, turned)
                      return y
                """,
                says="dma_transpose: oob_mode.skip on a static transpose",
                gives="x.T",
                given="x float32 (16, 8)",
            ),
        ),
    ),
    Rule(
        "gather_groups",
        what="In a gather with transposition the indices of each group of 16 are all inside the tensor or all outside.",
        why="A descriptor moves 16 rows; the device halts where only some of them exist.",
        fix="Pad to whole groups of 16 rows.",
        source="nki.isa.dma_transpose",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((8, 16), dtype=x.dtype, buffer=nl.shared_hbm)
                      ids = nl.ndarray((16, 1), dtype=nl.uint32, buffer=nl.sbuf)
                -     nisa.iota(dst=ids, pattern=[[1, 1]], channel_multiplier=1, offset=17)
                +     nisa.iota(dst=ids, pattern=[[1, 1]], channel_multiplier=1, offset=16)
                      turned = nl.ndarray((8, 16), dtype=x.dtype, buffer=nl.sbuf)
                      rows = x.vector_select(0, ids)
                      nisa.dma_transpose(dst=turned, src=rows, axes=(1, 0), oob_mode=nisa.oob_mode.skip)
                      nl.store(y, turned)
                      return y
                """,
                says="dma_transpose: of the indices 0 to 15 only 15 are in bounds",
                gives="x[16:32].T",
                given="x bfloat16 (32, 8)",
                at="dma_transpose",
            ),
        ),
    ),
)
