"""Which inputs a kernel is judged on: listed and secretly drawn shapes, times families of values.

One shape and one Gaussian admit wrong kernels: a last tile that is skipped, a maximum that is not subtracted,
rows that a global norm averages away. So shapes are also drawn from the declared domain, at its edges and
beside multiples of 128, and values come from families that each expose one kind of mistake
(`verify/values.py`). Seeds are fresh on every run and revealed only in the evidence, after the verdict.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nkismith.kernels.expressions import ExpressionError, parse
from nkismith.kernels.relations import Side
from nkismith.kernels.schema import Dim
from nkismith.kernels.spec import Bound, Case, OpSpec, SpecError
from nkismith.kernels.tensors import FLOATS, INTEGERS, numpy_dtype
from nkismith.verify.values import draw_floats, families

# A drawn shape stays below both, so that a check takes seconds: elements of all tensors, and matmul FLOP.
ELEMENTS_CAP = 150_000
FLOP_CAP = 30_000_000
DRAWN_CASES = 7
LONG_CASES = 3  # of these: one dim as long as is affordable, so that loops over blocks of tiles run more than once
LONG_ELEMENTS_CAP = 600_000
NEAR_ELEMENTS_CAP = 1_800_000  # one is a production case made shorter: its widths decide how a kernel blocks its work
WIDE_RANGE = 1000  # times its smallest size: a dim that counts tokens or rows, not channels or heads
BOUNDARIES = (1, 2, 31, 32, 33, 127, 128, 129, 255, 257, 511, 512, 513, 1023, 1025, 2049)  # tile sizes and neighbours
ALWAYS = ("normal", "spikes")  # families that every shape meets
ONE_INPUT = ("huge", "spikes", "mixed")  # families that act on one input only
PRODUCTION_FAMILY = "mixed"  # the one that production shapes meet
_SIDES: tuple[Side, ...] = ("low", "high", "any", "any")


@dataclass(frozen=True)
class Trial:
    """One case with one family of values; `draw` makes the arrays, always the same ones for a seed."""

    case: Case
    family: str
    seed: int

    def __str__(self) -> str:
        return f"{self.case}, {self.family} values"


def trace_key(case: Case) -> tuple[object, ...]:
    """What decides a case's trace: sizes and dtype. Run-time scalars do not."""
    return (tuple(case.dims.items()), case.dtype)


def fresh_seed() -> int:
    """A seed nobody could know before."""
    return secrets.randbits(62)


def plan(spec: OpSpec, *, seed: int, dtype: str | None = None, drawn: int = DRAWN_CASES) -> tuple[Trial, ...]:
    """The trials of one verdict: smoke, edge, then `drawn` shapes from the domain, for every dtype or only `dtype`.

    The first case of each dtype meets every family of values; the others meet plain values, spikes (of all families
    they expose most mistakes) and, if they are small, one more. A listed case keeps its run-time scalars in its first
    trial; all others draw theirs.
    """
    rng = np.random.default_rng(seed)
    listed = [c for group in ("smoke", "edge") for c in spec.cases(group) if dtype in (None, c.dtype)]  # type: ignore[arg-type]
    if not listed:
        raise SpecError(f"{spec.op}: no case has dtype {dtype}; the spec has {', '.join(spec.dtypes) or 'fixed ones'}")
    names = families(spec.inputs.values())
    others = [name for name in names if name not in ALWAYS]
    met: set[str | None] = set()
    trials = []
    for number, case in enumerate([*listed, *drawn_cases(spec, rng, drawn, dtype)]):
        one_more = () if _elements(spec.bind(case)) > ELEMENTS_CAP else (others[number % len(others)],)
        chosen = [*ALWAYS, *one_more] if case.dtype in met else names
        met.add(case.dtype)
        for turn, family in enumerate(chosen):
            control = case if turn == 0 else with_drawn_control(spec, case, rng)
            trials.append(Trial(control, family, int(rng.integers(2**62))))
    return tuple(trials)


def drawn_cases(spec: OpSpec, rng: np.random.Generator, count: int, dtype: str | None = None) -> list[Case]:
    """`count` cases from the domain that the spec does not list, small enough to execute in seconds.

    The first ones take one dim each to about its largest affordable size, the dims with the widest ranges; the next is
    a production case made shorter. Fewer come back when the domain is too small to hold them.
    """
    seen = [c.dims for group in ("smoke", "edge", "production") for c in spec.cases(group)]  # type: ignore[arg-type]
    dtypes: Sequence[str | None] = (dtype,) if dtype else spec.dtypes or (None,)
    found: list[Case] = []

    def add(dims: dict[str, int], cap: int) -> bool:
        case = None if dims in seen else affordable(spec, dims, dtypes[len(found) % len(dtypes)], cap, rng)
        if case is not None:
            seen.append(dims)
            found.append(case)
        return case is not None

    for name in _by_range(spec, rng):
        if len(found) < min(LONG_CASES, count):
            any(add(dims, LONG_ELEMENTS_CAP) for dims in _stretched(spec, name, rng))
    production = spec.cases("production")
    if production and len(found) < count:
        near = production[rng.integers(len(production))]
        any(add(dims, NEAR_ELEMENTS_CAP) for dims in _shortened(spec, near.dims, rng))
    for _ in range(400):
        if len(found) < count:
            add({n: _size(d, rng) for n, d in spec.dims.items()}, ELEMENTS_CAP)
    return found


