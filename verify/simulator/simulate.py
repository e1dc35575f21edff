"""nki.simulate: run a kernel on arrays in this process, instruction by instruction as it is issued.

With one core, every instruction executes when the kernel's Python issues it, so `breakpoint()` and
`nl.device_print` see values; a compiled loop's body runs live once and is then replayed. With two cores both
programs are recorded first and executed side by side. Source: nki.simulate (NKI 0.7).
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from nkismith.verify.simulator import legality
from nkismith.verify.simulator.dtypes import named
from nkismith.verify.simulator.errors import SimulatorError
from nkismith.verify.simulator.execute import collect, execute
from nkismith.verify.simulator.hardware import target
from nkismith.verify.simulator.kernel import Kernel, TensorType, record, unwrap
from nkismith.verify.simulator.machine import Machine
from nkismith.verify.simulator.memory import Memory
from nkismith.verify.simulator.recorder import current
from nkismith.verify.simulator.tensor import NkiTensor
from nkismith.verify.simulator.trace import Buffer, Instr, Loop, While


def simulate(kernel: Any) -> Any:
    """A callable that runs `kernel` (also `kernel[2]`) on NumPy arrays or torch tensors and returns the same kind.

    Inputs that the kernel wrote are updated in place. Raises LegalityError for what hardware would refuse.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        from nkismith.verify.simulator.install import setting

        chosen = setting()
        lnc = (kernel.lnc if isinstance(kernel, Kernel) else None) or chosen.lnc
        return _run(unwrap(kernel), args, kwargs, chosen.target, chosen.sdk, lnc)

    return run


def call_on_host(kernel: Kernel, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A kernel called outside nki.simulate: simulated under NKI_SIMULATOR=1, else an error (there is no device)."""
    if os.environ.get("NKI_SIMULATOR") == "1":
        return simulate(kernel)(*args, **kwargs)
    raise SimulatorError(
        f"{kernel.function.__name__} was called directly and there is no Trainium here: "
        "use nki.simulate(kernel)(...) or set NKI_SIMULATOR=1"
    )


class _Live:
    """Executes each instruction as the recorder sees it (one core)."""

    def __init__(self, target_name: str, arrays: list[np.ndarray]) -> None:
        self.memory = Memory()
        self.machine = Machine([], self.memory, target(target_name))
        self._arrays = list(arrays)
        self._suspended = 0

    def allocated(self, buffer: Buffer) -> None:
        self.machine.buffers = current().buffers
        if buffer.kind == "input":
            self.memory.load(buffer, self._arrays.pop(0))
        elif buffer.kind == "constant":
            from nkismith.verify.simulator.dtypes import STORAGE

            self.memory.load(buffer, np.frombuffer(buffer.data, STORAGE[buffer.dtype]).reshape(buffer.shape))
        else:
            self.memory.allocate(buffer)

    def issued(self, instr: Instr) -> None:
        recorder = current()
        legality.check_instruction(instr, recorder.buffers, recorder.target, recorder.lnc)
        if not self._suspended:
            self.machine.execute(instr)

    def loop_opened(self, loop: Loop | While) -> None:
        if isinstance(loop, Loop):
            first = None if self._suspended else self.machine.value(loop.lower)
            runs = first is not None and first < self.machine.value(loop.upper)
            if runs:
                self.machine.scalars[loop.index] = first  # type: ignore[assignment]
        else:
            runs = not self._suspended and self.machine.value(loop.init) != 0
            if runs:
                self.machine.scalars[loop.condition] = self.machine.value(loop.init)
        if self._suspended or not runs:
            self._suspended += 1

    def loop_closed(self, loop: Loop | While) -> None:
        if self._suspended:
            self._suspended -= 1
            return
        self.machine._scoped = None
        if isinstance(loop, Loop):
            lower, upper = self.machine.value(loop.lower), self.machine.value(loop.upper)
            for _ in self.machine.iterate(loop, range(lower, upper, loop.step)[1:]):
                pass
        else:
            assert loop.next is not None
            self.machine.scalars[loop.condition] = self.machine.value(loop.next)
            for _ in self.machine.repeat(loop):
                pass


def _run(function: Any, args: tuple, kwargs: dict, target_name: str, sdk: str, lnc: int) -> Any:
    arrays: list[np.ndarray] = []
    given: list[Any] = []

    def describe(value: Any) -> Any:
        if _is_array(value):
            array = to_numpy(value)
            arrays.append(array)
            given.append(value)
            dtype = named(array.dtype)
            if dtype is None:
                raise SimulatorError(f"an argument has dtype {array.dtype}, which is no NKI dtype")
            return TensorType(array.shape, dtype)
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return tuple(describe(v) for v in value)
        return value

    described = tuple(describe(a) for a in args)
    named_args = {k: describe(v) for k, v in kwargs.items()}
    live = _Live(target_name, arrays) if lnc == 1 else None
    trace, structure = record(function, described, named_args, target=target_name, sdk=sdk, lnc=lnc, observer=live)
    legality.check(trace)
    done = collect(trace, live.memory, [live.machine]) if live else execute(trace, arrays)
    for original, before, after in zip(given, arrays, done.inputs, strict=True):
        if before.tobytes() != after.tobytes():
            write_back(original, after)
    outputs = iter(done.outputs)
    torch_like = any(type(g).__module__.startswith("torch") for g in given)
    return _rebuild(structure, outputs, torch_like)


def _rebuild(structure: Any, outputs: Any, torch_like: bool) -> Any:
    if isinstance(structure, NkiTensor):
        return like(next(outputs), torch_like)
    if isinstance(structure, tuple | list):
        return type(structure)(_rebuild(s, outputs, torch_like) for s in structure)
    return None


def _is_array(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (type(value).__module__.split(".")[0] == "torch" and hasattr(value, "numel"))


def to_numpy(value: Any) -> np.ndarray:
    """A NumPy array with the same bits; torch bfloat16 and fp8 become ml_dtypes."""
    if isinstance(value, np.ndarray):
        return value
    dtype = named(value.dtype)
    if dtype is not None and dtype in ("bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu"):
        import torch

        from nkismith.verify.simulator.dtypes import STORAGE

        bits = value.detach().contiguous().view(torch.int16 if STORAGE[dtype].itemsize == 2 else torch.uint8)
        return bits.numpy().view(STORAGE[dtype])
    return value.detach().numpy()


def like(array: np.ndarray, torch_like: bool) -> Any:
    """The array, or a torch tensor with its bits."""
    if not torch_like:
        return array
    import torch

    kind = getattr(torch, str(named(array.dtype)), None)
    if array.dtype.kind == "V" or str(array.dtype) not in ("float32", "float16"):
        if array.dtype.itemsize == 2 and kind is torch.bfloat16:
            return torch.from_numpy(array.view(np.int16).copy()).view(torch.bfloat16)
        if array.dtype.itemsize == 1 and kind is not None and array.dtype.kind not in "iub":
            return torch.from_numpy(array.view(np.uint8).copy()).view(kind)
    return torch.from_numpy(array.copy())


def write_back(original: Any, values: np.ndarray) -> None:
    """Update an argument that the kernel wrote."""
    if isinstance(original, np.ndarray):
        original[...] = values.reshape(original.shape)
    else:
        original.copy_(like(values.reshape(tuple(original.shape)), True))
