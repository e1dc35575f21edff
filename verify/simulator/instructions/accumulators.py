"""Reduce registers of VectorE and ScalarE: one float32 a lane that persists between instructions.

The instructions of an engine share them. On VectorE an idle instruction may leave anything there; on ScalarE it leaves
them alone. What no reset defined is unwritten data: it may flow and is refused where it reaches an output.
"""

import numpy as np

from nkismith.verify.simulator.instructions.checks import check_column
from nkismith.verify.simulator.operators import ALU, reduced

REDUCING = ("reduce", "reset_reduce", "load_reduce")


def check_accumulator(site, commands, like="data", init=None):
    """reduce_cmd is one the instruction has, reduce_res a column, the initial value given exactly when loaded."""
    command = site.attr("reduce_cmd")
    if command not in commands:
        raise site.refuse("reduce_cmd", f"reduce_cmd={command}", f"one of {', '.join(commands)}")
    check_column(site, "reduce_res", like)
    if init is None:
        return
    given = site.has(init) or site.attr(init) not in (None, 0.0)
    if given and command != "load_reduce":
        raise site.refuse("reduce_init", f"{init} with reduce_cmd={command}", "set it only with load_reduce")
    if command == "load_reduce" and not site.has(init) and site.attr(init) is None:
        raise site.refuse("reduce_init", f"load_reduce without {init}", f"pass {init}")


def lanes_of(m, site, name):
    """The lanes of a compute operand: the partitions it lies on."""
    operand = m.operand(name)
    address = m.buffers[operand.buffer].address
    start = operand.start + (address[0] if address else 0)
    return slice(start, start + operand.partitions)


def tainted_rows(m, like):
    """[P] mask of the partitions in which an input holds unwritten data."""
    flow = m.flow(like, "rows")
    return flow.any(axis=1) if isinstance(flow, np.ndarray) else False


def accumulate(m, site, values, op_name, *, engine, like, command=None, init=None, negate=False, tainted=None):
    """Apply reduce_cmd to the accumulator of an engine with float32 results [P, N], and read it into reduce_res.

    `tainted` says in which rows the results hold unwritten data; None: where any input does.
    """
    op, lanes = ALU[op_name], lanes_of(m, site, like)
    register = m.accumulators[engine]
    command = command or site.attr("reduce_cmd")
    if command in ("reset", "reset_reduce"):
        register.values[lanes], register.undefined[lanes] = op.identity, False
    elif command == "load_reduce":
        start = m.vector(init)
        register.values[lanes] = start.reshape(-1) if isinstance(start, np.ndarray) else start
        register.undefined[lanes] = False
    elif command == "idle" and engine == "vector":
        register.undefined[lanes] = True
    if command in REDUCING:
        register.values[lanes] = op.apply(register.values[lanes], reduced(op, values))
        register.undefined[lanes] |= tainted_rows(m, like) if tainted is None else tainted
    if site.has("reduce_res"):
        result = register.values[lanes]
        m.put("reduce_res", (-result if negate else result)[:, None])


def accumulating_taint(like, engine):
    """How unwritten data flows through an instruction with an accumulator: element by element, and by lane."""

    def taint(m, site):
        m.mark("dst", m.flow("dst"))
        mark_read_out(m, site, like, engine)

    return taint


def mark_read_out(m, site, like, engine):
    """Mark reduce_res: unwritten where its lane of the accumulator holds nothing defined."""
    if site.has("reduce_res"):
        undefined = m.accumulators[engine].undefined[lanes_of(m, site, like)]
        m.mark("reduce_res", undefined[:, None] if undefined.any() else False)
