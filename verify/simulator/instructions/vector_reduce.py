"""VectorE: reductions, scans and statistics along the free axes."""

import numpy as np

from nkismith.verify.simulator.dtypes import FP8
from nkismith.verify.simulator.enums import reduce_cmd
from nkismith.verify.simulator.hardware import BN_STATS_FREE_MAX
from nkismith.verify.simulator.instruction import ENUM, NUMBERS, OP, PLAIN, instruction, out, tile, vector
from nkismith.verify.simulator.instructions.accumulators import (
    accumulate,
    accumulating_taint,
    check_accumulator,
    lanes_of,
    tainted_rows,
)
from nkismith.verify.simulator.instructions.checks import (
    FLOAT_VECTOR,
    check_bitvec_dtypes,
    check_free,
    check_one_psum,
    check_op,
    check_rank,
    check_same_elements,
    check_unary_operand,
    check_vectors,
)
from nkismith.verify.simulator.instructions.vector import REDUCTIONS, arguments, given, pair, warn_narrow_vectors
from nkismith.verify.simulator.operators import ALU, reduced

RESET_REDUCE = reduce_cmd.reset_reduce
IDLE = reduce_cmd.idle
LOADING = ("reset_reduce", "reduce", "load_reduce")
CUMULATIVE_DTYPES = frozenset({"bfloat16", "float16", "float32", "uint8", "int8", "uint16", "int16"}) | FP8
EXPONENTIAL_IN = frozenset({
    "float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "int8", "int16", "int32", "uint8", "uint16",
    "uint32",
})  # fmt: skip
EXPONENTIAL_OUT = EXPONENTIAL_IN - {"uint32"} | {"tfloat32"}
FLOAT_RESULTS = frozenset({"float8_e4m3", "float8_e5m2", "float16", "bfloat16", "float32", "tfloat32"})


@instruction(
    engines=("vector",),
    limits=("the reduced axes are the last free ones", "axis 0, the partitions, never"),
    cost="max(64, N); N/2 for bf16 in and out with add or maximum",
)
class tensor_reduce:
    """Reduce the last free axes of data with one operator; negate flips the sign of an arithmetic result."""

    def signature(
        dst: out(dtypes=NUMBERS, indirect=True),
        op: OP,
        data: tile(dtypes=NUMBERS, indirect=True),
        axis: PLAIN,
        negate: PLAIN = False,
        keepdims: PLAIN = False,
    ): ...

    def check(site):
        op = check_op(site, "op", ("arithmetic", "bitvec"), reduces=True)
        axes, rank = reduce_axes(site), len(site.shape("data"))
        if not axes or axes != tuple(range(rank - len(axes), rank)) or 0 in axes:
            raise site.refuse(
                "reduce_axis", f"axis={site.attr('axis')} of shape {site.shape('data')}", "reduce the last free axes"
            )
        kept = int(np.prod(site.shape("data")[1 : rank - len(axes)]))
        if (site.partitions("dst"), site.free("dst")) != (site.partitions("data"), kept):
            raise site.refuse("operand_shapes", f"dst is {site.shape('dst')}", f"{kept} elements a partition")
        if op.kind == "bitvec":
            check_bitvec_dtypes(site, "dst", "data")
            if site.attr("negate"):
                raise site.refuse("operator", f"negate with {op.name}", "negate arithmetic reductions only")

    def run(m, site):
        op, rows = ALU[site.attr("op")], site.partitions("dst") * site.free("dst")
        if op.kind == "bitvec":
            m.put_raw("dst", reduced(op, m.raw("data").reshape(rows, -1)))
            return
        result = reduced(op, m.f32("data").reshape(rows, -1))
        m.put("dst", -result if site.attr("negate") else result)

    def taint(m, site):
        mask = m.taint("data")
        rows = site.partitions("dst") * site.free("dst")
        m.mark("dst", False if mask is None else mask.reshape(rows, -1).any(axis=1))


