"""VectorE: element-wise arithmetic and moves, one lane a partition; some also on ScalarE and GpSimdE.

Inputs are widened to float32, results rounded once to the destination. Bit-wise operators see integers only.
"""

import numpy as np

from nkismith.verify.simulator.dtypes import INTEGERS, PACKED, STORAGE
from nkismith.verify.simulator.enums import engine, reduce_cmd
from nkismith.verify.simulator.instruction import (
    ENUM,
    NUMBERS,
    OP,
    PLAIN,
    instruction,
    out,
    tile,
    vector,
)
from nkismith.verify.simulator.instructions.accumulators import accumulate, accumulating_taint, check_accumulator
from nkismith.verify.simulator.instructions.checks import (
    check_bitvec_dtypes,
    check_one_psum,
    check_op,
    check_rank,
    check_same_elements,
    check_unary_operand,
    check_vectors,
)
from nkismith.verify.simulator.operators import ALU
from nkismith.verify.simulator.trace import ScalarRef

UNKNOWN = engine.unknown
RESET_REDUCE = reduce_cmd.reset_reduce
WIDE_INTEGERS = frozenset({"int32", "uint32"})
REDUCTIONS = ("add", "multiply", "maximum", "minimum")
# ScalarE runs these operator pairs of tensor_scalar: on trn2 the documented three, on trn3 those of activate2.
SCALAR_PAIRS = {
    "trn2": {("multiply", "add"), ("multiply", None), ("add", None)},
    "trn3": {
        ("multiply", "add"), ("multiply", "subtract"), ("multiply", None), ("add", None), ("subtract", None),
    },
}  # fmt: skip


@instruction(
    engines=("vector", "scalar", "gpsimd"),
    taint="elementwise",
    limits=("GpSimdE: SBUF only", "dst and src: equal partitions and elements a partition"),
    cost="max(64, N); N/4 on VectorE for 16-bit contiguous SBUF, N/2 for 16-bit strided or PSUM",
)
class tensor_copy:
    """Copy a tile on chip. Bit exact when both dtypes match, else through float32."""

    def signature(dst: out(indirect=True), src: tile(indirect=True), engine: ENUM = UNKNOWN): ...

    def check(site):
        check_same_elements(site, "dst", "src")
        if site.dtype("dst") != site.dtype("src") and {site.dtype("dst"), site.dtype("src")} & PACKED:
            raise site.refuse("dtype", f"{site.dtype('src')} to {site.dtype('dst')}", "packed types do not convert")

    def run(m, site):
        if site.dtype("dst") == site.dtype("src"):
            m.put_raw("dst", m.raw("src"))
        else:
            m.put("dst", m.f32("src"))


@instruction(
    engines=("vector", "gpsimd"),
    taint="elementwise",
    limits=("at most 5 dimensions", "packed x4 dtypes: 0 only", "an integer tile takes an int"),
    cost="max(64, N); max(64, N/2) for zeros in 16 bits",
)
class memset:
    """Fill a tile with a number known while the kernel is built."""

    def signature(dst: out(), value: PLAIN, engine: ENUM = UNKNOWN): ...

    def check(site):
        value, dtype = site.attr("value"), site.dtype("dst")
        if isinstance(value, ScalarRef) or not isinstance(value, bool | int | float):
            raise site.refuse("memset_value", "value is not a number known while building", "scalar_store a scalar")
        check_rank(site, 5, "dst")
        if dtype in PACKED and value != 0:
            raise site.refuse("memset_value", f"{value} into {dtype}", "packed types take 0 only")
        if dtype in INTEGERS:
            if isinstance(value, float):
                raise site.refuse("memset_value", f"the float {value} into {dtype}", "pass an int")
            info = np.iinfo(STORAGE[dtype])
            if not info.min <= value <= info.max:
                raise site.refuse("memset_value", f"{value} into {dtype}", f"{info.min} to {info.max}")

    def run(m, site):
        integer = site.dtype("dst") in INTEGERS
        m.put("dst", np.asarray(site.attr("value"), np.int64 if integer else np.float32))


