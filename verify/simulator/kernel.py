"""nki.jit and recording: a kernel run once as Python over tensor descriptions gives its trace.

Source: nki.jit, nki-compiler, how-to-scheduling-apis (NKI 0.7): specialisation by tracing, nested kernels inlined under
the outer configuration, launch as kernel[lnc].
"""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from nkismith.verify.simulator.arguments import replaced
from nkismith.verify.simulator.config import CompileConfig, SpecializationConfig
from nkismith.verify.simulator.enums import MemoryRegion
from nkismith.verify.simulator.errors import LegalityError, SimulatorError
from nkismith.verify.simulator.recorder import Observer, Recorder, active, finish, recording
from nkismith.verify.simulator.tensor import NkiTensor, refuse
from nkismith.verify.simulator.trace import Buffer, Trace


class TensorType(NamedTuple):
    """A tensor argument without values."""

    shape: tuple[int, ...]
    dtype: str


class Kernel:
    """A function under @nki.jit."""

    def __init__(
        self,
        function: Callable[..., Any],
        lnc: int | None = None,
        schedule: tuple[tuple[str, str], ...] = (),
        compile_config: CompileConfig | None = None,
        specialization_config: SpecializationConfig | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function, self.lnc, self.schedule = function, lnc, schedule
        self.compile_config, self.specialization_config = compile_config, specialization_config

    def _with(self, lnc: int | None, schedule: tuple[tuple[str, str], ...]) -> Kernel:
        return Kernel(self.function, lnc, schedule, self.compile_config, self.specialization_config)

    def __getitem__(self, lnc: Any) -> Kernel:
        if isinstance(lnc, tuple) and len(lnc) == 1:
            lnc = lnc[0]
        if lnc not in (1, 2):
            raise refuse("launch", f"kernel[{lnc!r}]", "launch with kernel[1] or kernel[2]")
        return self._with(int(lnc), self.schedule)

    def with_schedule(self, edges: Iterable[tuple[str, Any]]) -> Kernel:
        """The kernel with dependencies between named instructions: (consumer, producer or list of producers)."""
        pairs = []
        for consumer, producers in edges:
            for producer in (producers,) if isinstance(producers, str) else producers:
                pairs.append((consumer, producer))
        return self._with(self.lnc, (*self.schedule, *pairs))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outer = active()
        if outer is not None:
            self._check_nested(outer)
            return self.function(*args, **kwargs)  # inlined into the kernel being built
        from nkismith.verify.simulator.simulate import call_on_host

        return call_on_host(self, args, kwargs)

    def _check_nested(self, outer: Recorder) -> None:
        configured = outer.kernel
        if self.compile_config is None or not isinstance(configured, Kernel):
            return
        if self.compile_config == (configured.compile_config or CompileConfig()):
            return
        special = configured.specialization_config
        what = f"nested kernel {self.function.__name__} has another compile_config than the kernel that calls it"
        if special is None or not special.allow_nested_config_override:
            raise refuse("nested_config", what, "give both the same, or set allow_nested_config_override on the outer")
        outer.warn(f"{what}; the outer one holds")


def jit(
    fn: Callable[..., Any] | None = None,
    *,
    compile_config: CompileConfig | None = None,
    specialization_config: SpecializationConfig | None = None,
    **options: Any,
) -> Any:
    """Mark a kernel. Options of old kernels (`mode`, `experimental_flags`, ...) are ignored with a warning."""
    if "platform_target" in options:
        raise TypeError("nki.jit(platform_target=...) is gone since 0.3: set NEURON_PLATFORM_TARGET_OVERRIDE")
    if options:
        warnings.warn(f"nki.jit ignores {', '.join(sorted(options))}", DeprecationWarning, stacklevel=2)
    for value, kind in ((compile_config, CompileConfig), (specialization_config, SpecializationConfig)):
        if value is not None and not isinstance(value, kind):
            raise TypeError(f"nki.jit takes a nki.compiler.{kind.__name__}, not {type(value).__name__}")

    def mark(function: Callable[..., Any]) -> Kernel:
        return Kernel(unwrap(function), compile_config=compile_config, specialization_config=specialization_config)

    return mark if fn is None else mark(fn)


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

    Returns the trace and the returned structure (of the first core, with NkiTensor leaves). Raises LegalityError,
    with the kernel line, for what the API refuses while building; whole-program legality is `legality.check`.
    """
    plain = unwrap(function)
    recorders: list[Recorder] = []
    buffers: list[Buffer] = []
    inputs: list[NkiTensor] = []
    results: list[Any] = []
    first: list[NkiTensor] = []
    for core in range(lnc):
        recorder = Recorder(target, sdk, lnc, core, buffers, observer)
        recorder.kernel = function
        if recorders:
            recorder.shared, recorder.files = recorders[0].shared, recorders[0].files
        recorders.append(recorder)
        with recording(recorder):
            with located_at(plain):
                arguments = bind(plain, args, kwargs or {}, recorder, inputs)
            results.append(plain(*arguments.args, **arguments.kwargs))
            with located_at(plain):
                outputs = flatten(results[-1])
                for tensor in outputs:
                    _check_output(tensor, inputs, buffers)
                first = outputs if core == 0 else first
                if [t.operand() for t in outputs] != [t.operand() for t in first]:
                    names = [", ".join(t.name for t in some) or "nothing" for some in (first, outputs)]
                    raise refuse(
                        "output_mismatch", f"core 0 returns {names[0]}, core 1 {names[1]}",
                        "return the same shared_hbm tensors from both",
                    )  # fmt: skip
                if isinstance(function, Kernel):
                    recorder.schedule(function.schedule)
    return finish(getattr(plain, "__name__", "kernel"), recorders, inputs, first), results[0]


def bind(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], recorder: Recorder, inputs: list
) -> inspect.BoundArguments:
    """Bind arguments to the kernel's parameters. The first core makes a buffer for every TensorType, the second
    finds them in `inputs`."""
    try:
        bound = inspect.signature(function).bind(*args, **kwargs)
    except TypeError as error:
        raise SimulatorError(f"{getattr(function, '__name__', 'kernel')}: {error}") from error
    for name, parameter in bound.signature.parameters.items():
        if isinstance(parameter.default, list) and name not in bound.arguments:
            raise refuse("argument_list", f"the default of {name} is a list", "make it a tuple")
    region = MemoryRegion.shared_hbm if recorder.lnc > 1 else MemoryRegion.private_hbm
    known = iter(list(inputs))

    def tensor(name: str, kind: Any) -> NkiTensor:
        if recorder.core:
            return next(known)
        made = recorder.allocate(kind.shape or (1,), kind.dtype, region, name, kind="input")
        inputs.append(made)
        return made

    for name, value in bound.arguments.items():
        kind = bound.signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            bound.arguments[name] = {k: replaced(k, v, _is_type, tensor) for k, v in value.items()}
        else:
            bound.arguments[name] = replaced(name, value, _is_type, tensor)
    return bound


def _is_type(value: Any) -> bool:
    return isinstance(value, TensorType)


def flatten(result: Any) -> list[NkiTensor]:
    """The tensors a kernel returned, in order. Raises LegalityError for anything else in the result."""
    if result is None:
        return []
    if isinstance(result, NkiTensor):
        return [result]
    if isinstance(result, tuple | list):
        return [t for item in result for t in flatten(item)]
    raise refuse("output_type", f"the kernel returned {type(result).__name__}", "return tensors or a tuple of them")


def _check_output(tensor: NkiTensor, inputs: list[NkiTensor], buffers: list[Buffer]) -> None:
    given = any(tensor._storage is t._storage for t in inputs)
    line = buffers[tensor._storage.id].line or None
    if not given and tensor.buffer is not MemoryRegion.shared_hbm:
        what = f"output {tensor.name!r} lives in {tensor.buffer.name}"
        raise LegalityError("output_memory", what, "allocate it with nl.shared_hbm", line)
    if tensor.is_indirect():
        what = f"output {tensor.name!r} is a run-time view"
        raise LegalityError("indirect_view", what, "return the whole tensor", line)


@contextmanager
def located_at(function: Any) -> Iterator[None]:
    """Give errors that no line of the kernel raises the line of the kernel itself."""
    try:
        yield
    except LegalityError as error:
        code = getattr(function, "__code__", None)
        if code is not None and error.line is None:
            error.line, error.file = code.co_firstlineno, Path(code.co_filename).name
        raise
