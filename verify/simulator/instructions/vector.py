"""VectorE: element-wise arithmetic, reductions and moves, one lane a partition.

Inputs are widened to float32, results rounded once to the destination. Bit-wise operators see integers only.
"""

import numpy as np

from nkismith.verify.simulator.dtypes import INTEGERS, STORAGE, cast
from nkismith.verify.simulator.enums import engine
from nkismith.verify.simulator.instruction import ENUM, OP, PLAIN, instruction, out, tile, vector
from nkismith.verify.simulator.instructions.checks import (
    check_bitvec_dtypes,
    check_one_psum,
    check_op,
    check_same_elements,
)
from nkismith.verify.simulator.operators import ALU

UNKNOWN = engine.unknown


@instruction(engines=("vector", "scalar", "gpsimd"), taint="elementwise", cost="max(64, N); 2x or 4x modes for 16 bit")
class tensor_copy:
    """Copy a tile on chip. Bit exact when both dtypes match, else through float32."""

    def signature(dst: out(), src: tile(), engine: ENUM = UNKNOWN): ...

    def check(site):
        check_same_elements(site, "dst", "src")

    def run(m, site):
        if site.dtype("dst") == site.dtype("src"):
            m.put_raw("dst", m.raw("src"))
        else:
            m.put("dst", m.f32("src"))


@instruction(engines=("vector", "gpsimd"), taint="elementwise", cost="max(64, N)")
class memset:
    """Fill a tile with a number known while the kernel is built."""

    def signature(dst: out(), value: PLAIN, engine: ENUM = UNKNOWN): ...

    def check(site):
        if isinstance(site.attr("value"), float) and site.dtype("dst") in INTEGERS:
            raise site.refuse("memset_value", f"a float into {site.dtype('dst')}", "pass an int")

    def run(m, site):
        dtype = site.dtype("dst")
        value = np.asarray(site.attr("value"), np.float32 if dtype not in INTEGERS else np.int64)
        m.view("dst")[...] = cast(value.reshape(1), dtype)[0]


@instruction(engines=("vector", "gpsimd"), taint="elementwise", cost="max(64, N) or max(64, 2N)")
class tensor_tensor:
    """dst = data1 op data2, element by element. No broadcasting."""

    def signature(dst: out(), data1: tile(), data2: tile(), op: OP, engine: ENUM = UNKNOWN): ...

    def engine(site):
        asked = site.attr("engine")
        if asked != "unknown":
            return asked
        wide = {"int32", "uint32"}
        exact = site.dtype("data1") in wide and site.dtype("data2") in wide and site.dtype("dst") in wide
        on_sbuf = all(site.space(n) == "sbuf" for n in ("dst", "data1", "data2"))
        arithmetic = ALU[site.attr("op")].kind == "arithmetic" if site.attr("op") in ALU else False
        return "gpsimd" if site.attr("op") == "power" or (exact and on_sbuf and arithmetic) else "vector"

    def check(site):
        op = check_op(site, "op", ("arithmetic", "bitvec"))
        check_same_elements(site, "dst", "data1", "data2")
        check_one_psum(site, "data1", "data2")
        if op.kind == "bitvec":
            check_bitvec_dtypes(site, "dst", "data1", "data2")

    def run(m, site):
        op = ALU[site.attr("op")]
        if op.kind == "bitvec":
            m.put_raw("dst", op.apply(m.raw("data1"), m.raw("data2")).astype(STORAGE[site.dtype("dst")]))
        elif site.engine == "gpsimd" and site.dtype("data1") in INTEGERS and site.dtype("data2") in INTEGERS:
            wide = op.apply(m.raw("data1").astype(np.int64), m.raw("data2").astype(np.int64))
            m.put("dst", wide.astype(np.int64))
        else:
            with np.errstate(all="ignore"):
                m.put("dst", op.apply(m.f32("data1"), m.f32("data2")))


@instruction(engines=("vector", "scalar", "gpsimd"), taint="elementwise", cost="max(64, N); one or two ops alike")
class tensor_scalar:
    """dst = (data op0 operand0) op1 operand1 with numbers or one value a partition; reverse swaps the operands."""

    def signature(
        dst: out(),
        data: tile(),
        op0: OP,
        operand0: vector(),
        reverse0: PLAIN = False,
        op1: OP = None,
        operand1: vector() = None,
        reverse1: PLAIN = False,
        engine: ENUM = UNKNOWN,
    ): ...

    def check(site):
        ops = [check_op(site, "op0")] + ([check_op(site, "op1")] if site.attr("op1") else [])
        check_same_elements(site, "dst", "data")
        if any(op.kind == "bitvec" for op in ops):
            if not all(op.kind == "bitvec" for op in ops):
                raise site.refuse(
                    "operator_mix", "a bit-wise and an arithmetic operator in one instruction", "split it"
                )
            check_bitvec_dtypes(site, "dst", "data")

    def run(m, site):
        names = [("op0", "operand0", "reverse0"), ("op1", "operand1", "reverse1")]
        bitvec = ALU[site.attr("op0")].kind == "bitvec"
        value = m.raw("data") if bitvec else m.f32("data")
        with np.errstate(all="ignore"):
            for op_name, operand, reverse in names:
                if not site.attr(op_name):
                    continue
                op = ALU[site.attr(op_name)]
                if bitvec:
                    other = m.raw(operand) if site.has(operand) else np.asarray(site.attr(operand) or 0)
                    other = other.astype(value.dtype)
                else:
                    other = m.vector(operand)
                value = op.apply(other, value) if site.attr(reverse) else op.apply(value, other)
        if bitvec:
            m.put_raw("dst", value.astype(STORAGE[site.dtype("dst")]))
        else:
            m.put("dst", np.asarray(value, np.float32))


@instruction(engines=("vector",), taint="elementwise", cost="max(64, N)")
class scalar_tensor_tensor:
    """dst = (data op0 operand0) op1 operand1; operand0 a number or one a partition, operand1 a tile like data."""

    def signature(
        dst: out(),
        data: tile(),
        op0: OP,
        operand0: vector(),
        op1: OP,
        operand1: tile(),
        reverse0: PLAIN = False,
        reverse1: PLAIN = False,
    ): ...

    def check(site):
        check_op(site, "op0", ("arithmetic",))
        check_op(site, "op1", ("arithmetic",))
        check_same_elements(site, "dst", "data", "operand1")
        check_one_psum(site, "data", "operand1")

    def run(m, site):
        a, b = m.f32("data"), m.vector("operand0")
        with np.errstate(all="ignore"):
            first = ALU[site.attr("op0")].apply(*((b, a) if site.attr("reverse0") else (a, b)))
            other = m.f32("operand1")
            second = ALU[site.attr("op1")].apply(*((other, first) if site.attr("reverse1") else (first, other)))
        m.put("dst", second)


@instruction(engines=("vector",), taint="elementwise", cost="max(64, 8N)")
class reciprocal:
    """dst = 1 / data on VectorE."""

    def signature(dst: out(), data: tile()): ...

    def check(site):
        check_same_elements(site, "dst", "data")

    def run(m, site):
        with np.errstate(all="ignore"):
            m.put("dst", np.float32(1) / m.f32("data"))
