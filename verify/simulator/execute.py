"""Run a trace on arrays: the cores' programs side by side on shared memory, buffers dropped after their last use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from nkismith.verify.simulator.dtypes import STORAGE, named
from nkismith.verify.simulator.errors import LegalityError, SimulatorError
from nkismith.verify.simulator.hardware import target
from nkismith.verify.simulator.machine import STEP_BUDGET, Machine
from nkismith.verify.simulator.memory import Memory
from nkismith.verify.simulator.races import watch_races
from nkismith.verify.simulator.rearrange import dense_strides
from nkismith.verify.simulator.trace import Buffer, Instr, Node, Operand, Ordered, Program, Trace, walk


@dataclass(frozen=True, slots=True)
class Execution:
    """What a trace left: outputs in return order, inputs as the kernel left them, and what was never written."""

    outputs: tuple[np.ndarray, ...]
    inputs: tuple[np.ndarray, ...]
    unwritten: tuple[np.ndarray | None, ...]  # a mask for each output, None when all of it was written
    warnings: tuple[tuple[int, str], ...]
    poisoned: tuple[np.ndarray | None, ...] = ()  # for each input: where unwritten data was written into it
    poured: frozenset[int] = frozenset()  # buffers into which some instruction wrote unwritten data
    read_unwritten: bool = False  # was a buffer read of which parts were unwritten?


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


def execute(
    trace: Trace,
    arrays: list[np.ndarray],
    *,
    seed: int = 0,
    steps: int = STEP_BUDGET,
    precise: bool = True,
    attach: Callable[[Machine], None] | None = None,
    console: Callable[[str], None] | None = None,
    found: np.random.Generator | None = None,
) -> Execution:
    """Execute a legal trace on arrays given in the order of its inputs. Raises LegalityError for dynamic rules.

    `precise=False` is the high-precision mode of `Memory`; `attach` sees each machine before it runs (and keeps all
    buffers alive); `console` takes what nl.device_print says; `found` makes what unwritten memory and registers hold.
    """
    memory = Memory(precise, found)
    load_inputs(trace, memory, arrays)
    machines = []
    for program in trace.programs:
        machine = Machine(
            trace.buffers, memory, target(trace.target),
            core=program.core, lnc=trace.lnc, files=trace.files, seed=seed + program.core, steps=steps,
        )  # fmt: skip
        machine.console, machine.quiet = console, True
        machines.append(machine)
        if found is not None:
            for register in machine.accumulators.values():
                register.values[...] = found.standard_normal(register.values.shape)
        if attach:
            attach(machine)
    if len(machines) > 1:
        watch_races(trace, machines)
    keep = attach is not None
    with np.errstate(all="ignore"):  # once: it costs as much as a small instruction
        together(machines, [_steps(m, p, trace, keep) for m, p in zip(machines, trace.programs, strict=True)])
    return collect(trace, memory, machines)


def _steps(machine: Machine, program: Program, trace: Trace, keep: bool) -> Iterator[object]:
    """The steps of one program. A buffer of this core goes after the last top-level node that uses it."""
    nodes = list(_top(program.body))
    dying: dict[int, list[int]] = {} if keep else _last_uses(nodes, trace, program.core)
    for at, node in enumerate(nodes):
        if isinstance(node, Instr):
            waiting = machine.execute(node)
            while waiting is not None:
                yield waiting
                waiting = machine.execute(node)
        else:
            yield from machine.steps([node])
        for buffer in dying.get(at, ()):
            machine.memory.free(buffer)
            machine.matmul_written.pop(buffer, None)


def _top(body: list[Node]) -> Iterator[Node]:
    for node in body:
        if isinstance(node, Ordered):
            yield from _top(node.body)
        else:
            yield node


def held_bytes(trace: Trace) -> int:
    """The most bytes that `execute` holds at a time in buffers that are neither inputs nor constants."""
    sizes = {
        b.id: b.free * STORAGE[b.dtype].itemsize * (1 if b.space == "hbm" else b.shape[0])
        for b in trace.buffers
        if b.kind in ("internal", "output")
    }
    lasting = {b.id for b in trace.buffers if b.kind == "output" or b.core < 0}  # to the end
    peaks = sum(sizes[id_] for id_ in lasting & sizes.keys())
    for program in trace.programs:
        nodes = list(_top(program.body))
        dying = _last_uses(nodes, trace, program.core)
        held, peak, met = 0, 0, set(lasting)
        for at, node in enumerate(nodes):
            used = {b for instr in walk([node]) for b in _buffers(instr)} & sizes.keys()
            held += sum(sizes[b] for b in used - met)
            met |= used
            peak = max(peak, held)
            held -= sum(sizes[b] for b in dying.get(at, ()) if b in sizes and b not in lasting)
        peaks += peak
    return peaks


def _buffers(instr: Instr) -> Iterator[int]:
    for operand in instr.operands.values():
        yield operand.buffer
        if operand.dynamic is not None and operand.dynamic.index is not None:
            yield operand.dynamic.index.buffer


def _last_uses(nodes: list[Node], trace: Trace, core: int) -> dict[int, list[int]]:
    """Buffers by the index of the node after which nothing needs them."""
    last: dict[int, int] = {}
    for at, node in enumerate(nodes):
        for instr in (node,) if isinstance(node, Instr) else walk([node]):
            last.update(dict.fromkeys(_buffers(instr), at))
    dying: dict[int, list[int]] = {}
    for id_, at in last.items():
        buffer = trace.buffers[id_]
        if buffer.kind == "internal" and buffer.core == core:
            dying.setdefault(at, []).append(id_)
    return dying


def together(machines: list[Machine], cores: list[Iterator[object]]) -> None:
    """Run the cores' step generators in turn until all end; a round in which all wait is a deadlock."""
    post: dict[Any, Any] = {}
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
            ended = [i for i in range(len(cores)) if i not in alive]
            if ended:
                what += f"; core {ended[0]} has ended"
            line = machines[min(waits)].site.instr.line
            raise LegalityError("deadlock", what, "both cores must execute the same cross-core instructions", line)


def collect(trace: Trace, memory: Memory, machines: list[Machine]) -> Execution:
    """Read outputs and inputs back."""
    read, outputs, unwritten = memory.read_unwritten, [], []
    for operand in trace.outputs:
        if not memory.holds(operand.buffer):
            memory.allocate(trace.buffers[operand.buffer])
        unwritten.append(memory.taint(operand))
        outputs.append(memory.view(operand).copy())
    inputs = tuple(memory.whole(trace.buffers[i]) for i in trace.inputs)
    poisoned = tuple(memory.taint(whole(trace.buffers[i])) for i in trace.inputs)
    warnings = (*trace.warnings, *(w for m in machines for w in m.warnings))
    return Execution(tuple(outputs), inputs, tuple(unwritten), warnings, poisoned, memory.poured, read)


def whole(buffer: Buffer) -> Operand:
    """The operand that covers an HBM buffer."""
    strides = dense_strides(buffer.shape)
    return Operand(buffer.id, buffer.dtype, 0, 0, 0, tuple(zip(strides, buffer.shape, strict=True)))
