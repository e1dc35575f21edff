"""An op spec in the words of a prompt: what comes in, what goes out, for which shapes, and what is the least work."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby

from nkismith.kernels.schema import Input, Output, Ulp, ValidChoice, Values
from nkismith.kernels.spec import Bound, Case, OpSpec
from nkismith.verify.simulator.hardware import Target
from nkismith.verify.timing.floor import floor, narrowest


@dataclass(frozen=True)
class Tensor:
    name: str
    shape: str
    dtype: str
    note: str


@dataclass(frozen=True)
class ShownCase:
    """One listed case, for all its dtypes; `tensors` has each tensor's shape, and its dtype in the first of them."""

    group: str
    label: str
    sizes: str
    dtypes: str
    control: str
    tensors: str


@dataclass(frozen=True)
class Contract:
    """Everything a prompt says about a spec. Lists are in the spec's order."""

    op: str
    summary: str
    maths: str
    notes: str
    dims: tuple[tuple[str, str], ...]
    constraints: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    in_place: tuple[str, ...]
    control: tuple[str, ...]
    accumulate: str
    cases: tuple[ShownCase, ...]
    work: str
    signature: str


def describe(spec: OpSpec, machine: Target, lnc: int) -> Contract:
    """The contract of `spec`, with its least work and its floor at the production shape on `lnc` cores of `machine`."""
    return Contract(
        op=spec.op,
        summary=spec.summary,
        maths=spec.maths.strip(),
        notes=spec.notes.strip(),
        dims=tuple((name, dim.text) for name, dim in spec.dims.items()),
        constraints=spec.constraints,
        inputs=tuple(_input(name, tensor, spec) for name, tensor in spec.inputs.items()),
        outputs=tuple(_output(name, tensor, spec) for name, tensor in spec.outputs.items()),
        in_place=spec.in_place,
        control=tuple(spec.control),
        accumulate=spec.accumulate,
        cases=tuple(_cases(spec)),
        work=_work(spec, machine, lnc),
        signature=f"def {spec.op}({', '.join(spec.inputs)}):",
    )


def _shape(sizes: Iterable[int | str]) -> str:
    return "[" + ", ".join(str(size) for size in sizes) + "]"


def _dtype(declared: str | tuple[str, ...]) -> str:
    return " or ".join(declared) if isinstance(declared, tuple) else declared


def _input(name: str, tensor: Input, spec: OpSpec) -> Tensor:
    notes = []
    if name in spec.in_place:
        notes.append(f"updated in place, judged {_judged(tensor.match)}")
    if name in spec.control:
        notes.append("run-time value, not known while the kernel is built: " + "; ".join(spec.control[name]))
    if isinstance(tensor.values, Values) and tensor.values.kind != "normal":
        values = tensor.values
        notes.append(f"{values.kind}" + (f" in [{values.low}, {values.high}]" if values.low is not None else ""))
    elif isinstance(tensor.values, tuple):
        notes.append("; ".join(tensor.values))
    return Tensor(name, _shape(tensor.shape), _dtype(tensor.dtype), "; ".join(notes))


def _output(name: str, tensor: Output, spec: OpSpec) -> Tensor:
    return Tensor(name, _shape(tensor.shape), _dtype(tensor.dtype), _judged(tensor.match))


def _judged(match: object) -> str:
    """How an output, or an updated input, is compared with the reference."""
    match match:
        case Ulp(ulp=ulp):
            return f"within {ulp} ulp of the reference"
        case ValidChoice(valid_choice=source):
            return f"an index into {source}; any that picks an equal value is right"
        case "exact":
            return "bit-equal to the reference"
        case "valid_choice":
            return "an index; any that picks an equal value is right"
    return "close to the reference (tolerance from dtype and reduction length)"


def _cases(spec: OpSpec) -> Iterable[ShownCase]:
    for group in ("smoke", "edge", "production"):
        alike = groupby(spec.cases(group), key=lambda case: (case.dims, case.control))
        for (dims, _), cases in alike:
            listed = list(cases)
            bound = spec.bind(listed[0])
            yield ShownCase(
                group=group,
                label=str(listed[0]),
                sizes=", ".join(f"{name}={size}" for name, size in dims.items()),
                dtypes=" and ".join(case.dtype for case in listed if case.dtype),
                control=", ".join(f"{name}={value}" for name, value in bound.control.items()),
                tensors=", ".join(
                    f"{name} {list(tensor.shape)} {tensor.dtype}"
                    for name, tensor in (bound.inputs | bound.outputs).items()
                ),
            )


def production(spec: OpSpec) -> Case:
    """The case whose time counts: the first production case, else the last one listed."""
    listed = spec.cases("production") or spec.cases("edge") or spec.cases("smoke")
    return listed[0] if spec.cases("production") else listed[-1]


def _work(spec: OpSpec, machine: Target, lnc: int) -> str:
    """The amounts, and the same floor that a profile and an optimisation prompt compare with."""
    case = production(spec)
    bound: Bound = spec.bind(case)
    work = bound.work
    parts = [f"{_count(work['hbm_read'] / 1e6)} MB read from and {_count(work['hbm_write'] / 1e6)} MB written to HBM"]
    if work.get("matmul"):
        parts.append(f"{_count(work['matmul'] / 1e9)} GFLOP of matmul")
    for engine in ("vector", "scalar", "gpsimd"):
        if work.get(engine):
            parts.append(f"{_count(work[engine] / 1e6)} M element operations on {engine.capitalize()}E or the like")
    least = floor(work, machine, lnc, narrowest([tensor.dtype for tensor in bound.inputs.values()]))
    return (
        f"At {case}: {'; '.join(parts)}. At the best rates of {machine.name}, LNC {lnc}, that takes {least.us:,.1f} "
        f"µs, set by {least.bound}: the floor."
    )


def _count(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
