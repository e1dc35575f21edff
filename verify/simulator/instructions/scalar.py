"""ScalarE: activation functions with a fused scale and bias, and its accumulator."""

import numpy as np

from nkismith.verify.simulator.enums import engine, reduce_cmd
from nkismith.verify.simulator.instruction import ENUM, NUMBERS, OP, PLAIN, instruction, out, tile, vector
from nkismith.verify.simulator.instructions.accumulators import accumulate, accumulating_taint, check_accumulator
from nkismith.verify.simulator.instructions.checks import FLOAT_VECTOR, check_same_elements, check_vectors
from nkismith.verify.simulator.operators import ACTIVATIONS, ALU

SCALAR = engine.scalar
IDLE = reduce_cmd.idle
COMMANDS = ("idle", "reset", "reduce", "reset_reduce")
BIAS_DTYPES = NUMBERS - {"tfloat32"}
PAIRS = {
    ("multiply", "add"), ("multiply", "subtract"), ("multiply", "bypass"), ("add", "bypass"), ("subtract", "bypass"),
    ("bypass", "bypass"),
}  # fmt: skip
REDUCTIONS = ("add", "maximum", "minimum", "abs_max", "abs_min")


def check_activation(site, without=()):
    """The function exists, the operands match, and the engine is one that can."""
    name = site.attr("op")
    if name not in ACTIVATIONS:
        raise site.refuse("operator", f"op={name!r} is not an activation function", "see nki.api.shared")
    if name in without:
        raise site.refuse("operator", f"op={name} needs a parameter", "nisa.activate2 has relu_param (trn3)")
    check_same_elements(site, "dst", "data")
    check_vectors(site, "data")
    if site.engine == "gpsimd":
        if site.target.generation < 4:
            raise site.refuse("engine", f"activation on GpSimdE of {site.target.name}", "use ScalarE")
        if site.attr("reduce_cmd") != "idle" or site.has("reduce_res"):
            raise site.refuse("engine", "a reduction on GpSimdE", "only ScalarE has the accumulator")


def activated(m, site, function, argument):
    """Write function(argument) to dst and return it; warn where the argument leaves the function's valid range."""
    if function.limited:
        seen = np.abs(argument) if function.magnitude else argument
        low, high = np.fmin.reduce(seen, axis=None), np.fmax.reduce(seen, axis=None)
        if low < function.low or high > function.high:
            at = low if low < function.low else high
            what = f"|x| = {at:.6g}" if function.magnitude else f"{at:.6g}"
            valid = f"[{function.low:.4g}, {function.high:.4g}]"
            m.warn(f"{function.name} of {what} is outside its valid range {valid}", what=function.name)
    return m.emit("dst", function.apply, argument)


def scaled(m, site):
    """data * scale + bias in float32."""
    value = m.f32("data")
    if site.has("scale") or site.attr("scale") != 1.0:
        value = value * m.vector("scale", 1.0)
    if site.has("bias") or site.attr("bias"):
        value = value + m.vector("bias")
    return value


@instruction(
    engines=("scalar", "gpsimd"),
    limits=(
        "scale: a number or a (P, 1) float32 tile",
        "bias: a number or a (P, 1) tile, not tfloat32",
        "reduce_op: add",
        "GpSimdE: trn3, SBUF, no reduction",
    ),
    cost="max(64, N); reading reduce_res about 64 more",
)
class activation:
    """dst = op(data * scale + bias) in float32; reduce_cmd adds the results of each lane into ScalarE's accumulator.

    reduce_res receives the accumulator; None keeps it for the next call. An argument outside the valid range of the
    function gives an invalid result (sin, arctan, log, sqrt, rsqrt, reciprocal have one).
    """

    def signature(
        dst: out(dtypes=NUMBERS, indirect=True),
        op: OP,
        data: tile(dtypes=NUMBERS, indirect=True),
        bias: vector(dtypes=BIAS_DTYPES) = None,
        scale: vector(dtypes=FLOAT_VECTOR) = 1.0,
        reduce_op: OP = None,
        reduce_res: out(dtypes=NUMBERS, optional=True) = None,
        reduce_cmd: ENUM = IDLE,
        engine: ENUM = SCALAR,
    ): ...

    def check(site):
        check_activation(site, without=("prelu",))
        check_accumulator(site, COMMANDS)
        if site.attr("reduce_op") not in (None, "add"):
            raise site.refuse(
                "operator", f"reduce_op={site.attr('reduce_op')}", "add; tensor_reduce has maximum and minimum"
            )

    def run(m, site):
        result = activated(m, site, ACTIVATIONS[site.attr("op")], scaled(m, site))
        accumulate(m, site, result, "add", engine="scalar", like="data")

    taint = accumulating_taint("data", "scalar")