@instruction(
    engines=("vector", "gpsimd"),
    taint="elementwise",
    limits=("no broadcasting", "at most one input in PSUM", "power: GpSimdE, so SBUF only"),
    cost="max(64, N) with one input in PSUM, or all bf16 in SBUF with add, multiply or subtract; else max(64, 2N)",
)
class tensor_tensor:
    """dst = data1 op data2, element by element.

    When all three are int32 or uint32 in SBUF it runs on GpSimdE in exact, wrapping integer arithmetic unless
    engine=vector asks for float32.
    """

    def signature(
        dst: out(dtypes=NUMBERS, indirect=True),
        data1: tile(dtypes=NUMBERS, indirect=True),
        data2: tile(dtypes=NUMBERS),
        op: OP,
        engine: ENUM = UNKNOWN,
    ): ...

    def engine(site):
        asked = site.attr("engine")
        if asked != "unknown":
            return asked
        op = ALU.get(site.attr("op"))
        if op is None or "vector" not in op.engines:
            return "gpsimd"
        on_sbuf = all(site.space(n) == "sbuf" for n in ("dst", "data1", "data2"))
        return "gpsimd" if op.kind == "arithmetic" and on_sbuf and all_wide_integers(site) else "vector"

    def check(site):
        op = check_op(site, "op", ("arithmetic", "bitvec"))
        if op.name == "invert":
            raise site.refuse("operator", "invert takes one input", "tensor_scalar with op0=nl.invert")
        check_same_elements(site, "dst", "data1", "data2")
        check_one_psum(site, "data1", "data2")
        if op.kind == "bitvec":
            check_bitvec_dtypes(site, "dst", "data1", "data2")
        if (op.kind == "bitvec" and site.engine != "vector") or (op.name == "power" and site.engine != "gpsimd"):
            raise site.refuse("engine_operator", f"{op.name} on {site.engine}", f"it runs on {op.engines[0]}")

    def run(m, site):
        op = ALU[site.attr("op")]
        if op.kind == "bitvec":
            result = op.apply(bits(m, "data1"), bits(m, "data2"))
            m.put_raw("dst", result.view(STORAGE[site.dtype("dst")]))
        elif site.engine == "gpsimd" and op.name != "power" and all_wide_integers(site):
            exact = op.apply(m.raw("data1").astype(np.int64), m.raw("data2").astype(np.int64))
            m.put_raw("dst", exact.astype(np.int64).astype(STORAGE[site.dtype("dst")]))
        else:
            m.emit("dst", op.apply, m.f32("data1"), m.f32("data2"))


def all_wide_integers(site):
    """Are all operands of tensor_tensor 32-bit integers?"""
    return all(site.dtype(n) in WIDE_INTEGERS for n in ("dst", "data1", "data2"))


def bits(m, name):
    """An integer operand as unsigned bit patterns [P, N]."""
    values = m.raw(name)
    return values.view(f"u{values.dtype.itemsize}")


@instruction(
    engines=("vector", "scalar", "gpsimd"),
    taint="elementwise",
    limits=(
        "operands are numbers or (P, 1) float32 tiles",
        "bit-wise operators: VectorE, integers",
        "ScalarE on trn2: (multiply, add), multiply, add",
        "GpSimdE: rsqrt only, SBUF only",
        "square and relu: trn3",
    ),
    cost="max(64, N) for one or two operators; N/4 on VectorE for 16-bit contiguous SBUF",
)
class tensor_scalar:
    """dst = (data op0 operand0) op1 operand1 with numbers or one value a partition; reverse swaps the two inputs."""

    def signature(
        dst: out(dtypes=NUMBERS, indirect=True),
        data: tile(dtypes=NUMBERS, indirect=True),
        op0: OP,
        operand0: vector(),
        reverse0: PLAIN = False,
        op1: OP = None,
        operand1: vector() = None,
        reverse1: PLAIN = False,
        engine: ENUM = UNKNOWN,
    ): ...

    def engine(site):
        asked = site.attr("engine")
        if asked != "unknown":
            return asked
        ops = [ALU[n] for n in (site.attr("op0"), site.attr("op1")) if n in ALU]
        return "vector" if all("vector" in op.engines for op in ops) else "gpsimd"

    def check(site):
        first = check_op(site, "op0")
        second = check_op(site, "op1") if site.attr("op1") else None
        ops = [op for op in (first, second) if op]
        if second is None and (site.has("operand1") or site.attr("operand1") is not None):
            raise site.refuse("unary_operand", "operand1 without op1", "leave both None")
        for op, operand in zip(ops, ("operand0", "operand1"), strict=False):
            check_unary_operand(site, op, operand)
            if op.kind in ("arithmetic", "bitvec") and op.name != "invert" and not given(site, operand):
                raise site.refuse("operand_missing", f"{op.name} without {operand}", "a number or a (P, 1) tile")
        check_same_elements(site, "dst", "data")
        check_vectors(site, "data")
        if any(op.kind == "bitvec" for op in ops):
            if not all(op.kind == "bitvec" for op in ops):
                raise site.refuse(
                    "operator_mix", "a bit-wise and an arithmetic operator in one instruction", "split it in two"
                )
            check_bitvec_dtypes(site, "dst", "data", "operand0", "operand1")
            for operand in ("operand0", "operand1"):
                if isinstance(site.attr(operand), float) and not site.attr(operand).is_integer():
                    raise site.refuse("dtype", f"{operand}={site.attr(operand)} under a bit-wise operator", "an int")
        check_engine_operators(site, ops)

    def run(m, site):
        steps = [(ALU[site.attr("op0")], "operand0", site.attr("reverse0"))]
        if site.attr("op1"):
            steps.append((ALU[site.attr("op1")], "operand1", site.attr("reverse1")))
        if steps[0][0].kind == "bitvec":
            value = bits(m, "data")
            for op, operand, reverse in steps:
                value = op.apply(*pair(value, bit_operand(m, site, operand, value.dtype), reverse))
            m.put_raw("dst", value.view(STORAGE[site.dtype("dst")]))
            return
        warn_narrow_vectors(m, site, "operand0", "operand1")
        value = m.f32("data")
        for op, operand, reverse in steps[:-1]:
            value = op.apply(*arguments(m, op, value, operand, reverse))
        op, operand, reverse = steps[-1]
        m.emit("dst", op.apply, *arguments(m, op, value, operand, reverse))


