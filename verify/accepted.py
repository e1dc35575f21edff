"""An accepted kernel as a function on arrays, through the simulator.

The source is recorded once per set of shapes, in the sandbox like any draft; the traces are kept and replayed.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nkismith.kernels import registry, spec
from nkismith.kernels.registry import AcceptedKernel
from nkismith.kernels.spec import Bound, Case
from nkismith.kernels.tensors import TensorType
from nkismith.verify.recording import Request, record
from nkismith.verify.simulator import legality
from nkismith.verify.simulator.dtypes import named
from nkismith.verify.simulator.execute import execute
from nkismith.verify.simulator.simulate import like, to_numpy, write_back
from nkismith.verify.simulator.trace import Trace


class LoadedKernel:
    """Callable on NumPy arrays or torch tensors in the order of the spec's inputs.

    Returns the spec's outputs (one value, a tuple, or None) as the kind of array it was given, and updates in-place
    inputs. Raises TypeError for a wrong number of arguments, registry.NoKernel outside the kernel's domain.
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
            inputs = {n: TensorType(s, d) for n, (s, d) in zip(self.op.inputs, types, strict=True)}
            bound = Bound(Case({}), inputs, {}, self.op.in_place, {}, {}, 1)
            trace = record(self.request, [bound]).traces[0]
            legality.check(trace)
            self._traces[types] = trace
        return self._traces[types]


def load(
    op: str, *, target: str = "trn2", dtype: str | None = None, lnc: int = 1, root: Path | None = None
) -> LoadedKernel:
    """The accepted kernel of an op. Raises registry.NoKernel or StaleKernel with what exists and what to do."""
    contract = spec.load(op)
    kernel = registry.find(op, target=target, dtype=dtype, lnc=lnc, root=root)
    return LoadedKernel(kernel, contract, target, lnc)
