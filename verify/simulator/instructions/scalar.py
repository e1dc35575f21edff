"""ScalarE: activation functions with a fused scale and bias, and its accumulator."""

import numpy as np

from nkismith.verify.simulator.enums import engine, reduce_cmd
from nkismith.verify.simulator.instruction import ENUM, OP, instruction, out, tile, vector
from nkismith.verify.simulator.instructions.checks import check_same_elements
from nkismith.verify.simulator.operators import ACTIVATIONS

SCALAR = engine.scalar
IDLE = reduce_cmd.idle


def check_activation(site):
    """The function exists and the operands match."""
    if site.attr("op") not in ACTIVATIONS:
        raise site.refuse("operator", f"op={site.attr('op')!r} is not an activation function", "see nki.api.shared")
    check_same_elements(site, "dst", "data")


def activated(m, site, argument):
    """op(argument), warning when the argument leaves the range in which the hardware's approximation holds."""
    function = ACTIVATIONS[site.attr("op")]
    if np.isfinite(function.low) or np.isfinite(function.high):
        outside = (argument < function.low) | (argument > function.high)
        if outside.any():
            at = float(argument[outside].flat[0])
            m.warnings.append(
                (site.instr.line, f"{function.name}({at:.6g}) is outside [{function.low:.4g}, {function.high:.4g}]")
            )
    return function.apply(argument)


@instruction(engines=("scalar",), taint="rows", cost="max(64, N)")
class activation:
    """dst = op(data * scale + bias) in float32; optionally adds the results of each lane into the accumulator."""

    def signature(
        dst: out(),
        op: OP,
        data: tile(),
        bias: vector() = None,
        scale: vector() = 1.0,
        reduce_op: OP = None,
        reduce_res: out(optional=True) = None,
        reduce_cmd: ENUM = IDLE,
        engine: ENUM = SCALAR,
    ): ...

    def check(site):
        check_activation(site)
        if site.attr("reduce_op") not in (None, "add"):
            raise site.refuse("operator", f"reduce_op={site.attr('reduce_op')}", "activation accumulates with add only")

    def run(m, site):
        with np.errstate(all="ignore"):
            argument = m.f32("data") * m.vector("scale", 1.0) + m.vector("bias", 0.0)
        result = activated(m, site, np.asarray(argument, np.float32))
        m.put("dst", result)
        accumulate(m, site, result)


def accumulate(m, site, result):
    """The accumulator of ScalarE under reduce_cmd; reduce_res reads it out."""
    lanes = m.lanes("scalar")[: len(result)]
    command = site.attr("reduce_cmd")
    if command in ("reset", "reset_reduce"):
        lanes[:] = 0
    if command in ("reduce", "reset_reduce"):
        with np.errstate(all="ignore"):
            lanes += result.sum(axis=1, dtype=np.float32)
    if site.has("reduce_res"):
        m.put("reduce_res", lanes.copy())


@instruction(engines=("scalar",), taint="rows", cost="max(64, N) + 64")
class activation_reduce:
    """activation with the sum of each lane in reduce_res."""

    def signature(
        dst: out(),
        op: OP,
        data: tile(),
        reduce_op: OP,
        reduce_res: out(),
        bias: vector() = None,
        scale: vector() = 1.0,
    ): ...

    def check(site):
        check_activation(site)
        if site.attr("reduce_op") != "add":
            raise site.refuse("operator", f"reduce_op={site.attr('reduce_op')}", "activation_reduce adds")

    def run(m, site):
        with np.errstate(all="ignore"):
            argument = m.f32("data") * m.vector("scale", 1.0) + m.vector("bias", 0.0)
        result = activated(m, site, np.asarray(argument, np.float32))
        m.put("dst", result)
        lanes = m.lanes("scalar")[: len(result)]
        lanes[:] = result.sum(axis=1, dtype=np.float32)
        m.put("reduce_res", lanes.copy())
