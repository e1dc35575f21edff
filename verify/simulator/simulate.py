"""nki.simulate: run a kernel on arrays in this process, instruction by instruction as it is issued.

With one core, every instruction executes when the kernel's Python issues it, so `breakpoint()`, `print(tile)` and
`nl.device_print` see values; a compiled loop's body runs live once and is then replayed. With two cores both
programs are recorded first and executed side by side. Source: nki.simulate, nki_simulator (NKI 0.7).
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from nkismith.verify.simulator import legality
from nkismith.verify.simulator.arguments import replaced
from nkismith.verify.simulator.arrays import for_target, is_array, is_torch, like, to_numpy, write_back
from nkismith.verify.simulator.divergence import Watch
from nkismith.verify.simulator.dtypes import STORAGE, named
from nkismith.verify.simulator.errors import LegalityError, SimulatorError
from nkismith.verify.simulator.execute import Execution, collect, execute
from nkismith.verify.simulator.hardware import Target, target
from nkismith.verify.simulator.kernel import Kernel, TensorType, located_at, record, unwrap
from nkismith.verify.simulator.machine import Machine
from nkismith.verify.simulator.memory import Memory
from nkismith.verify.simulator.recorder import current
from nkismith.verify.simulator.tensor import NkiTensor
from nkismith.verify.simulator.trace import Buffer, Instr, Loop, Operand, Trace, While

__all__ = ["NkiWarning", "like", "simulate", "to_numpy", "write_back"]


class NkiWarning(UserWarning):
    """Something that hardware accepts and the documentation does not, or does oddly; the message names the line."""


def simulate(
    kernel: Any, *, compare: Mapping[str, Any] | None = None, tolerance: float | None = None
) -> Callable[..., Any]:
    """A callable that runs `kernel` (also `kernel[2]`) on NumPy arrays or torch tensors and returns the same kind.

    Inputs that the kernel wrote are updated in place. `compare` binds tiles that the kernel named (nl.ndarray(...,
    name="scores")) to arrays; the first tile that differs raises Divergence with its line. `tolerance` is relative
    to the largest reference value; the default follows from the tile's dtype. NKI_PRECISE_FP=0 keeps low-precision
    tensors in float32. Raises LegalityError for what hardware would refuse.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        watch = Watch(compare or {}, tolerance)
        result = _run(kernel, args, kwargs, watch)
        watch.report()
        return result

    return run


