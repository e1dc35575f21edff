"""Is every accumulation as precise as the spec asks? Decided on the trace, not on the numbers.

Sums that are kept in fewer bits than the spec's accumulation dtype are a different algorithm, however well one
drawn input hides it. Accumulating writes are: matmuls that add to PSUM, sums over an axis whose result is summed on,
and element-wise additions onto their own destination (loop-carried). Maxima and minima lose nothing.
"""

from __future__ import annotations

from nkismith.verify.failure import Failure
from nkismith.verify.reasons import Reason
from nkismith.verify.simulator.dtypes import FLOATS, ITEMSIZE
from nkismith.verify.simulator.instruction import Definition, define
from nkismith.verify.simulator.trace import Instr, Operand, Trace, walk

SUMS = frozenset({"add", "subtract", "multiply"})
_OPERATORS = ("op", "op0", "op1", "reduce_op")
_REDUCED = {"tensor_reduce": "dst", "tensor_partition_reduce": "dst"}  # where the sum of a reduction goes


def check_precision(trace: Trace, accumulate: str) -> None:
    """Raise Failure(precision_downgrade) at the first accumulating write below `accumulate`."""
    if ITEMSIZE[accumulate] < ITEMSIZE["float32"]:
        return
    for program in trace.programs:
        read = {
            operand.buffer
            for instr in walk(program.body)
            if not instr.op.startswith("dma_")
            for name, operand in instr.operands.items()
            if name in define(instr.op).reads
        }
        written: set[Operand] = set()  # PSUM regions that a matmul has written: a later one adds to them
        for instr in walk(program.body):
            definition = define(instr.op)
            for name in _accumulating(instr, definition, read, written):
                dtype = instr.operands[name].dtype
                if dtype in FLOATS and ITEMSIZE[dtype] < ITEMSIZE[accumulate]:
                    raise Failure(
                        Reason.PRECISION_DOWNGRADE,
                        f"{instr.op} accumulates into {dtype}; the spec accumulates in {accumulate}",
                        fix=f"keep the running sum in a {accumulate} tile and round once at the end",
                        line=instr.line,
                    )


def _accumulating(instr: Instr, definition: Definition, read: set[int], written: set[Operand]) -> list[str]:
    """Output parameters of an instruction that hold a running sum."""
    operands = instr.operands
    if instr.op.startswith("nc_matmul"):
        command = instr.attrs.get("accumulate")
        adds = command is True or (command is None and operands["dst"] in written)
        written.add(operands["dst"])
        return ["dst"] if adds and not instr.attrs.get("is_transpose") else []
    if not any(instr.attrs.get(o) in SUMS for o in _OPERATORS):
        return []
    found = []
    if "reduce_res" in operands and instr.attrs.get("reduce_op") in SUMS and operands["reduce_res"].buffer in read:
        found.append("reduce_res")
    if instr.op in _REDUCED and operands["dst"].buffer in read:
        found.append("dst")
    elif "dst" in operands and instr.attrs.get("op", instr.attrs.get("op1")) in ("add", "subtract"):
        target = operands["dst"]
        same = [n for n in definition.reads if n in operands and operands[n][:6] == target[:6]]
        found += ["dst"] if same else []
    return found
