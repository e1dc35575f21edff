"""TensorE: matrix multiplication into PSUM and transposition.

Products of inputs up to 16 bits are exact in float32; sums are float32. Reads SBUF, writes PSUM.
"""

import numpy as np

from nkismith.verify.simulator.dtypes import FP8, ITEMSIZE, cast
from nkismith.verify.simulator.enums import engine, matmul_perf_mode
from nkismith.verify.simulator.gather import is_gather
from nkismith.verify.simulator.hardware import PARTITIONS, QUADRANT, STATIONARY_FREE_MAX
from nkismith.verify.simulator.instruction import ENUM, ON_CHIP, PLAIN, PSUM, SBUF, instruction, out, tile
from nkismith.verify.simulator.instructions.checks import check_same_dtype
from nkismith.verify.simulator.instructions.psum import (
    add_product,
    check_accumulate,
    check_bank,
    check_moving,
    check_pe_tile,
)

NONE = matmul_perf_mode.none
UNKNOWN = engine.unknown
MATMUL_DTYPES = frozenset({"float8_e4m3", "float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "tfloat32", "float32"})
WIDE = frozenset({"float32", "tfloat32"})


@instruction(
    engines=("tensor",),
    taint="run",
    limits=(
        "contraction K <= 128 partitions, 256 with double_row",
        "M <= 128 stationary columns",
        "N <= 512 moving columns (trn2); 4096 into float32, 8192 into bfloat16 (trn3)",
        "float32 and tfloat32 pair with each other only; float8_e4m3fn on trn3 only, never with float8_e4m3",
        "dst float32; bfloat16 on trn3; the dtype of the data with is_transpose",
    ),
    cost="max(N, 64) for 16 and 8 bits, 4 times that for float32; loading the stationary tile hides behind it",
)
class nc_matmul:
    """dst = stationary.T @ moving with the contraction on partitions; float32 accumulation in PSUM.

    accumulate=False overwrites, True adds, None overwrites at the first write to a PSUM location and adds later.
    is_transpose moves stationary bit by bit to where the ones of moving (an identity) say. perf_mode double_row
    takes fp8 operands [K, 2, M] and [K, 2, N] and contracts both first dimensions.
    """

    def signature(
        dst: out(PSUM, MATMUL_DTYPES, indirect=True),
        stationary: tile(SBUF, MATMUL_DTYPES, indirect=True),
        moving: tile(SBUF, MATMUL_DTYPES, indirect=True),
        is_stationary_onezero: PLAIN = False,
        is_moving_onezero: PLAIN = False,
        is_transpose: PLAIN = False,
        accumulate: PLAIN = None,
        tile_position: PLAIN = (),
        tile_size: PLAIN = (),
        perf_mode: ENUM = NONE,
    ): ...

    def accumulates(site):
        return site.attr("accumulate") is not False and not site.attr("is_transpose")

    def check(site):
        check_matmul_dtypes(site)
        double = site.attr("perf_mode") == "double_row"
        if double:
            check_double_row(site)
        k, per = site.partitions("moving"), 2 if double else 1
        m, n = site.free("stationary") // per, site.free("moving") // per
        if site.partitions("stationary") != k:
            raise site.refuse(
                "matmul_contraction",
                f"stationary has {site.partitions('stationary')} partitions, moving {k}",
                "both operands hold the contraction on partitions",
            )
        if m > STATIONARY_FREE_MAX:
            raise site.refuse("matmul_stationary", f"{m} stationary columns, at most {STATIONARY_FREE_MAX}", "tile M")
        check_moving(site, n)
        if (site.partitions("dst"), site.free("dst")) != (m, n):
            raise site.refuse("operand_shapes", f"dst is {site.shape('dst')}, the product is ({m}, {n})", "match it")
        check_bank(site)
        check_accumulate(site)
        check_pe_tile(site, k, m, columns=(32, 64, 128), alone=double)
        indirect = [o for o in ("dst", "stationary", "moving") if is_gather(site.operand(o))]
        for name in indirect[:1]:
            if site.attr("tile_position") and tuple(site.attr("tile_position")) != (0, 0):
                raise site.refuse("matmul_tile", f"{name} is indirect under tiling", "drop tile_position")
            if site.attr("is_transpose") and "moving" in indirect:
                raise site.refuse("indirect_operand", "moving is indirect under is_transpose", "gather it first")
            if {site.dtype("stationary"), site.dtype("moving")} & WIDE:
                raise site.refuse("dtype", "float32 operands with .indirect()", "16-bit floats or fp8")
        if site.attr("is_transpose"):
            check_fp8_step(site, "stationary")

    def run(m, site):
        if site.attr("is_transpose"):
            move_ones(m, site)
            return
        sides = []
        for name in ("stationary", "moving"):
            values, tainted = m.f32(name), m.taint(name)
            if site.attr("perf_mode") == "double_row":
                values = values.reshape(2 * len(values), -1)
            sides.append((values, None if tainted is None else tainted.reshape(values.shape).any(axis=0)))
        (stationary, rows), (moving, columns) = sides
        add_product(m, site, stationary.T, moving, rows, columns)


def check_matmul_dtypes(site):
    """The dtype table of nc_matmul."""
    first, second, result = site.dtype("stationary"), site.dtype("moving"), site.dtype("dst")
    if (first in WIDE) != (second in WIDE):
        raise site.refuse("matmul_dtypes", f"{first} with {second}", "float32 pairs with float32 only: cast one")
    if "float8_e4m3fn" in (first, second):
        if site.target.generation < 4:
            raise site.refuse("target", f"float8_e4m3fn on TensorE of {site.target.name}", "use float8_e4m3")
        if "float8_e4m3" in (first, second):
            raise site.refuse("matmul_dtypes", f"{first} with {second}", "both fp8 formats of 4 exponent bits alike")
    allowed = {"float32"} | ({"bfloat16"} if site.target.generation >= 4 else set())
    if site.attr("is_transpose"):
        allowed |= {first}
    if result not in allowed:
        raise site.refuse(
            "matmul_dst", f"dst is {result} on {site.target.name}", f"allocate PSUM as {' or '.join(sorted(allowed))}"
        )


def check_double_row(site):
    """fp8 operands whose first free dimension is the second half of the contraction."""
    for name in ("stationary", "moving"):
        if site.dtype(name) not in FP8:
            raise site.refuse("matmul_double_row", f"{name} is {site.dtype(name)}", "double_row takes fp8 operands")
        if len(site.shape(name)) < 3 or site.shape(name)[1] != 2:
            raise site.refuse("matmul_double_row", f"{name} is {site.shape(name)}", "shape it (K, 2, columns)")
    if site.attr("is_transpose"):
        raise site.refuse("matmul_double_row", "double_row with is_transpose", "transpose without perf_mode")


def check_fp8_step(site, data):
    """On NeuronCore-v3 the transpose of fp8 lands as 16-bit elements: the value, then a zero byte."""
    if ITEMSIZE[site.dtype(data)] != 1 or site.target.generation > 3 or ITEMSIZE[site.dtype("dst")] != 1:
        return
    operand = site.operand("dst")
    if operand.offset % 2 or any(stride % 2 for stride, count in operand.pattern if count > 1):
        raise site.refuse(
            "transpose_fp8_step",
            f"dst holds the transpose of {site.dtype(data)} with strides {[s for s, _ in operand.pattern]}",
            "TensorE of trn2 writes 16 bits an element: slice a tile twice as wide with step 2",
        )


def pairs_of_bytes(operand):
    """An operand of 1-byte elements with step 2 as the 16-bit elements that contain them."""
    return operand._replace(
        dtype="uint16", offset=operand.offset // 2, pattern=tuple((s // 2, n) for s, n in operand.pattern)
    )


def put_moved(m, site, data, bits):
    """Write transposed bits [M, N] of an operand's dtype to dst."""
    if site.dtype("dst") != site.dtype(data):
        m.put("dst", bits.astype(np.float32))
    elif lands_in_pairs(m, site, data):
        operand = pairs_of_bytes(m.operand("dst"))
        m.memory.view(operand)[...] = cast(bits, site.dtype(data)).view(np.uint8).reshape(operand.shape)
    else:
        m.put_raw("dst", bits)


def mark_put(m, site, data, tainted):
    """The written-mask of what put_moved wrote."""
    if site.dtype("dst") == site.dtype(data) and lands_in_pairs(m, site, data):
        operand = pairs_of_bytes(m.operand("dst"))
        m.memory.mark(operand, tainted if tainted is False else tainted.reshape(operand.shape))
    else:
        m.mark("dst", tainted)


def lands_in_pairs(m, site, data):
    """Does TensorE write 16 bits for each 8-bit element?"""
    return site.engine == "tensor" and ITEMSIZE[site.dtype(data)] == 1 and m.target.generation == 3


def source_rows(moving):
    """For each column of a matrix with one 1 a column, the row of it; None for any other matrix."""
    ones = moving != 0
    if not (ones.sum(axis=0) == 1).all():
        return None
    rows = ones.argmax(axis=0)
    return rows if (moving[rows, np.arange(len(rows))] == 1).all() else None


def move_ones(m, site):
    """is_transpose: column n of the result is the row of stationary at which column n of moving has its one."""
    rows = source_rows(m.f32("moving"))
    if rows is None:
        m.warn("is_transpose with a moving operand that does not have one 1 in each column")
        m.put("dst", m.f32("stationary").T @ m.f32("moving"))
    else:
        put_moved(m, site, "stationary", np.ascontiguousarray(m.raw("stationary")[rows].T))
    data, columns = m.taint("stationary"), m.taint("moving")
    if data is None and columns is None:
        mark_put(m, site, "stationary", False)
        return
    tainted = np.zeros((site.free("stationary"), site.free("moving")), bool)
    if data is not None:
        tainted |= data.any(axis=0)[:, None] if rows is None else data[rows].T
    if columns is not None:
        tainted |= columns.any(axis=0)
    mark_put(m, site, "stationary", tainted)


@instruction(
    engines=("tensor", "vector"),
    limits=("TensorE: 128 x 128, SBUF to PSUM", "VectorE: 32 x 32, SBUF or PSUM", "dst has the dtype of data"),
    cost="TensorE max(P, min(64, F)); VectorE max(64, N)",
)
class nc_transpose:
    """dst = data.T with all free dimensions of data flattened into one; bit exact on both engines.

    On trn2 TensorE writes the transpose of 8-bit data as 16-bit elements: dst has element step 2.
    """

    def signature(dst: out(ON_CHIP), data: tile(ON_CHIP), engine: ENUM = UNKNOWN): ...

    def engine(site):
        if site.attr("engine") != "unknown":
            return site.attr("engine")
        small = site.partitions("data") <= QUADRANT and site.free("data") <= QUADRANT
        return "tensor" if site.space("dst") == "psum" and site.space("data") == "sbuf" and not small else "vector"

    def check(site):
        p, f = site.partitions("data"), site.free("data")
        if (site.partitions("dst"), site.free("dst")) != (f, p):
            raise site.refuse("operand_shapes", f"data is ({p}, {f}), dst {site.shape('dst')}", f"dst is ({f}, {p})")
        limit = PARTITIONS if site.engine == "tensor" else QUADRANT
        if p > limit or f > limit:
            raise site.refuse(
                "transpose_size",
                f"({p}, {f}) from {site.space('data')} to {site.space('dst')} on {site.engine}, at most "
                f"{limit} x {limit}",
                "TensorE does 128 x 128 from SBUF to PSUM, VectorE 32 x 32: tile it",
            )
        if site.engine == "tensor":
            if (site.space("dst"), site.space("data")) != ("psum", "sbuf"):
                raise site.refuse("buffer", f"TensorE from {site.space('data')} to {site.space('dst')}", "SBUF to PSUM")
            check_fp8_step(site, "data")
            check_bank(site)
        check_same_dtype(site, "data", "dst")

    def run(m, site):
        put_moved(m, site, "data", np.ascontiguousarray(m.raw("data").T))

    def taint(m, site):
        tainted = m.taint("data")
        mark_put(m, site, "data", False if tainted is None else np.ascontiguousarray(tainted.T))