def given(site, name):
    """Is a number or a tile passed for a parameter?"""
    return site.has(name) or site.attr(name) is not None


def pair(first, second, reverse):
    """The two inputs of an operator in order."""
    return (second, first) if reverse else (first, second)


def arguments(m, op, value, operand, reverse):
    """Inputs of an operator between a tile's values and a per-partition operand."""
    return (value, None) if op.kind == "unary" else pair(value, m.vector(operand), reverse)


def bit_operand(m, site, name, unsigned):
    """A per-partition operand of a bit-wise operator as a bit pattern."""
    if site.has(name):
        return bits(m, name)
    value = int(m.value(site.attr(name) or 0))
    return np.asarray(value & ((1 << (8 * unsigned.itemsize)) - 1), unsigned)


def warn_narrow_vectors(m, site, *names):
    """Arithmetic operands are documented as float32; hardware also takes what published kernels pass."""
    for name in names:
        if site.has(name) and site.dtype(name) not in ("float32", "tfloat32"):
            m.warn(f"{name} is {site.dtype(name)}; the documentation asks for float32")


def check_engine_operators(site, ops):
    """Which operators of tensor_scalar run on which engine."""
    names = [op.name for op in ops]
    if site.engine == "scalar":
        pairs = SCALAR_PAIRS[site.target.name]
        if (*names, None)[:2] not in pairs:
            legal = ", ".join(" then ".join(n for n in p if n) for p in sorted(pairs, key=str))
            raise site.refuse(
                "engine_operator", f"{' then '.join(names)} on ScalarE of {site.target.name}", f"ScalarE has {legal}"
            )
    elif site.engine == "gpsimd":
        if "rsqrt" not in names or not all("gpsimd" in op.engines for op in ops):
            raise site.refuse(
                "engine_operator", f"{' then '.join(names)} on GpSimdE", "GpSimdE has rsqrt only: use VectorE"
            )
    else:
        for op in ops:
            if site.engine not in op.engines:
                raise site.refuse("engine_operator", f"{op.name} on {site.engine}", f"it runs on {op.engines[0]}")


@instruction(
    engines=("vector",),
    limits=("data and operand1 not both in PSUM", "arithmetic operators only"),
    cost="N for bf16 data and operand1 with subtract then multiply and even N; else max(64, 2N)",
)
class scalar_tensor_tensor:
    """dst = (data op0 operand0) op1 operand1; operand0 a number or one a partition, operand1 a tile like data.

    With reduce_op the float32 results of each lane are also reduced into the accumulator of VectorE.
    """

    def signature(
        dst: out(dtypes=NUMBERS),
        data: tile(dtypes=NUMBERS),
        op0: OP,
        operand0: vector(),
        op1: OP,
        operand1: tile(dtypes=NUMBERS),
        reverse0: PLAIN = False,
        reverse1: PLAIN = False,
        reduce_cmd: ENUM = RESET_REDUCE,
        reduce_op: OP = None,
        reduce_res: out(dtypes=NUMBERS, optional=True) = None,
    ): ...

    def check(site):
        for name in ("op0", "op1"):
            op = check_op(site, name, ("arithmetic",))
            if "vector" not in op.engines:
                raise site.refuse("engine_operator", f"{op.name} on vector", f"it runs on {op.engines[0]}")
        if not given(site, "operand0"):
            raise site.refuse("operand_missing", "operand0 is None", "a number or a (P, 1) tile")
        check_same_elements(site, "dst", "data", "operand1")
        check_one_psum(site, "data", "operand1")
        check_vectors(site, "data")
        if site.attr("reduce_op"):
            check_op(site, "reduce_op", reduces=True, among=REDUCTIONS)
            check_accumulator(site, ("reset_reduce", "reduce"))
        elif site.has("reduce_res"):
            raise site.refuse("operand_missing", "reduce_res without reduce_op", "name the reduction")

    def run(m, site):
        op0, op1 = ALU[site.attr("op0")], ALU[site.attr("op1")]
        first = op0.apply(*pair(m.f32("data"), m.vector("operand0"), site.attr("reverse0")))
        result = m.emit("dst", op1.apply, *pair(first, m.f32("operand1"), site.attr("reverse1")))
        if site.attr("reduce_op"):
            accumulate(m, site, result, site.attr("reduce_op"), engine="vector", like="data")

    taint = accumulating_taint("data", "vector")


@instruction(engines=("vector",), taint="elementwise", cost="max(64, 8N)")
class reciprocal:
    """dst = 1 / data on VectorE, more precise and slower than ScalarE's activation."""

    def signature(dst: out(dtypes=NUMBERS), data: tile(dtypes=NUMBERS)): ...

    def check(site):
        check_same_elements(site, "dst", "data")

    def run(m, site):
        m.emit("dst", ALU["reciprocal"].apply, m.f32("data"), None)
