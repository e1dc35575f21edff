"""Is a spec able to catch a wrong kernel: a weak spec admits whatever its cases do not show.

Filters, on the reference alone: every input must matter, results must vary and be finite, and the listed cases must
cover the declared domain. Mutation testing (`nkismith mutate`) measures the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nkismith.kernels.expressions import ExpressionError
from nkismith.kernels.spec import Case, OpSpec, SpecError
from nkismith.kernels.tensors import INTEGERS
from nkismith.verify.cases import Trial, draw, with_drawn_control
from nkismith.verify.reference import as_tensors, run, threads

TILE = 128  # partitions: a size that is a multiple of it never has a partial last tile
ROUNDS = 4  # draws before an input counts as ignored: a run-time scalar may switch it off by chance


@dataclass(frozen=True)
class Weakness:
    """One way a spec is too weak.

    rule: not_finite, ignored_input, constant_output, untested_dtype, one_size or whole_tiles. where: the key in
    spec.yaml. message: what was seen and how to fix it.
    """

    rule: str
    where: str
    message: str


def weaknesses(spec: OpSpec, *, seed: int) -> tuple[Weakness, ...]:
    """Everything found; empty for a spec that may judge kernels. Takes well under a second."""
    with threads(1):
        return (*_values(spec, np.random.default_rng(seed)), *_coverage(spec))


def refuse_weak(spec: OpSpec, *, seed: int) -> None:
    """Raise SpecError if the spec would let a wrong kernel pass; every weakness can be repaired in spec.yaml."""
    found = weaknesses(spec, seed=seed)
    if found:
        more = f" (and {len(found) - 1} more: {', '.join(w.where for w in found[1:])})" if found[1:] else ""
        raise SpecError(f"{spec.folder / 'spec.yaml'}: {found[0].where}: {found[0].message}{more}")


def _values(spec: OpSpec, rng: np.random.Generator) -> list[Weakness]:
    cases = [c for group in ("smoke", "edge") for c in spec.cases(group)]  # type: ignore[arg-type]
    ignored, constant = list(spec.inputs), [*spec.in_place, *spec.outputs]
    first: dict[str, float] = {}
    for listed in cases * ROUNDS:
        case = with_drawn_control(spec, listed, rng)
        inputs = draw(spec, Trial(case, "normal", int(rng.integers(2**62))))
        base = _run(spec, case, inputs)
        for name, value in base.items():
            if not np.isfinite(value).all():
                what = f"{name} is infinite or NaN for plain values at {case}: narrow the inputs' `values`"
                return [Weakness("not_finite", f"outputs.{name}", what)]
            usual = inputs[name] if name in spec.in_place else first.setdefault(name, value.flat[0])
            if name in constant and np.any(value != usual):
                constant.remove(name)
        for name in tuple(ignored):
            changed = {**inputs, name: _another(spec, case, inputs, name, rng)}
            if any(np.any(value != base[n]) for n, value in _run(spec, case, changed).items()):
                ignored.remove(name)
        if not ignored and not constant:
            break
    return [
        Weakness("ignored_input", f"inputs.{n}", f"no result depends on {n}: remove it, or add a case where it matters")
        for n in ignored
    ] + [
        Weakness("constant_output", f"outputs.{n}", f"{n} never varies: a kernel that writes one number would pass")
        for n in constant
    ]


def _another(
    spec: OpSpec, case: Case, inputs: dict[str, np.ndarray], name: str, rng: np.random.Generator
) -> np.ndarray:
    """Other values of one input; the same ones where its relation allows no others."""
    if inputs[name].dtype.name not in INTEGERS:
        return draw(spec, Trial(case, "normal", int(rng.integers(2**62))))[name]
    env = {**case.dims, **{n: a.astype(np.int64) for n, a in inputs.items() if a.dtype.name in INTEGERS}}
    try:
        return spec.relations[name].draw(inputs[name].shape, env, rng).astype(inputs[name].dtype)
    except ExpressionError:
        return inputs[name]


def _run(spec: OpSpec, case: Case, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return run(spec, spec.bind(case), as_tensors(inputs))


def _coverage(spec: OpSpec) -> list[Weakness]:
    cases = [c for group in ("smoke", "edge") for c in spec.cases(group)]  # type: ignore[arg-type]
    found = [
        Weakness("untested_dtype", "cases", f"no smoke or edge case runs in {dtype}: leave `dtype` out of one")
        for dtype in spec.dtypes
        if dtype not in {c.dtype for c in cases}
    ]
    for name, dim in spec.dims.items():
        sizes = {c.dims[name] for c in cases}
        choices = dim.one_of or (dim.min, dim.max)
        if len(sizes) == 1 and len(set(choices)) > 1:
            what = f"every smoke and edge case has {name}={min(sizes)}, the domain is {dim.text}: add another size"
            found.append(Weakness("one_size", f"cases.*.{name}", what))
        elif dim.max and dim.max > TILE and dim.multiple_of % TILE and not any(s > TILE and s % TILE for s in sizes):
            what = f"no case has a partial last tile of {name} after a whole one: add {_partial(dim.multiple_of)}"
            found.append(Weakness("whole_tiles", f"cases.*.{name}", what))
    return found


def _partial(step: int) -> int:
    """The smallest multiple of `step` above one tile that is no multiple of it."""
    size = (TILE // step + 1) * step
    return size if size % TILE else size + step
