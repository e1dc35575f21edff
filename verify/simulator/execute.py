"""Run a trace on arrays: the cores' programs side by side on shared memory."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nkismith.verify.simulator.dtypes import STORAGE, named
from nkismith.verify.simulator.errors import LegalityError, SimulatorError
from nkismith.verify.simulator.hardware import target
from nkismith.verify.simulator.machine import STEP_BUDGET, Machine
from nkismith.verify.simulator.memory import Memory
from nkismith.verify.simulator.trace import Trace


@dataclass(frozen=True, slots=True)
class Execution:
    """What a trace left: outputs in return order, inputs as the kernel left them, and what was never written."""

    outputs: tuple[np.ndarray, ...]
    inputs: tuple[np.ndarray, ...]
    unwritten: tuple[np.ndarray | None, ...]  # a mask for each output, None when all of it was written
    warnings: tuple[tuple[int, str], ...]


def load_inputs(trace: Trace, memory: Memory, arrays: list[np.ndarray]) -> None:
    """Put the argument arrays and the constants into memory. Raises SimulatorError on a wrong count, shape or dtype."""
    if len(arrays) != len(trace.inputs):
        raise SimulatorError(f"{trace.entry} takes {len(trace.inputs)} tensors, got {len(arrays)}")
    for id_, array in zip(trace.inputs, arrays, strict=True):
        buffer = trace.buffers[id_]
        if (array.shape or (1,)) != buffer.shape or named(array.dtype) != buffer.dtype:
            raise SimulatorError(
                f"input {buffer.name} was recorded as {buffer.shape} {buffer.dtype}, got {array.shape} {array.dtype}"
            )
        memory.load(buffer, array)
    for buffer in trace.buffers:
        if buffer.kind == "constant":
            memory.load(buffer, np.frombuffer(buffer.data, STORAGE[buffer.dtype]).reshape(buffer.shape))


def execute(trace: Trace, arrays: list[np.ndarray], *, seed: int = 0, steps: int = STEP_BUDGET) -> Execution:
    """Execute a legal trace on arrays given in the order of its inputs. Raises LegalityError for dynamic rules."""
    memory = Memory()
    load_inputs(trace, memory, arrays)
    machines = [
        Machine(
            trace.buffers, memory, target(trace.target),
            core=p.core, lnc=trace.lnc, files=trace.files, seed=seed + p.core, steps=steps,
        )
        for p in trace.programs
    ]  # fmt: skip
    together(machines, [m.steps(p.body) for m, p in zip(machines, trace.programs, strict=True)])
    return collect(trace, memory, machines)


def together(machines: list[Machine], cores: list) -> None:
    """Run the cores' step generators in turn until all end; a round in which all wait is a deadlock."""
    post: dict = {}
    for machine in machines:
        machine.post = post
    alive = dict(enumerate(cores))
    while alive:
        waits, before = {}, len(post.get("log", ()))
        for index in list(alive):
            try:
                waits[index] = next(alive[index])
            except StopIteration:
                del alive[index]
        if len(waits) == len(alive) and alive and len(post.get("log", ())) == before:
            what = "; ".join(f"core {i} waits for {w}" for i, w in waits.items())
            raise LegalityError("deadlock", what, "both cores must execute the same cross-core instructions")


def collect(trace: Trace, memory: Memory, machines: list[Machine]) -> Execution:
    """Read outputs and inputs back."""
    outputs, unwritten = [], []
    for operand in trace.outputs:
        if not memory.holds(operand.buffer):
            memory.allocate(trace.buffers[operand.buffer])
        outputs.append(memory.view(operand).copy())
        unwritten.append(memory.taint(operand))
    inputs = tuple(memory.whole(trace.buffers[i]).copy() for i in trace.inputs)
    warnings = (*trace.warnings, *(w for m in machines for w in m.warnings))
    return Execution(tuple(outputs), inputs, tuple(unwritten), warnings)