@instruction(engines=("scalar",), limits=("reduce_op: add",), cost="max(64, N) + 64")
class activation_reduce:
    """activation with reduce_cmd=reset_reduce: reduce_res is the sum of each lane's results."""

    def signature(
        dst: out(dtypes=NUMBERS, indirect=True),
        op: OP,
        data: tile(dtypes=NUMBERS, indirect=True),
        reduce_op: OP,
        reduce_res: out(dtypes=NUMBERS, optional=True),
        bias: vector(dtypes=BIAS_DTYPES) = None,
        scale: vector(dtypes=FLOAT_VECTOR) = 1.0,
    ): ...

    def check(site):
        check_activation(site, without=("prelu",))
        check_accumulator(site, (None,))
        if site.attr("reduce_op") != "add":
            raise site.refuse("operator", f"reduce_op={site.attr('reduce_op')}", "activation_reduce adds")

    def run(m, site):
        result = activated(m, site, ACTIVATIONS[site.attr("op")], scaled(m, site))
        accumulate(m, site, result, "add", engine="scalar", like="data", command="reset_reduce")

    taint = accumulating_taint("data", "scalar")


@instruction(
    engines=("scalar", "gpsimd"),
    targets=("trn3",),
    limits=(
        "(op0, op1): multiply with add, subtract or bypass; add, subtract or bypass with bypass",
        "imm0 and imm1: one dtype if both are tiles",
        "reduction on ScalarE only",
    ),
    cost="max(64, N); 16-bit and fp8 up to twice as fast",
)
class activate2:
    """dst = op((data op0 imm0) op1 imm1); reduce_cmd reduces the results of each lane into ScalarE's accumulator.

    reverse0 and reverse1 swap the inputs of their operator; relu_param is the slope of prelu below zero.
    """

    def signature(
        dst: out(dtypes=NUMBERS, indirect=True),
        op: OP,
        data: tile(dtypes=NUMBERS, indirect=True),
        imm0: vector(),
        imm1: vector(),
        op0: OP,
        op1: OP,
        relu_param: vector() = 0.0,
        reverse0: PLAIN = False,
        reverse1: PLAIN = False,
        reduce_op: OP = None,
        reduce_res: out(dtypes=NUMBERS, optional=True) = None,
        reduce_cmd: ENUM = IDLE,
        engine: ENUM = SCALAR,
    ): ...

    def check(site):
        check_activation(site)
        chosen = (site.attr("op0") or "bypass", site.attr("op1") or "bypass")
        if chosen not in PAIRS:
            legal = ", ".join(f"({a}, {b})" for a, b in sorted(PAIRS))
            raise site.refuse("operator", f"(op0, op1) = ({chosen[0]}, {chosen[1]})", f"one of {legal}")
        for op, imm, reverse in zip(chosen, ("imm0", "imm1"), ("reverse0", "reverse1"), strict=True):
            if site.attr(reverse) and op == "bypass":
                raise site.refuse("reverse", f"{reverse} without an operator", f"drop {reverse}")
            if op != "bypass" and not site.has(imm) and site.attr(imm) is None:
                raise site.refuse("operand_missing", f"{op} without {imm}", "a number or a (P, 1) tile")
        if site.has("imm0") and site.has("imm1") and site.dtype("imm0") != site.dtype("imm1"):
            raise site.refuse("dtype", f"imm0 {site.dtype('imm0')}, imm1 {site.dtype('imm1')}", "give both one dtype")
        check_accumulator(site, COMMANDS)
        if site.attr("reduce_op") not in (None, *REDUCTIONS):
            raise site.refuse("operator", f"reduce_op={site.attr('reduce_op')}", f"one of {', '.join(REDUCTIONS)}")
        if site.attr("reduce_cmd") in ("reduce", "reset_reduce") and not site.attr("reduce_op"):
            raise site.refuse("operand_missing", f"reduce_cmd={site.attr('reduce_cmd')} without reduce_op", "name one")

    def run(m, site):
        value = m.f32("data")
        for op, imm, reverse in (("op0", "imm0", "reverse0"), ("op1", "imm1", "reverse1")):
            if (site.attr(op) or "bypass") != "bypass":
                other = m.vector(imm)
                value = ALU[site.attr(op)].apply(*((other, value) if site.attr(reverse) else (value, other)))
        if site.attr("op") == "prelu":
            result = np.where(value > 0, value, value * m.vector("relu_param"))
            m.put("dst", result)
        else:
            result = activated(m, site, ACTIVATIONS[site.attr("op")], value)
        accumulate(m, site, result, site.attr("reduce_op") or "add", engine="scalar", like="data")

    taint = accumulating_taint("data", "scalar")