def call_on_host(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A kernel called outside nki.simulate: simulated under NKI_SIMULATOR=1, else an error (there is no device)."""
    if os.environ.get("NKI_SIMULATOR") == "1":
        return simulate(kernel)(*args, **kwargs)
    raise SimulatorError(
        f"{kernel.function.__name__} was called directly and there is no Trainium here: "
        "use nki.simulate(kernel)(...) or set NKI_SIMULATOR=1"
    )


def precise() -> bool:
    """NKI_PRECISE_FP: does a write round to the tensor's dtype?"""
    return os.environ.get("NKI_PRECISE_FP", "1") != "0"


class _Live:
    """Executes each instruction as the recorder sees it (one core)."""

    def __init__(self, chip: Target, arrays: list[np.ndarray], watch: Watch) -> None:
        self.memory = Memory(precise())
        self.machine = Machine([], self.memory, chip)
        watch.attach(self.machine)
        self.machine.console = print
        self._arrays = list(arrays)
        self._suspended = 0
        self._values: list[range] = []  # of the counted loops that are open: what the body does to a bound is too late

    def allocated(self, buffer: Buffer) -> None:
        """Give a new buffer its memory."""
        self.machine.buffers = current().buffers
        if buffer.kind == "input":
            self.memory.load(buffer, self._arrays.pop(0))
        elif buffer.kind == "constant":
            self.memory.load(buffer, np.frombuffer(buffer.data, STORAGE[buffer.dtype]).reshape(buffer.shape))
        else:
            self.memory.allocate(buffer)

    def issued(self, instr: Instr) -> None:
        """Check and execute an instruction; inside a loop that runs no iteration it is only checked."""
        recorder = current()
        try:
            legality.check_instruction(instr, recorder.buffers, recorder.target, recorder.lnc)
            if not self._suspended:
                self.machine.execute(instr)
        except LegalityError as error:
            error.file = error.file or recorder.file_name(instr.file)
            raise

    def values(self, operand: Operand) -> np.ndarray | None:
        """A copy of what a static operand holds; None inside a loop that runs no iteration."""
        return None if self._suspended else self.memory.view(operand).copy()

    def loop_opened(self, loop: Loop | While) -> None:
        """The first iteration runs live, if there is one."""
        if isinstance(loop, Loop):
            values = range(0) if self._suspended else self.machine.bounds(loop)
            self._values.append(values)
            runs = bool(values)
            if runs:
                self.machine.scalars[loop.index] = values[0]
        else:
            runs = not self._suspended and self.machine.value(loop.init, loop.line) != 0
            if runs:
                self.machine.scalars[loop.condition] = self.machine.value(loop.init)
        if self._suspended or not runs:
            self._suspended += 1

    def loop_closed(self, loop: Loop | While) -> None:
        """The other iterations are replayed."""
        values = self._values.pop() if isinstance(loop, Loop) else range(0)
        if self._suspended:
            self._suspended -= 1
            return
        self.machine._scoped = None
        if isinstance(loop, Loop):
            for _ in self.machine.iterate(loop, values[1:]):
                pass
        else:
            assert loop.next is not None
            self.machine.scalars[loop.condition] = self.machine.value(loop.next)
            for _ in self.machine.repeat(loop):
                pass


def _run(kernel: Any, args: tuple, kwargs: dict, watch: Watch) -> Any:
    from nkismith.verify.simulator.install import setting

    chosen = setting()
    chip = target(chosen.target)
    lnc = (kernel.lnc if isinstance(kernel, Kernel) else None) or chosen.lnc
    arrays: list[np.ndarray] = []
    given: list[Any] = []

    def describe(_: str, value: Any) -> TensorType:
        array = for_target(to_numpy(value), chip.generation)
        arrays.append(array)
        given.append(value)
        return TensorType(array.shape, str(named(array.dtype)))

    with located_at(unwrap(kernel)):
        described = tuple(replaced(str(i), a, is_array, describe) for i, a in enumerate(args))
        named_args = {k: replaced(k, v, is_array, describe) for k, v in kwargs.items()}
    live = _Live(chip, arrays, watch) if lnc == 1 else None
    if not isinstance(kernel, Kernel):
        kernel = Kernel(unwrap(kernel))
    trace, structure = record(
        kernel, described, named_args, target=chosen.target, sdk=chosen.sdk, lnc=lnc, observer=live
    )
    legality.check(trace)
    if live:
        done = collect(trace, live.memory, [live.machine])
    else:
        done = execute(trace, arrays, precise=precise(), attach=watch.attach, console=print)
    for line, text in dict.fromkeys((*done.warnings, *_check_written(trace, done))):
        where = f"{_file(trace)}:{line}" if _file(trace) else f"line {line}"
        warnings.warn(f"{where}: {text}", NkiWarning, stacklevel=3)
    _update(given, arrays, done)
    outputs = iter(done.outputs)
    return _rebuild(structure, outputs, any(is_torch(g) for g in given))


def _check_written(trace: Trace, done: Execution) -> list[tuple[int, str]]:
    """Refuse results computed from unwritten data; warn of elements that no instruction touched.

    The documented nki.simulate returns NaN there: a kernel may leave a part of its output to another launch.
    """
    results = [(trace.buffers[o.buffer], mask) for o, mask in zip(trace.outputs, done.unwritten, strict=True)]
    results += [(trace.buffers[i], mask) for i, mask in zip(trace.inputs, done.poisoned, strict=True)]
    seen = []
    for buffer, mask in results:
        if mask is None:
            continue
        at = np.argwhere(mask)
        where = f"{len(at):,} of {mask.size:,} elements, first at {at[0].tolist()}"
        if buffer.id in done.poured:
            raise LegalityError(
                "unwritten_output",
                f"{buffer.name}: {where}, come from data that nothing wrote",
                "write every element that is read, or return a view of the part that is written",
                buffer.line or None,
                _file(trace),
            )
        seen.append((buffer.line, f"{buffer.name}: nothing wrote {where}; they read as NaN, or 0 in integers"))
    return seen


def _file(trace: Trace) -> str:
    """The source file, if the kernel has one: lines of tensors and warnings do not tell which."""
    return trace.files[0] if len(trace.files) == 1 else ""


def _update(given: list[Any], arrays: list[np.ndarray], done: Execution) -> None:
    for original, before, after in zip(given, arrays, done.inputs, strict=True):
        if after.dtype != before.dtype:  # high-precision mode
            same = np.array_equal(before.astype(after.dtype), after, equal_nan=True)
        else:
            same = before.tobytes() == after.tobytes()
        if not same:
            write_back(original, after)


def _rebuild(structure: Any, outputs: Any, torch_like: bool) -> Any:
    if isinstance(structure, NkiTensor):
        return like(next(outputs), torch_like)
    if isinstance(structure, tuple | list):
        parts = [_rebuild(s, outputs, torch_like) for s in structure]
        return type(structure)(*parts) if hasattr(structure, "_fields") else type(structure)(parts)
    return None


def simulate_kernel(kernel: Any, args: tuple, kwargs: dict[str, Any] | None = None, _lnc: int | None = None) -> Any:
    """nki.simulator.simulate_kernel, the form in which serving frameworks call the simulator."""
    wrapped = kernel if isinstance(kernel, Kernel) else Kernel(unwrap(kernel))
    return simulate(wrapped[_lnc] if _lnc else wrapped)(*args, **(kwargs or {}))
