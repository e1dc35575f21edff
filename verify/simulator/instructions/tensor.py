"""TensorE: matrix multiplication into PSUM and transposition.

Products of 16-bit inputs are exact in float32; sums are float32. Reads SBUF, writes PSUM.
"""

import numpy as np

from nkismith.verify.simulator.enums import engine, matmul_perf_mode
from nkismith.verify.simulator.hardware import PARTITIONS, QUADRANT, STATIONARY_FREE_MAX
from nkismith.verify.simulator.instruction import ENUM, ON_CHIP, PLAIN, PSUM, SBUF, instruction, out, tile

NONE = matmul_perf_mode.none
UNKNOWN = engine.unknown
MATMUL_DTYPES = frozenset({"float8_e4m3", "float8_e4m3fn", "float8_e5m2", "bfloat16", "float16", "tfloat32", "float32"})
WIDE = frozenset({"float32", "tfloat32"})


@instruction(engines=("tensor",), limits=("K <= 128", "M <= 128", "N <= 512 (trn2), 4096 (trn3)"), cost="max(N, 64)")
class nc_matmul:
    """dst = stationary.T @ moving, float32 accumulation in PSUM.

    accumulate=False overwrites, True adds, None overwrites at the first write to a PSUM location and adds later.
    """

    def signature(
        dst: out(PSUM),
        stationary: tile(SBUF, MATMUL_DTYPES),
        moving: tile(SBUF, MATMUL_DTYPES),
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
        k, m, n = site.partitions("moving"), site.free("stationary"), site.free("moving")
        if site.partitions("stationary") != k:
            raise site.refuse("matmul_contraction", f"stationary has {site.partitions('stationary')} partitions, moving {k}",
                              "both operands hold the contraction on partitions")  # fmt: skip
        if m > STATIONARY_FREE_MAX:
            raise site.refuse("matmul_stationary", f"{m} stationary columns, at most {STATIONARY_FREE_MAX}", "tile M")
        limit = site.target.matmul_free_max_fp32
        if site.dtype("dst") == "bfloat16" and site.target.matmul_free_max_bf16:
            limit = site.target.matmul_free_max_bf16
        if n > limit:
            raise site.refuse("matmul_moving", f"{n} moving columns, at most {limit} on {site.target.name}", "tile N")
        if (site.partitions("dst"), site.free("dst")) != (m, n):
            raise site.refuse("operand_shapes", f"dst is {site.shape('dst')}, the product is ({m}, {n})", "match it")
        if (site.dtype("stationary") in WIDE) != (site.dtype("moving") in WIDE):
            raise site.refuse("matmul_dtypes", f"{site.dtype('stationary')} with {site.dtype('moving')}",
                              "float32 pairs with float32 only")  # fmt: skip

    def run(m, site):
        product = m.f32("stationary").T @ m.f32("moving")
        if site.attr("is_transpose"):
            m.put("dst", product)
            return
        written = psum_written(m, site)
        if site.attr("accumulate") is not False:
            old = m.f32("dst")
            add = np.ones_like(written) if site.attr("accumulate") else written
            product = np.where(add, old + product, product) if not add.all() else old + product
        m.put("dst", product)

    def taint(m, site):
        rows = np.zeros((site.free("stationary"), 1), bool)
        columns = np.zeros((1, site.free("moving")), bool)
        if m.taint("stationary") is not None:
            rows = m.taint("stationary").any(axis=0)[:, None]
        if m.taint("moving") is not None:
            columns = m.taint("moving").any(axis=0)[None, :]
        tainted = rows | columns
        if site.attr("accumulate") and m.taint("dst") is not None:
            tainted = tainted | m.taint("dst")
        m.mark("dst", np.broadcast_to(tainted, (site.partitions("dst"), site.free("dst"))) if tainted.any() else False)
        psum_written(m, site)[...] = True


def psum_written(m, site):
    """Which elements of the destination a matmul has already written: a view of the machine's record."""
    operand = m.operand("dst")
    buffer = m.buffers[operand.buffer]
    record = m.matmul_written.get(buffer.id)
    if record is None:
        record = m.matmul_written[buffer.id] = np.zeros((buffer.shape[0], buffer.free), bool)
    rows = record[operand.start : operand.start + operand.partitions]
    shape = (operand.partitions, *[n for _, n in operand.pattern])
    strides = (rows.strides[0], *[s for s, _ in operand.pattern])
    view = np.ndarray(shape, bool, record, operand.start * record.shape[1] + operand.offset, strides)
    return view.reshape(operand.partitions, -1) if view.flags.c_contiguous or view.ndim <= 2 else view


@instruction(engines=("tensor", "vector"), limits=("TensorE: 128 x 128", "VectorE: 32 x 32"), cost="max(P, min(64, F))")
class nc_transpose:
    """dst = data.T: on TensorE from SBUF to PSUM up to 128 x 128, on VectorE up to 32 x 32 in SBUF or PSUM."""

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
            raise site.refuse("transpose_size", f"({p}, {f}) on {site.engine}, at most {limit} x {limit}", "tile it")
        if site.engine == "tensor" and (site.space("dst"), site.space("data")) != ("psum", "sbuf"):
            raise site.refuse("buffer", f"TensorE from {site.space('data')} to {site.space('dst')}", "SBUF to PSUM")
        if site.dtype("dst") != site.dtype("data"):
            raise site.refuse("dtype", f"{site.dtype('data')} to {site.dtype('dst')}", "dst has the dtype of data")

    def run(m, site):
        m.put_raw("dst", np.ascontiguousarray(m.raw("data").T))

    def taint(m, site):
        tainted = m.taint("data")
        m.mark("dst", False if tainted is None else np.ascontiguousarray(tainted.T))