def affordable(
    spec: OpSpec, dims: dict[str, int], dtype: str | None, cap: int, rng: np.random.Generator
) -> Case | None:
    """The case at these sizes with drawn run-time scalars, if the domain holds it and it stays below the caps."""
    if not all(parse(text).holds(dims) for text in spec.constraints):
        return None
    try:
        case = with_drawn_control(spec, Case(dims, dtype), rng)
        bound = spec.bind(case)
    except (ExpressionError, SpecError):  # a combination the spec cannot hold, such as too few distinct ids
        return None
    return case if _elements(bound) <= cap and bound.work["matmul"] <= FLOP_CAP else None


def _elements(bound: Bound) -> int:
    """Elements of all tensors."""
    return sum(t.size for t in (bound.inputs | bound.outputs).values())


def _by_range(spec: OpSpec, rng: np.random.Generator) -> list[str]:
    """All dims, the wider their range the sooner; where that is much alike, in random order."""
    ranges = {n: np.log(_fitting(d, np.inf) / _fitting(d, 0)) for n, d in spec.dims.items()}
    return sorted(ranges, key=lambda n: -ranges[n] * rng.uniform(0.8, 1))


def _stretched(spec: OpSpec, name: str, rng: np.random.Generator) -> Iterator[dict[str, int]]:
    """Sizes with `name` ever shorter and the others as small as they may be; or, where a constraint ties some to it, as
    long as `name`."""
    smallest = {n: _fitting(d, 0) for n, d in spec.dims.items()}
    tied = {n for text in spec.constraints if name in parse(text).names for n in parse(text).names} & set(spec.dims)
    for names in ({name}, tied):
        wanted = _fitting(spec.dims[name], np.inf) * rng.uniform(0.8, 1)
        while names and _fitting(spec.dims[name], wanted) > smallest[name]:
            yield smallest | {n: _fitting(spec.dims[n], wanted) for n in names}
            wanted *= 0.85


def draw(spec: OpSpec, trial: Trial) -> dict[str, np.ndarray]:
    """The arrays of a trial, by input name in spec order, in the dtypes of the case."""
    bound = spec.bind(trial.case)
    rng = np.random.default_rng(trial.seed)
    floats = [n for n, t in bound.inputs.items() if t.dtype not in INTEGERS]
    picked = {n for n in floats if rng.random() < 0.25}
    one = {floats[rng.integers(len(floats))]} if floats else set()
    # Two towers multiplied would leave nothing of a result but rounding.
    picked = one if trial.family in ONE_INPUT else picked | one
    if trial.family == "huge" and not _wide(bound):
        picked = set()
    env: dict[str, Any] = dict(trial.case.dims)
    arrays = {}
    for name, tensor in bound.inputs.items():
        if name in bound.control:
            values = np.reshape(bound.control[name], tensor.shape)
        elif name in spec.relations:
            values = spec.relations[name].draw(tensor.shape, env, rng, _SIDES[rng.integers(len(_SIDES))])
        else:
            values = draw_floats(spec.inputs[name].values, tensor.shape, trial.family, name in picked, rng)
        if tensor.dtype in INTEGERS:
            env[name] = values
        arrays[name] = values.astype(numpy_dtype(tensor.dtype))
    return arrays


def _wide(bound: Bound) -> bool:
    """Has every float tensor the exponents of float32? Others would overflow, in the kernel or in the reference."""
    return not {t.dtype for t in (bound.inputs | bound.outputs).values()} & set(FLOATS) - {"float32", "bfloat16"}


def with_drawn_control(spec: OpSpec, case: Case, rng: np.random.Generator) -> Case:
    """`case` with run-time scalars at the low end, the high end, or anywhere the relations allow."""
    if not spec.control:
        return case
    env: dict[str, Any] = dict(case.dims)
    for name in spec.control:
        shape = tuple(parse(size).integer(case.dims) for size in spec.inputs[name].shape)
        env[name] = spec.relations[name].draw(shape, env, rng, _SIDES[rng.integers(len(_SIDES))])
    return replace(case, control={n: env[n].ravel().tolist() for n in spec.control}, label="")


def _shortened(spec: OpSpec, dims: dict[str, int], rng: np.random.Generator) -> Iterator[dict[str, int]]:
    """These sizes with ever less of the longest dim: of those with a wide range first, then of the others."""
    sizes, smallest = dict(dims), {n: _fitting(d, 0) for n, d in spec.dims.items()}
    while longer := [n for n in sizes if sizes[n] > smallest[n]]:
        wide = [n for n in longer if _fitting(spec.dims[n], np.inf) >= WIDE_RANGE * smallest[n]]
        longest = max(wide or longer, key=lambda n: sizes[n])
        sizes[longest] = _fitting(spec.dims[longest], sizes[longest] * rng.uniform(0.75, 0.97))
        yield dict(sizes)


def _size(dim: Dim, rng: np.random.Generator) -> int:
    if dim.one_of is not None:
        return int(rng.choice(dim.one_of))
    low, high = dim.min, dim.max or dim.min
    if rng.random() < 0.6:
        return _fitting(dim, float(rng.choice([low, high, *(b for b in BOUNDARIES if low <= b <= high)])))
    return _fitting(dim, np.exp(rng.uniform(np.log(low), np.log(high + 1))))


def _fitting(dim: Dim, wanted: float) -> int:
    """The largest size of a dim that is at most `wanted`, or its smallest one."""
    if dim.one_of is not None:
        return max((size for size in dim.one_of if size <= wanted), default=min(dim.one_of))
    step, high = dim.multiple_of, dim.max or dim.min
    return int(np.clip(wanted, -(-dim.min // step) * step, high // step * step)) // step * step
