"""Rules of transpositions, whichever engine makes them."""

from nkismith.verify.simulator.legality.rules.rule import Example, Rule

RULES = (
    Rule(
        "transpose_axes",
        what="The axes of a transposition are those that the call takes, one for each dimension.",
        why="DMA transposes whole outer against inner dimensions only; a grid permutes all of its dimensions.",
        fix="Use (1, 0), (2, 1, 0) or (3, 1, 2, 0), or permute the view.",
        source="nki.isa.dma_transpose; nki.language.tiles",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((16, 4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
                      turned = nl.ndarray((16, 4, 8), dtype=x.dtype, buffer=nl.sbuf)
                -     nisa.dma_transpose(dst=turned, src=x, axes=(2, 0, 1))
                +     nisa.dma_transpose(dst=turned, src=x, axes=(2, 1, 0))
                      nl.store(y, turned)
                      return y
                """,
                says="dma_transpose: axes=(2, 0, 1) of shape (8, 4, 16)",
                gives="x.transpose(2, 1, 0)",
                given="x float32 (8, 4, 16)",
            ),
        ),
    ),
    Rule(
        "transpose_size",
        what="A transposition fits its engine: 128 x 128 from SBUF to PSUM on TensorE, 32 x 32 on VectorE, for DMA "
        "with a vector_offset whole groups of 16 rows, and with dge_mode.hwdge exactly 16 rows, or 1, 2, 4, 8 or 16 "
        "outer ones that make whole groups of 16 with the inner ones.",
        why="Each transposes blocks of that size.",
        fix="Tile it, or choose another engine.",
        source="nki.isa.nc_transpose, nki.isa.dma_transpose",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((32, 32), dtype=x.dtype, buffer=nl.shared_hbm)
                      tile, turned = nl.load(x), nl.ndarray((64, 32), dtype=x.dtype, buffer=nl.sbuf)
                -     nisa.nc_transpose(dst=turned[0:33], data=tile[:, 0:33])
                +     nisa.nc_transpose(dst=turned[0:32], data=tile[:, 0:32])
                      nl.store(y, turned[0:32])
                      return y
                """,
                says="nc_transpose: (32, 33) from sbuf to sbuf on vector, at most 32 x 32",
                gives="x[:, 0:32].T",
                given="x float32 (32, 64)",
            ),
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((8, 16), dtype=x.dtype, buffer=nl.shared_hbm)
                      turned = nl.ndarray((8, 32), dtype=x.dtype, buffer=nl.sbuf)
                      hardware = nisa.dge_mode.hwdge
                -     nisa.dma_transpose(dst=turned[:, 0:32], src=x[0:32], axes=(1, 0), dge_mode=hardware)
                +     nisa.dma_transpose(dst=turned[:, 0:16], src=x[0:16], axes=(1, 0), dge_mode=hardware)
                      nl.store(y, turned[:, 0:16])
                      return y
                """,
                says="dma_transpose: src has 32 rows under dge_mode.hwdge",
                gives="x[0:16].T",
                given="x bfloat16 (32, 8)",
            ),
        ),
    ),
    Rule(
        "transpose_fp8_step",
        what="On trn2 the transpose of fp8 data goes to every second element of a PSUM tile.",
        why="TensorE writes 16 bits for each element there.",
        fix="Allocate the tile twice as wide and slice it with step 2.",
        source="nki.isa.nc_transpose",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((8, 64), dtype=x.dtype, buffer=nl.shared_hbm)
                      turned = nl.ndarray((8, 128), dtype=x.dtype, buffer=nl.psum)
                -     half = turned[:, 0:64]
                +     half = turned[:, 0:128:2]
                      nisa.nc_transpose(dst=half, data=nl.load(x))
                      nl.store(y, nl.copy(half))
                      return y
                """,
                says="nc_transpose: dst holds the transpose of float8_e4m3 with strides [1]",
                gives="x.T",
                given="x float8_e4m3 (64, 8)",
                at="nc_transpose",
            ),
        ),
    ),
)
