"""Rules of matrix multiplication on TensorE."""

from nkismith.verify.simulator.hardware import PARTITIONS, QUADRANT, STATIONARY_FREE_MAX, TRN2, TRN3
from nkismith.verify.simulator.legality.rules.rule import Example, Rule

RULES = (
    Rule(
        "matmul_contraction",
        what=f"stationary and moving hold the contraction on the same number of partitions, at most {PARTITIONS}.",
        why="Row k of the array multiplies partition k of both.",
        fix=f"Tile K by {PARTITIONS} and accumulate in PSUM; slice both operands alike for the last tile.",
        source="nki.isa.nc_matmul",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(a, b):
                      y = nl.ndarray((8, 16), dtype=nl.float32, buffer=nl.shared_hbm)
                      left, right = nl.load(a), nl.load(b)
                      acc = nl.ndarray((8, 16), dtype=nl.float32, buffer=nl.psum)
                -     nisa.nc_matmul(dst=acc, stationary=left, moving=right[0:32])
                +     nisa.nc_matmul(dst=acc, stationary=left, moving=right[0:64])
                      nl.store(y, nl.copy(acc))
                      return y
                """,
                says="nc_matmul: stationary has 64 partitions, moving 32",
                gives="a.T @ b",
                given="a float32 (64, 8); b float32 (64, 16)",
            ),
        ),
    ),
    Rule(
        "matmul_stationary",
        what=f"stationary has at most {STATIONARY_FREE_MAX} columns; an even number for nc_matmul_mx.",
        why="The array has that many columns.",
        fix="Tile M by nl.tile_size.gemm_stationary_fmax.",
        source="nki.isa.nc_matmul",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(a, b):
                      y = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.shared_hbm)
                      left, right = nl.load(a), nl.load(b)
                      acc = nl.ndarray((128, 16), dtype=nl.float32, buffer=nl.psum)
                -     nisa.nc_matmul(dst=acc, stationary=left[:, 0:129], moving=right)
                +     nisa.nc_matmul(dst=acc, stationary=left[:, 0:128], moving=right)
                      nl.store(y, nl.copy(acc))
                      return y
                """,
                says="nc_matmul: 129 stationary columns, at most 128",
                gives="a[:, 0:128].T @ b",
                given="a float32 (64, 200); b float32 (64, 16)",
            ),
        ),
    ),
    Rule(
        "matmul_moving",
        what=f"moving has at most {TRN2.matmul_free_max_fp32} columns on trn2; on trn3 {TRN3.matmul_free_max_fp32} "
        f"into float32 and {TRN3.matmul_free_max_bf16} into bfloat16.",
        why="The product has to lie in the PSUM that one instruction can write.",
        fix="Tile N by nl.tile_size.gemm_moving_fmax.",
        source="nki.isa.nc_matmul",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(a, b):
                      y = nl.ndarray((8, 512), dtype=nl.float32, buffer=nl.shared_hbm)
                      left, right = nl.load(a), nl.load(b)
                      acc = nl.ndarray((8, 512), dtype=nl.float32, buffer=nl.psum)
                -     nisa.nc_matmul(dst=acc, stationary=left, moving=right[:, 0:513])
                +     nisa.nc_matmul(dst=acc, stationary=left, moving=right[:, 0:512])
                      nl.store(y, nl.copy(acc))
                      return y
                """,
                says="nc_matmul: 513 moving columns, at most 512 on trn2",
                gives="a.T @ b[:, 0:512]",
                given="a float32 (64, 8); b float32 (64, 600)",
            ),
            Example(
                """
                  @nki.jit
                  def kernel(a, b):
                      y = nl.ndarray((2, 4096), dtype=nl.float32, buffer=nl.shared_hbm)
                      left, right = nl.load(a), nl.load(b)
                      acc = nl.ndarray((2, 4096), dtype=nl.float32, buffer=nl.psum)
                -     nisa.nc_matmul(dst=acc, stationary=left, moving=right[:, 0:4097])
                +     nisa.nc_matmul(dst=acc, stationary=left, moving=right[:, 0:4096])
                      nl.store(y, nl.copy(acc))
                      return y
                """,
                says="nc_matmul: 4097 moving columns, at most 4096 on trn3",
                gives="a.T @ b[:, 0:4096]",
                given="a float32 (4, 2); b float32 (4, 5000)",
                target="trn3",
            ),
            Example(
                """
                  @nki.jit
                  def kernel(a, b):
                      y = nl.ndarray((2, 8192), dtype=nl.bfloat16, buffer=nl.shared_hbm)
                      left, right = nl.load(a), nl.load(b)
                      acc = nl.ndarray((2, 8192), dtype=nl.bfloat16, buffer=nl.psum)
                -     nisa.nc_matmul(dst=acc, stationary=left, moving=right[:, 0:8193])
                +     nisa.nc_matmul(dst=acc, stationary=left, moving=right[:, 0:8192])
                      nl.store(y, nl.copy(acc))
                      return y
                """,
                says="nc_matmul: 8193 moving columns, at most 8192 on trn3",
                gives="a.T @ b[:, 0:8192]",
                given="a float32 (4, 2); b float32 (4, 9000)",
                target="trn3",
            ),
        ),
    ),
    Rule(
        "matmul_dtypes",
        what="float32 pairs with float32 only, and the two fp8 formats with four exponent bits do not mix.",
        why="The array multiplies one format at a time.",
        fix="Cast one operand with nisa.tensor_copy.",
        source="nki.isa.nc_matmul",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(a, b):
                      y = nl.ndarray((8, 16), dtype=nl.float32, buffer=nl.shared_hbm)
                      left, right = nl.load(a), nl.load(b)
                      acc = nl.ndarray((8, 16), dtype=nl.float32, buffer=nl.psum)
                -     nisa.nc_matmul(dst=acc, stationary=left, moving=right)
                +     nisa.nc_matmul(dst=acc, stationary=left, moving=nl.copy(right, dtype=nl.float32))
                      nl.store(y, nl.copy(acc))
                      return y
                """,
                says="nc_matmul: float32 with bfloat16",
                gives="a.T @ b",
                given="a float32 (64, 8); b bfloat16 (64, 16)",
            ),
        ),
    ),
    Rule(
        "matmul_dst",
        what="A product is written to PSUM as float32, on trn3 also as bfloat16; a transposition also in the data's "
        "dtype.",
        why="The array accumulates in float32.",
        fix="Allocate the PSUM tile as nl.float32 and cast when copying it to SBUF.",
        source="nki.isa.nc_matmul",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(a, b):
                      y = nl.ndarray((8, 16), dtype=nl.bfloat16, buffer=nl.shared_hbm)
                      left, right = nl.load(a), nl.load(b)
                -     acc = nl.ndarray((8, 16), dtype=nl.bfloat16, buffer=nl.psum)
                +     acc = nl.ndarray((8, 16), dtype=nl.float32, buffer=nl.psum)
                      nisa.nc_matmul(dst=acc, stationary=left, moving=right)
                      nl.store(y, nl.copy(acc, dtype=nl.bfloat16))
                      return y
                """,
                says="nc_matmul: dst is bfloat16 on trn2",
                gives="a.T @ b",
                given="a bfloat16 (16, 8); b bfloat16 (16, 16)",
                at="nc_matmul",
            ),
        ),
    ),
    Rule(
        "matmul_tile",
        what="tile_position and tile_size come together, name a legal tile of the array, and the stationary operand "
        "fits into it.",
        why=f"The array splits into tiles of whole groups of {QUADRANT} rows and columns.",
        fix="Position tiles at multiples of their size, inside the array; gathered operands use the whole array.",
        source="nki.isa.nc_matmul",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(a, b):
                      y = nl.ndarray((8, 16), dtype=nl.float32, buffer=nl.shared_hbm)
                      left, right = nl.load(a), nl.load(b)
                      acc = nl.ndarray((8, 16), dtype=nl.float32, buffer=nl.psum)
                      nisa.nc_matmul(
                          dst=acc, stationary=left, moving=right, tile_size=(64, 128),
                -         tile_position=(32, 0),
                +         tile_position=(64, 0),
                      )
                      nl.store(y, nl.copy(acc))
                      return y
                """,
                says="nc_matmul: tile_position=(32, 0) with tile_size=(64, 128)",
                gives="a.T @ b",
                given="a float32 (64, 8); b float32 (64, 16)",
                at="nc_matmul(",
            ),
        ),
    ),
    Rule(
        "matmul_double_row",
        what="perf_mode double_row takes fp8 operands of shape (K, 2, columns), no transposition and no column tiling.",
        why="Each row of the array multiplies two values of the contraction.",
        fix="Put the second half of the contraction into dimension 1, or leave perf_mode out.",
        source="nki.isa.nc_matmul",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(a, b):
                      y = nl.ndarray((8, 16), dtype=nl.float32, buffer=nl.shared_hbm)
                      left, right = nl.load(a), nl.load(b)
                      acc = nl.ndarray((8, 16), dtype=nl.float32, buffer=nl.psum)
                      double = nisa.matmul_perf_mode.double_row
                -     nisa.nc_matmul(dst=acc, stationary=left, moving=right[:, 0], perf_mode=double)
                +     nisa.nc_matmul(dst=acc, stationary=left, moving=right, perf_mode=double)
                      nl.store(y, nl.copy(acc))
                      return y
                """,
                says="nc_matmul: moving is (32, 16)",
                gives="np.einsum('ktm,ktn->mn', a, b)",
                given="a float8_e4m3 (32, 2, 8); b float8_e4m3 (32, 2, 16)",
            ),
        ),
    ),
    Rule(
        "mx_partitions",
        what=f"Operands of the MX instructions span {QUADRANT}, {2 * QUADRANT}, {3 * QUADRANT} or {PARTITIONS} "
        "partitions.",
        why="A scale belongs to 8 partitions by 4 elements, and scales are read by quadrants.",
        fix="Pad the contraction with zeros.",
        source="mxfp-matmul",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 2), dtype=nl.uint8, buffer=nl.shared_hbm)
                      tile = nl.load(x)
                      packed = nl.ndarray((32, 2), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
                      scale = nl.ndarray((4, 2), dtype=nl.uint8, buffer=nl.sbuf)
                -     nisa.quantize_mx(dst=packed, src=tile[0:16], dst_scale=scale)
                +     nisa.quantize_mx(dst=packed, src=tile[0:32], dst_scale=scale)
                      nl.store(y, scale)
                      return y
                """,
                says="quantize_mx: src has 16 partitions",
                gives="127 - 7 + np.floor(np.log2(np.abs(x).reshape(4, 8, 2, 4).max(axis=(1, 3))))",
                given="x bfloat16 (32, 8)",
                target="trn3",
            ),
        ),
    ),
    Rule(
        "mx_scale",
        what="Scales have the data's columns and lie on the first partitions of each quadrant, from 0, 4, 8 or 12 on.",
        why="The instruction reads them from there.",
        fix="Allocate (P/8, N) inside one quadrant, else (P, N), and let nisa.quantize_mx fill it.",
        source="nki.isa.nc_matmul_mx",
        examples=(
            Example(
                """
                  @nki.jit
                  def kernel(x):
                      y = nl.ndarray((4, 2), dtype=nl.uint8, buffer=nl.shared_hbm)
                      packed = nl.ndarray((32, 2), dtype=nl.float8_e4m3fn_x4, buffer=nl.sbuf)
                      scales = nl.ndarray((32, 2), dtype=nl.uint8, buffer=nl.sbuf)
                -     scale = scales[6:10]
                +     scale = scales[4:8]
                      nisa.quantize_mx(dst=packed, src=nl.load(x), dst_scale=scale)
                      nl.store(y, scale)
                      return y
                """,
                says="quantize_mx: dst_scale starts at 6 of its quadrant",
                gives="127 - 7 + np.floor(np.log2(np.abs(x).reshape(4, 8, 2, 4).max(axis=(1, 3))))",
                given="x bfloat16 (32, 8)",
                target="trn3",
                at="quantize_mx",
            ),
        ),
    ),
)