def reduce_axes(site):
    """Axes as a sorted tuple of non-negative ints; none if they are not ints."""
    axis, rank = site.attr("axis"), len(site.shape("data"))
    axes = axis if isinstance(axis, tuple) else (axis,)
    return tuple(sorted(a + rank if -rank <= a < 0 else a for a in axes)) if all(type(a) is int for a in axes) else ()


@instruction(
    engines=("vector",),
    limits=("data and dst: at most 4 dimensions", "op0 arithmetic or unary", "reverse0 is not supported"),
    cost="max(64, N) + 64",
)
class tensor_scalar_reduce:
    """dst = data op0 operand0, and the accumulator of VectorE reduces those results over all free axes.

    reduce_res receives the accumulator, negated with reduce_res_negate; None keeps it for the next call.
    """

    def signature(
        dst: out(dtypes=NUMBERS, indirect=True),
        data: tile(dtypes=NUMBERS, indirect=True),
        op0: OP,
        operand0: vector(),
        reduce_op: OP,
        reduce_res: out(dtypes=NUMBERS, optional=True) = None,
        reverse0: PLAIN = False,
        reduce_cmd: ENUM = RESET_REDUCE,
        reduce_init: vector(dtypes=FLOAT_VECTOR) = None,
        reduce_res_negate: PLAIN = False,
    ): ...

    def check(site):
        op = check_op(site, "op0", ("arithmetic", "unary"))
        if "vector" not in op.engines and op.kind != "unary":
            raise site.refuse("engine_operator", f"{op.name} on vector", f"it runs on {op.engines[0]}")
        check_unary_operand(site, op, "operand0")
        if op.kind == "arithmetic" and not given(site, "operand0"):
            raise site.refuse("operand_missing", f"{op.name} without operand0", "a number or a (P, 1) tile")
        check_op(site, "reduce_op", reduces=True, among=REDUCTIONS)
        check_rank(site, 4, "dst", "data")
        check_same_elements(site, "dst", "data")
        check_vectors(site, "data")
        if site.attr("reverse0"):
            raise site.refuse("reverse", "reverse0 is not supported yet", "swap by algebra, e.g. multiply by -1 first")
        check_accumulator(site, LOADING, init="reduce_init")

    def run(m, site):
        warn_narrow_vectors(m, site, "operand0")
        op = ALU[site.attr("op0")]
        result = m.emit("dst", op.apply, *arguments(m, op, m.f32("data"), "operand0", False))
        accumulate(
            m, site, result, site.attr("reduce_op"), engine="vector", like="data", init="reduce_init",
            negate=site.attr("reduce_res_negate"),
        )  # fmt: skip

    taint = accumulating_taint("data", "vector")


