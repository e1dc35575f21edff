"""What hardware would refuse: static rules over the trace. Dynamic rules have the same names and live in `machine`."""

from __future__ import annotations

from nkismith.verify.simulator.capacity.allocation import allocate
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.hardware import target
from nkismith.verify.simulator.legality.addresses import check_addresses
from nkismith.verify.simulator.legality.operands import check_instruction
from nkismith.verify.simulator.trace import Instr, Trace, walk

__all__ = ["check", "check_instruction"]


def check(trace: Trace) -> None:
    """Check a whole trace. Raises LegalityError (rule, line, what was seen, fix) at the first violation."""
    machine = target(trace.target)
    for program in trace.programs:
        for instr in walk(program.body):
            check_instruction(instr, trace.buffers, machine, trace.lnc, trace.files)
            _check_core(instr, trace, program.core)
        check_addresses(trace.buffers, program, machine, trace.outputs)
    allocate(trace)


def _check_core(instr: Instr, trace: Trace, core: int) -> None:
    """A core reaches its own memories and shared HBM; Python that builds both cores could hand over anything."""
    for name, operand in instr.operands.items():
        index = operand.dynamic.index if operand.dynamic is not None else None
        for id_ in (operand.buffer,) if index is None else (operand.buffer, index.buffer):
            buffer = trace.buffers[id_]
            if buffer.core not in (-1, core):
                raise LegalityError(
                    "buffer", f"{instr.op} of core {core}: {name} is {buffer.name!r} of core {buffer.core}",
                    "exchange data through nl.shared_hbm and nisa.core_barrier, or with nisa.sendrecv", instr.line,
                )  # fmt: skip
