"""Shapes that a draft's own source suggests: where it says 77, a kernel may do something else at 77.

Drawn shapes find what is wrong at many sizes. What is wrong at one size, or beyond a bound, says that size: its
constants, and their neighbours, are tried as sizes, each alone and together.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from types import CodeType
from typing import Any

import numpy as np

from nkismith.kernels.spec import Case, OpSpec
from nkismith.verify.cases import ELEMENTS_CAP, affordable

TOGETHER = 6  # cases in which every dim has a size that the source names
ALONE = 16  # cases in which one dim has such a size, or a neighbour of it
_USUAL = frozenset({0, 1, 2, 3, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048})  # in every kernel, and in every verdict


def hinted_cases(spec: OpSpec, source: str, rng: np.random.Generator) -> list[Case]:
    """Cases of the domain, cheap enough to execute at once, whose sizes the constants of `source` suggest.

    source: a draft that lint has passed. Empty for one that names no unusual number, as most kernels do.
    """
    named = sorted(_integers(compile(source, "draft", "exec", dont_inherit=True)) - _USUAL)
    exact = {n: [s for s in named if dim.allows(s)] for n, dim in spec.dims.items()}
    pairs = [[(n, s) for s in sizes] for n, sizes in exact.items() if sizes]
    together = (dict(each) for each in _shuffled(list(itertools.islice(itertools.product(*pairs), 1000)), rng))
    beside = [(n, s + step) for n in exact for s in named for step in (-1, 0, 1) if spec.dims[n].allows(s + step)]
    alone = ({n: s} for n, s in _shuffled(beside, rng))
    bases = [c for group in ("smoke", "edge") for c in spec.cases(group)]  # type: ignore[arg-type]
    found: list[Case] = []
    for hints, count in ((together, TOGETHER), (alone, ALONE)):
        fitting = _fitting(spec, hints, bases, [c.dims for c in found], rng)
        found += itertools.islice(fitting, count)
    return found


def _integers(code: CodeType) -> set[int]:
    """The integers of a program as the compiler leaves them: 7 * 11 is 77."""
    found: set[int] = set()
    waiting: list[object] = [code]
    while waiting:
        match waiting.pop():
            case CodeType(co_consts=constants):
                waiting += constants
            case tuple(parts) | frozenset(parts):
                waiting += parts
            case int(number):
                found.add(int(number))
            case float(number) if number.is_integer():
                found.add(int(number))
    return found


def _shuffled(items: list[Any], rng: np.random.Generator) -> Iterator[Any]:
    return (items[i] for i in rng.permutation(len(items)))


def _fitting(
    spec: OpSpec,
    hints: Iterable[dict[str, int]],
    bases: list[Case],
    seen: list[dict[str, int]],
    rng: np.random.Generator,
) -> Iterator[Case]:
    """A listed case with other sizes, for each of the hints that the domain and the budget allow."""
    for hint in hints:
        base = bases[rng.integers(len(bases))]
        dims = base.dims | hint
        if hint and dims not in seen and (case := affordable(spec, dims, base.dtype, ELEMENTS_CAP, rng)):
            seen.append(dims)
            yield case