@instruction(
    engines=("vector",),
    limits=("op1: add, subtract, multiply, maximum, minimum", "no 32-bit integers", "imm0, imm1 float32"),
)
class tensor_scalar_cumulative:
    """dst[i] = the accumulator after op1(op0(src[i], imm0), accumulator), element by element along the free axes.

    reset_reduce starts from the identity of op1, load_reduce from imm1, reduce from what the accumulator holds.
    """

    def signature(
        dst: out(dtypes=CUMULATIVE_DTYPES, indirect=True),
        src: tile(dtypes=CUMULATIVE_DTYPES, indirect=True),
        op0: OP,
        op1: OP,
        imm0: vector(dtypes=FLOAT_VECTOR),
        imm1: vector(dtypes=FLOAT_VECTOR) = None,
        reduce_cmd: ENUM = RESET_REDUCE,
    ): ...

    def check(site):
        op = check_op(site, "op0", ("arithmetic",))
        if "vector" not in op.engines:
            raise site.refuse("engine_operator", f"{op.name} on vector", f"it runs on {op.engines[0]}")
        if not given(site, "imm0"):
            raise site.refuse("operand_missing", "imm0 is None", "a number or a (P, 1) tile")
        check_op(site, "op1", among=("add", "subtract", "multiply", "maximum", "minimum"))
        check_same_elements(site, "dst", "src")
        check_vectors(site, "src")
        check_accumulator(site, LOADING, like="src", init="imm1")

    def run(m, site):
        op0, op1 = ALU[site.attr("op0")], ALU[site.attr("op1")]
        values = op0.apply(m.f32("src"), m.vector("imm0"))
        register, lanes = m.accumulators["vector"], lanes_of(m, site, "src")
        command = site.attr("reduce_cmd")
        state = np.empty((len(values), 1), np.float32)
        if command == "reduce":
            state[:] = register.values[lanes, None]
        else:
            state[:] = m.vector("imm1") if command == "load_reduce" else op1.identity
        if op1.name == "subtract":
            for i in range(values.shape[1]):
                state = values[:, i : i + 1] = values[:, i : i + 1] - state
        else:
            values = op1.apply.accumulate(np.concatenate([state, values], axis=1), axis=1)[:, 1:]
        register.values[lanes] = values[:, -1]
        undefined = register.undefined[lanes] if command == "reduce" else False
        register.undefined[lanes] = undefined | tainted_rows(m, "src")
        m.put("dst", values)

    def taint(m, site):
        mask = m.flow("src")
        if site.attr("reduce_cmd") == "reduce":
            mask = mask | m.accumulators["vector"].undefined[lanes_of(m, site, "src"), None]
        m.mark("dst", running(mask, site.partitions("dst"), site.free("dst")))


def running(mask, partitions, free):
    """Taint of a scan: what any element up to here held."""
    if mask is False or not mask.any():
        return False
    return np.logical_or.accumulate(np.broadcast_to(mask, (partitions, free)), axis=1)


@instruction(
    engines=("vector",),
    limits=("data0 and data1 not both in PSUM", "binary arithmetic operators"),
    cost="max(64, 2N)",
)
class tensor_tensor_scan:
    """dst[i] = op1(op0(data0[i], state), data1[i]) and that is the next state, which starts as `initial`.

    reverse0 and reverse1 swap the inputs of their operator. Everything is float32.
    """

    def signature(
        dst: out(dtypes=NUMBERS),
        data0: tile(dtypes=NUMBERS),
        data1: tile(dtypes=NUMBERS),
        initial: vector(),
        op0: OP,
        op1: OP,
        reverse0: PLAIN = False,
        reverse1: PLAIN = False,
    ): ...

    def check(site):
        for name in ("op0", "op1"):
            op = check_op(site, name, ("arithmetic",))
            if "vector" not in op.engines:
                raise site.refuse("engine_operator", f"{op.name} on vector", f"it runs on {op.engines[0]}")
        check_same_elements(site, "dst", "data0", "data1")
        check_one_psum(site, "data0", "data1")
        check_vectors(site, "data0")
        if not given(site, "initial"):
            raise site.refuse("operand_missing", "initial is None", "a number or a (P, 1) tile")

    def run(m, site):
        op0, op1 = ALU[site.attr("op0")].apply, ALU[site.attr("op1")].apply
        reverse0, reverse1 = site.attr("reverse0"), site.attr("reverse1")
        # One contiguous row a step: [N, P].
        data0, data1 = np.ascontiguousarray(m.f32("data0").T), np.ascontiguousarray(m.f32("data1").T)
        result = np.empty(data0.shape, np.float32)
        state = np.empty(data0.shape[1], np.float32)
        initial = m.vector("initial")
        state[:] = initial.reshape(-1) if isinstance(initial, np.ndarray) else initial
        for row, first, second in zip(result, data0, data1, strict=True):
            op0(*pair(first, state, reverse0), out=row)
            state = op1(*pair(row, second, reverse1), out=row)
        m.put("dst", result.T)

    def taint(m, site):
        m.mark("dst", running(m.flow("dst"), site.partitions("dst"), site.free("dst")))


