"""Is every accumulation as precise as the spec asks? Decided on the trace, not on the numbers.

Sums that are kept in fewer bits than the spec's accumulation dtype are a different algorithm, however well one
drawn input hides it. Accumulating writes are: matmuls that add to PSUM, sums over an axis whose result is summed on,
and element-wise additions onto their own destination again and again, in a compiled loop or unrolled. A single addition
in place is rounded once, as any other. Maxima and minima lose nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nkismith.verify.failure import Failure
from nkismith.verify.reasons import Reason
from nkismith.verify.simulator.dtypes import FLOATS, ITEMSIZE
from nkismith.verify.simulator.instruction import Definition, define
from nkismith.verify.simulator.trace import Instr, Loop, Node, Operand, Trace, While, walk

SUMS = frozenset({"add", "subtract", "multiply"})
_OPERATORS = ("op", "op0", "op1", "reduce_op")
_REDUCED = {"tensor_reduce": "dst", "tensor_partition_reduce": "dst"}  # where the sum of a reduction goes


def check_precision(trace: Trace, accumulate: str) -> None:
    """Raise Failure(precision_downgrade) at the first accumulating write below `accumulate`."""
    if ITEMSIZE[accumulate] < ITEMSIZE["float32"]:
        return
    scopes = {buffer.id: buffer.scope for buffer in trace.buffers}
    for program in trace.programs:
        read = {
            operand.buffer
            for instr in walk(program.body)
            if not instr.op.startswith("dma_")
            for name, operand in instr.operands.items()
            if name in define(instr.op).reads
        }
        written: set[Operand] = set()  # PSUM regions that a matmul has written: a later one adds to them
        added: set[Operand] = set()  # regions that hold a sum: something was added onto them in place
        for instr, loop in _placed(program.body):
            definition = define(instr.op)
            onto_itself = _adds_onto_itself(instr, definition)
            names = _accumulating(instr, definition, read, written)
            if onto_itself:
                dst = instr.operands["dst"]
                carried = loop != 0 and scopes[dst.buffer] != loop  # the loop adds to it in every iteration
                names += ["dst"] if carried or dst in added else []
                added.add(dst)
            else:
                added.difference_update(instr.operands[n] for n in definition.writes if n in instr.operands)
            for name in names:
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
    return found


def _adds_onto_itself(instr: Instr, definition: Definition) -> bool:
    """Whether an element-wise addition has its destination as an operand."""
    target = instr.operands.get("dst")
    if target is None or instr.op in _REDUCED or instr.op.startswith("nc_matmul"):
        return False
    adds = instr.attrs.get("op", instr.attrs.get("op1")) in ("add", "subtract")
    return adds and any(n in instr.operands and instr.operands[n][:6] == target[:6] for n in definition.reads)


def _placed(body: Sequence[Node], loop: int = 0) -> Iterator[tuple[Instr, int]]:
    """Every instruction once, with the id of the innermost compiled loop around it (0 for none)."""
    for node in body:
        if isinstance(node, Instr):
            yield node, loop
        else:
            yield from _placed(node.body, node.id if isinstance(node, Loop | While) else loop)
