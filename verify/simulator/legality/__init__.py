"""What hardware would refuse: static rules over the trace. Dynamic rules have the same names and live in `machine`."""

from __future__ import annotations

from nkismith.verify.simulator.capacity.allocation import allocate
from nkismith.verify.simulator.hardware import target
from nkismith.verify.simulator.legality.addresses import check_addresses
from nkismith.verify.simulator.legality.operands import check_instruction
from nkismith.verify.simulator.trace import Trace, walk

__all__ = ["check", "check_instruction"]


def check(trace: Trace) -> None:
    """Check a whole trace. Raises LegalityError (rule, line, what was seen, fix) at the first violation."""
    machine = target(trace.target)
    for program in trace.programs:
        for instr in walk(program.body):
            check_instruction(instr, trace.buffers, machine, trace.lnc, trace.files)
        check_addresses(trace.buffers, program, machine, trace.outputs)
    allocate(trace)
