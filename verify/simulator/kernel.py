"""nki.jit and recording: a kernel run once as Python over tensor descriptions gives its trace.

Source: nki.jit, nki-compiler (NKI 0.7): specialisation by tracing, nested kernels inlined, launch as kernel[lnc].
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

from nkismith.verify.simulator.enums import MemoryRegion
from nkismith.verify.simulator.errors import SimulatorError
from nkismith.verify.simulator.recorder import Observer, Recorder, active, finish, recording
from nkismith.verify.simulator.tensor import NkiTensor, refuse
from nkismith.verify.simulator.trace import Buffer, Trace


class TensorType(NamedTuple):
    """A tensor argument without values."""

    shape: tuple[int, ...]
    dtype: str


class Kernel:
    """A function under @nki.jit."""

    def __init__(self, function: Callable[..., Any], lnc: int | None = None) -> None:
        functools.update_wrapper(self, function)
        self.function, self.lnc = function, lnc

    def __getitem__(self, lnc: Any) -> Kernel:
        if isinstance(lnc, tuple) and len(lnc) == 1:
            lnc = lnc[0]
        if lnc not in (1, 2):
            raise refuse("launch", f"kernel[{lnc!r}]", "launch with kernel[1] or kernel[2]")
        return Kernel(self.function, lnc)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if active() is not None:  # inlined into the kernel being built
            return self.function(*args, **kwargs)
        from nkismith.verify.simulator.simulate import call_on_host

        return call_on_host(self, args, kwargs)


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Mark a kernel. `compile_config` and `specialization_config` are accepted; others are unknown keywords."""
    unknown = set(options) - {"compile_config", "specialization_config"}
    if unknown:
        raise TypeError(f"nki.jit got unknown options {', '.join(sorted(unknown))}")
    return (lambda f: jit(f)) if function is None else Kernel(unwrap(function))


def unwrap(function: Any) -> Callable[..., Any]:
    """The plain function behind nki.jit."""
    return function.function if isinstance(function, Kernel) else function


def record(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    target: str = "trn2",
    sdk: str = "2.33",
    lnc: int = 1,
    observer: Observer | None = None,
) -> tuple[Trace, Any]:
    """Record a kernel over arguments in which tensors are TensorType.

    Returns the trace and the returned structure with None for each tensor. Raises LegalityError, with the kernel
    line, for what the API refuses while building; whole-program legality is `legality.check`.
    """
    plain = unwrap(function)
    recorders: list[Recorder] = []
    buffers: list[Buffer] = []
    inputs: list[NkiTensor] = []
    outputs: list[NkiTensor] = []
    for core in range(lnc):
        recorder = Recorder(target, sdk, lnc, core, buffers, observer)
        if recorders:
            recorder.shared, recorder.files = recorders[0].shared, recorders[0].files
        recorders.append(recorder)
        with recording(recorder):
            if core == 0:
                arguments = bind(plain, args, kwargs or {}, recorder, inputs)
            result = plain(*arguments.args, **arguments.kwargs)
            returned = flatten(result)
        if core == 0:
            outputs, structure = returned, result
    for tensor in outputs:
        _check_output(tensor, inputs)
    return finish(plain.__name__, recorders, inputs, outputs), structure


def bind(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], recorder: Recorder, inputs: list
) -> inspect.BoundArguments:
    """Bind arguments to the kernel's parameters, making a buffer for every TensorType (nested tuples too)."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise SimulatorError(f"{function.__name__}: {error}") from error
    region = MemoryRegion.shared_hbm if recorder.lnc > 1 else MemoryRegion.private_hbm

    def tensor(name: str, value: Any) -> Any:
        if isinstance(value, TensorType):
            made = recorder.allocate(value.shape or (1,), value.dtype, region, name, kind="input")
            inputs.append(made)
            return made
        if isinstance(value, tuple) and not hasattr(value, "_fields"):
            return tuple(tensor(f"{name}_{i}", v) for i, v in enumerate(value))
        return value

    for name, value in bound.arguments.items():
        bound.arguments[name] = tensor(name, value)
    return bound


def flatten(result: Any) -> list[NkiTensor]:
    """The tensors a kernel returned, in order."""
    if result is None:
        return []
    if isinstance(result, NkiTensor):
        return [result]
    if isinstance(result, tuple | list):
        return [t for item in result for t in flatten(item)]
    raise refuse("output_type", f"the kernel returned {type(result).__name__}", "return tensors or a tuple of them")


def _check_output(tensor: NkiTensor, inputs: list[NkiTensor]) -> None:
    given = any(tensor._storage is t._storage for t in inputs)
    if not given and tensor.buffer is not MemoryRegion.shared_hbm:
        raise refuse(
            "output_memory", f"output {tensor.name!r} lives in {tensor.buffer.name}", "allocate it with nl.shared_hbm"
        )