@instruction(
    engines=("vector",),
    targets=("trn3",),
    limits=("src and dst: at most 4 dimensions", "max_value and reduce_init float32"),
    cost="about N/4",
)
class exponential:
    """dst = exp(src - max_value) on VectorE, with a running sum in its accumulator under reduce_cmd."""

    def signature(
        dst: out(dtypes=EXPONENTIAL_OUT, indirect=True),
        src: tile(dtypes=EXPONENTIAL_IN, indirect=True),
        max_value: vector(dtypes=FLOAT_VECTOR) = 0.0,
        reduce_res: out(dtypes=FLOAT_RESULTS, optional=True) = None,
        reduce_cmd: ENUM = IDLE,
        reduce_init: vector(dtypes=FLOAT_VECTOR) = 0.0,
    ): ...

    def check(site):
        check_rank(site, 4, "dst", "src")
        check_same_elements(site, "dst", "src")
        check_vectors(site, "src")
        check_accumulator(site, ("idle", *LOADING), like="src", init="reduce_init")

    def run(m, site):
        result = m.emit("dst", np.exp, m.f32("src") - m.vector("max_value"))
        accumulate(m, site, result, "add", engine="vector", like="src", init="reduce_init")

    taint = accumulating_taint("src", "vector")


@instruction(
    engines=("vector",), limits=(f"data: at most {BN_STATS_FREE_MAX} elements a partition",), cost="max(64, N)"
)
class bn_stats:
    """Count, mean and variance times count of the even elements of each partition, then of the odd ones: 6 values."""

    def signature(dst: out(dtypes=NUMBERS), data: tile(dtypes=NUMBERS)): ...

    def check(site):
        check_free(site, "data", 1, BN_STATS_FREE_MAX)
        check_statistics(site, 6)

    def run(m, site):
        data = m.f32("data")
        result = np.zeros((len(data), 6), np.float32)
        for column, part in ((0, data[:, 0::2]), (3, data[:, 1::2])):
            if part.shape[1]:
                mean = part.mean(axis=1, dtype=np.float32)
                result[:, column] = part.shape[1]
                result[:, column + 1] = mean
                result[:, column + 2] = np.square(part - mean[:, None]).sum(axis=1, dtype=np.float32)
        m.put("dst", result)

    def taint(m, site):
        mask = m.taint("data")
        if mask is None:
            m.mark("dst", False)
            return
        halves = [mask[:, i::2].any(axis=1)[:, None] for i in (0, 1)]
        m.mark("dst", np.repeat(np.concatenate(halves, axis=1), 3, axis=1))


@instruction(
    engines=("vector",),
    taint="rows",
    limits=("data: a multiple of 3 elements a partition, at most 5 dimensions", "dst: at most 3 dimensions"),
    cost="max(64, 13N/3)",
)
class bn_aggr:
    """Mean and population variance of each partition from (count, mean, variance * count) triples of bn_stats."""

    def signature(dst: out(dtypes=NUMBERS), data: tile(dtypes=NUMBERS)): ...

    def check(site):
        if site.free("data") % 3:
            raise site.refuse("free_size", f"data has {site.free('data')} elements a partition", "a multiple of 3")
        check_rank(site, 5, "data")
        check_rank(site, 3, "dst")
        check_statistics(site, 2)

    def run(m, site):
        count, mean, spread = (m.f32("data")[:, i::3] for i in range(3))
        total = count.sum(axis=1, keepdims=True, dtype=np.float32)
        centre = (count * mean).sum(axis=1, keepdims=True, dtype=np.float32) / total
        between = count * np.square(mean - centre)
        variance = (spread + between).sum(axis=1, keepdims=True, dtype=np.float32) / total
        m.put("dst", np.concatenate([centre, variance], axis=1))


def check_statistics(site, width):
    """dst holds `width` values for each partition of data."""
    if (site.partitions("dst"), site.free("dst")) != (site.partitions("data"), width):
        raise site.refuse(
            "operand_shapes", f"dst is {site.shape('dst')}", f"({site.partitions('data')}, {width}) as data has"
        )
