"""An accepted kernel as a function on arrays, through the simulator.

The source is recorded once per set of shapes, in the sandbox like any draft; the traces are kept and replayed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from nkismith.kernels import registry, spec
from nkismith.kernels.expressions import parse
from nkismith.kernels.registry import AcceptedKernel
from nkismith.kernels.spec import Bound, Case
from nkismith.kernels.tensors import TensorType
from nkismith.verify import meaning
from nkismith.verify.failure import Failure
from nkismith.verify.recording import Request, record
from nkismith.verify.simulator.dtypes import named
from nkismith.verify.simulator.execute import execute
from nkismith.verify.simulator.instructions import TABLE
from nkismith.verify.simulator.simulate import like, to_numpy, write_back
from nkismith.verify.simulator.trace import Trace
from nkismith.verify.trial import check_trace


class LoadedKernel:
    """Callable on NumPy arrays or torch tensors in the order of the spec's inputs.

    Returns the spec's outputs (one value, a tuple, or None) as the kind of array it was given, and updates in-place
    inputs. Raises TypeError for a wrong number of arguments, registry.NoKernel outside the kernel's domain,
    WrongHere for a shape of the domain at which the kernel does not do what the spec says.
    """

    def __init__(self, kernel: AcceptedKernel, op: spec.OpSpec, target: str, lnc: int) -> None:
        self.kernel, self.op = kernel, op
        self.request = Request(kernel.source, op.op, kernel.evidence.get("sdk", "2.33"), target, lnc)
        self.calls = 0
        self._traces: dict[tuple[Any, ...], Trace] = {}

    def __call__(self, *arguments: Any) -> Any:
        names = tuple(self.op.inputs)
        if len(arguments) != len(names):
            raise TypeError(f"{self.op.op} takes {len(names)} tensors ({', '.join(names)}), got {len(arguments)}")
        arrays = [to_numpy(a) for a in arguments]
        done = execute(self.trace(*((a.shape, str(named(a.dtype))) for a in arrays)), arrays)
        if any(mask is not None for mask in (*done.unwritten, *done.poisoned)):
            raise WrongHere(f"{self.kernel.path} leaves results unwritten at {_shapes(names, arrays)}")
        self.calls += 1
        for name, original, after in zip(names, arguments, done.inputs, strict=True):
            if name in self.op.in_place:
                write_back(original, after)
        torch_like = type(arguments[0]).__module__.startswith("torch")
        outputs = tuple(like(o, torch_like) for o in done.outputs[len(done.outputs) - len(self.op.outputs) :])
        return outputs[0] if len(outputs) == 1 else outputs or None

    def trace(self, *types: tuple[tuple[int, ...], str]) -> Trace:
        """The trace at these (shape, dtype) pairs, recorded at first use."""
        if types not in self._traces:
            self._require_domain(types)
            inputs = {n: TensorType(s, d) for n, (s, d) in zip(self.op.inputs, types, strict=True)}
            bound = Bound(Case({}), inputs, {}, self.op.in_place, {}, {}, 1)
            try:
                trace = record(self.request, [bound]).traces[0]
                check_trace(self.op, trace)
            except Failure as failure:
                where = f"{self.kernel.path}, line {failure.line}" if failure.line else str(self.kernel.path)
                raise WrongHere(f"{where}: [{failure.rule or failure.reason}] {failure.message}") from failure
            self._traces[types] = trace
        return self._traces[types]

    def _require_domain(self, types: tuple[tuple[tuple[int, ...], str], ...]) -> None:
        """Raise NoKernel unless the sizes that the shapes spell out are in the domain that was verified."""
        dims: dict[str, int] = {}
        for (name, tensor), (shape, dtype) in zip(self.op.inputs.items(), types, strict=True):
            sizes = tensor.shape
            fitting = len(sizes) == len(shape) and all(
                dims.setdefault(str(size), extent) == extent
                for size, extent in zip(sizes, shape, strict=True)
                if size in self.op.dims
            )
            if not fitting:
                wanted = ", ".join(map(str, sizes))
                raise registry.NoKernel(f"{self.op.op}: {name} has shape {list(shape)}, the spec says [{wanted}]")
            if dtype not in {self.op.dtype_of(name, chosen) for chosen in self.kernel.evidence["dtypes"] or [None]}:
                raise registry.NoKernel(f"{self.op.op}: {name} is {dtype}; accepted: {self.kernel.scope}")
        request = self.request
        known = dims.keys() >= self.op.dims.keys()
        if not self.kernel.fits(request.target, None, request.lnc, dims) or (
            known and not all(parse(text).holds(dims) for text in self.op.constraints)
        ):
            asked = " ".join(f"{n}={v}" for n, v in dims.items())
            raise registry.NoKernel(f"{self.op.op} was not verified for {asked}. Accepted: {self.kernel.scope}")


class WrongHere(registry.RegistryError):
    """An accepted kernel does not record, or does what its spec forbids, at sizes that no case of its verdict had."""


def _shapes(names: tuple[str, ...], arrays: list[np.ndarray]) -> str:
    return ", ".join(f"{name} {list(array.shape)}" for name, array in zip(names, arrays, strict=True))


def changed_meanings(kernel: AcceptedKernel) -> list[str]:
    """Instructions of a verdict that mean something else than when it was reached; takes 0.1 s at first."""
    stored = kernel.evidence.get("meanings") or {}
    now = meaning.instructions(name for name in stored if name in TABLE)
    return [_named(name) for name in stored if now.get(name) != stored[name]]


def _named(name: str) -> str:
    return "the machine under all instructions" if name == "shared" else name


def load(
    op: str,
    *,
    target: str = "trn2",
    dtype: str | None = None,
    lnc: int = 1,
    sdk: str | None = None,
    root: Path | None = None,
) -> LoadedKernel:
    """The accepted kernel of an op, for the newest SDK it has or for `sdk`. Raises registry.NoKernel or
    StaleKernel with what exists and what to do.

    A kernel is stale, too, when the simulator understands one of its instructions otherwise than when it was verified.
    """
    contract = spec.load(op)
    kernel = registry.find(op, target=target, dtype=dtype, lnc=lnc, sdk=sdk, root=root)
    if moved := changed_meanings(kernel):
        raise registry.StaleKernel(
            f"{kernel.path} was accepted when the simulator was another: the meaning of {', '.join(moved)} changed. "
            f"Verify it again: nkismith accept {kernel.path} --op {contract.op}"
        )
    return LoadedKernel(kernel, contract, target, lnc)
