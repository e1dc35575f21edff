"""Rules on where tensors lie: memories, partitions, banks, capacity, addresses."""

from nkismith.verify.simulator.hardware import PARTITIONS, PSUM_BANK_BYTES, PSUM_BANKS, TRN2, TRN3
from nkismith.verify.simulator.legality.rules.rule import Example, Rule

RULES = (
    Rule(
        "buffer",
        what="Each operand lies in a memory that its instruction reaches: engines use SBUF and PSUM, TensorE reads "
        "SBUF and writes PSUM, DMA moves between HBM and SBUF; a tensor is made in nl.sbuf, nl.psum, nl.shared_hbm or "
        "nl.private_hbm.",
        why="Each engine and each DMA queue is wired to some memories only.",
        fix="Move the data first: HBM to SBUF with nisa.dma_copy, PSUM to SBUF with nisa.tensor_copy.",
        source="trainium2_arch; the page of each instruction of nki.isa",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                -     nisa.activation(dst=tile, op=nl.exp, data=x)
                +     nisa.activation(dst=tile, op=nl.exp, data=tile)
                      nl.store(y, tile)
                      return y
                """,
                says="activation: data is in hbm",
                gives="np.exp(x)",
            ),
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                -     tile = nl.ndarray(x.shape, dtype=x.dtype, buffer="sbuf")
                +     tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
                      nisa.dma_copy(dst=tile, src=x)
                      nl.store(y, tile)
                      return y
                """,
                says="buffer='sbuf'",
                gives="x",
            ),
        ),
    ),
    Rule(
        "tile_shape",
        what="A shape is a tuple of positive integers known while building; on chip it has a partition and at least "
        "one free dimension.",
        why="Memory is laid out before the kernel runs.",
        fix="Take extents from the shapes of the inputs; write (P, 1) for a column.",
        source="nki.language.ndarray",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
                -     total = nl.ndarray((x.shape[0],), dtype=x.dtype, buffer=nl.sbuf)
                +     total = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.sbuf)
                      nisa.tensor_reduce(dst=total, op=nl.add, data=nl.load(x), axis=1)
                      nl.store(y, total)
                      return y
                """,
                says="an on-chip tensor of shape (4,)",
                gives="x.sum(axis=1, keepdims=True)",
            ),
        ),
    ),
    Rule(
        "partition_limit",
        what=f"An on-chip operand spans at most {PARTITIONS} partitions.",
        why="SBUF and PSUM have that many, and an engine has one lane for each.",
        fix=f"Tile dimension 0 in steps of {PARTITIONS} (nl.tile_size.pmax), with min() for the last tile.",
        source="trainium2_arch; release note 0.6.0",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
                -     tile = nl.load(x[0:129])
                +     tile = nl.load(x[0:128])
                      nl.store(y, tile[0:128])
                      return y
                """,
                says="dma_copy: dst has 129 partitions, at most 128",
                gives="x[0:128]",
                given="x float32 (200, 4)",
            ),
        ),
    ),
    Rule(
        "start_partition",
        what="An operand of more than 64 partitions starts on partition 0, one of more than 32 on 0 or 64, a smaller "
        "one on 0, 32, 64 or 96; a tile with an address starts on one of these four.",
        why="Engines address partitions in groups of 32, and larger accesses only from aligned starts.",
        fix="Slice at those partitions, or move the rows with nisa.dma_copy, which may start anywhere.",
        source="trainium2_arch",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((32, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      part = nl.ndarray((32, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
                -     nisa.tensor_copy(dst=part, src=tile[80:112])
                +     nisa.tensor_copy(dst=part, src=tile[96:128])
                      nl.store(y, part)
                      return y
                """,
                says="tensor_copy: src spans 32 partitions from 80",
                gives="x[96:128]",
                given="x float32 (128, 4)",
            ),
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((64, x.shape[1]), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      part = nl.ndarray((64, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
                -     nisa.tensor_copy(dst=part, src=tile[32:96])
                +     nisa.tensor_copy(dst=part, src=tile[64:128])
                      nl.store(y, part)
                      return y
                """,
                says="tensor_copy: src spans 64 partitions from 32",
                gives="x[64:128]",
                given="x float32 (128, 4)",
            ),
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                -     tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, address=(16, 0))
                +     tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, address=(32, 0))
                      nisa.dma_copy(dst=tile, src=x)
                      nl.store(y, tile)
                      return y
                """,
                says="of shape (4, 8) float32: starts at partition 16",
                gives="x",
            ),
        ),
    ),
    Rule(
        "psum_bank",
        what=f"A PSUM tile with an address starts on a bank: a multiple of {PSUM_BANK_BYTES} bytes a partition. What "
        "one instruction of TensorE writes lies in one bank on trn2.",
        why="TensorE accumulates within banks; from trn3 on a product may span them.",
        fix="Give bank * nl.tile_size.psum_bank_fmax_bytes, or leave the address out; split a product at the banks.",
        source="nki-migration; trainium_inferentia2_arch",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(a, b):
                      y = nl.ndarray((32, 512), dtype=a.dtype, buffer=nl.shared_hbm)
                      wide = nl.ndarray((32, 1024), dtype=nl.float32, buffer=nl.psum)
                -     product = wide[:, 256:768]
                +     product = wide[:, 512:1024]
                      nisa.nc_matmul(dst=product, stationary=nl.load(a), moving=nl.load(b))
                      nl.store(y, nl.copy(product))
                      return y
                """,
                given="a float32 (16, 32); b float32 (16, 512)",
                gives="a.T @ b",
                at="nc_matmul",
                says="banks 0 to 1",
            ),
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                -     acc = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.psum, address=(0, 1024))
                +     acc = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.psum, address=(0, 2048))
                      nisa.tensor_copy(dst=acc, src=nl.load(x))
                      nl.store(y, nl.copy(acc))
                      return y
                """,
                says="tile 't2' of shape (4, 8) float32: starts at byte 1024",
                gives="x",
            ),
        ),
    ),
    Rule(
        "sbuf_overflow",
        what=f"The tiles that are live at one time fit into SBUF: {TRN2.sbuf_usable_bytes} usable bytes a partition on "
        f"trn2, {TRN3.sbuf_usable_bytes} on trn3. Liveness is counted for each slice of a tile that is written apart.",
        why="Beyond that the compiler would have to spill to HBM, and an instruction that needs more cannot run.",
        fix="Make tiles smaller, or make them inside the loop that uses them so that they die earlier.",
        source="memory-hierarchy-overview; nki.compiler (linear scan)",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
                -     wide = nl.ndarray((1, 53_247), dtype=nl.float32, buffer=nl.sbuf)
                +     wide = nl.ndarray((1, 53_246), dtype=nl.float32, buffer=nl.sbuf)
                      nisa.memset(dst=wide, value=3.0)
                      nl.store(y, wide[:, 0:1])
                      return y
                """,
                says="t2 needs 212,988 bytes a partition and would bring SBUF to 212,988 of 212,984",
                gives="np.full((1, 1), 3.0)",
            ),
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
                -     wide = nl.ndarray((1, 61_439), dtype=nl.float32, buffer=nl.sbuf)
                +     wide = nl.ndarray((1, 61_438), dtype=nl.float32, buffer=nl.sbuf)
                      nisa.memset(dst=wide, value=3.0)
                      nl.store(y, wide[:, 0:1])
                      return y
                """,
                says="t2 needs 245,756 bytes a partition and would bring SBUF to 245,756 of 245,752",
                gives="np.full((1, 1), 3.0)",
                target="trn3",
            ),
        ),
    ),
    Rule(
        "psum_overflow",
        what=f"The PSUM tiles that are live at one time fit into {PSUM_BANKS} banks of {PSUM_BANK_BYTES} bytes a "
        "partition; a tile of at most a bank does not straddle two.",
        why="Nothing spills from PSUM.",
        fix="Copy finished results to SBUF before starting more, or reuse a tile.",
        source="trainium2_arch",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((x.shape[0], 1), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      total = nl.copy(tile[:, 0:1])
                      banks = []
                -     for i in range(9):
                +     for i in range(8):
                          acc = nl.ndarray((128, 512), dtype=nl.float32, buffer=nl.psum)
                          nisa.memset(dst=acc, value=1.0)
                          banks.append(acc)
                      for acc in banks:
                          nisa.tensor_tensor(dst=total, data1=total, data2=acc[:, 0:1], op=nl.add)
                      nl.store(y, total)
                      return y
                """,
                says="t12 needs 2,048 bytes a partition and would bring PSUM to 18,432 of 16,384; the "
                "largest live tiles are t4 (line 8, 2,048), t5 (line 8, 2,048), t6 (line 8, 2,048)",
                gives="x[:, 0:1] + 8",
                given="x float32 (128, 4)",
                at="nl.psum",
            ),
        ),
    ),
    Rule(
        "address",
        what="An address is (start partition, byte offset) on chip and (offset,) in HBM, and the whole tile lies "
        "inside its memory.",
        why="The author has taken the allocator's place.",
        fix="Leave the address out, or compute it from the sizes in nl.tile_size.",
        source="nki.language.ndarray",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                -     acc = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.psum, address=(0, 8 * 2048))
                +     acc = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.psum, address=(0, 7 * 2048))
                      nisa.tensor_copy(dst=acc, src=nl.load(x))
                      nl.store(y, nl.copy(acc))
                      return y
                """,
                says="tile 't2' of shape (4, 512) float32: partitions 0..3, bytes 16384..18431",
                gives="x",
                given="x float32 (4, 512)",
            ),
        ),
    ),
    Rule(
        "address_clash",
        what="A tile is not read where another tile at an overlapping address has been written since.",
        why="Both tiles are the same bytes of the memory: the older data is gone.",
        fix="Move one of the tiles, or read before the other is written.",
        source="nki.language.ndarray",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
                      a = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, address=(0, 0))
                -     b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, address=(0, 28))
                +     b = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf, address=(0, 32))
                      nisa.dma_copy(dst=a, src=x)
                      nisa.memset(dst=b, value=1.0)
                      nisa.tensor_tensor(dst=b, data1=a, data2=b, op=nl.add)
                      nl.store(y, b)
                      return y
                """,
                says="tensor_tensor reads 't2' (line 4) where line 7 has written another tile that was "
                "given the same address",
                gives="x + 1",
                at="tensor_tensor",
            ),
        ),
    ),
)
