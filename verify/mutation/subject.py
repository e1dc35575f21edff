"""The kernel that is mutated: recorded, run and compared once as it is, so that each mutant costs only its own run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import zip_longest

import numpy as np

from nkismith.kernels.spec import Case, OpSpec
from nkismith.verify.cases import PRODUCTION_FAMILY, Trial, plan, trace_key, with_drawn_control
from nkismith.verify.failure import Failure
from nkismith.verify.mutation.algebra import Unprovable, results
from nkismith.verify.mutation.mutant import Scene
from nkismith.verify.reasons import Reason
from nkismith.verify.recording import Request, record
from nkismith.verify.simulator.errors import NkiValidationError
from nkismith.verify.simulator.machine import STEP_BUDGET
from nkismith.verify.simulator.trace import Trace
from nkismith.verify.trial import Drawn, check_trace, drawn, judged, require
from nkismith.verify.trial import run as execute

Key = tuple[object, ...]  # of a case, as `cases.trace_key` makes it


@dataclass(frozen=True)
class Prepared:
    """A trial with the reference's answer; seconds are what the kernel itself took, steps what a mutant may take."""

    drawn: Drawn
    key: Key
    seconds: float
    steps: int


@dataclass(frozen=True)
class Subject:
    """A right kernel: its traces by case, the same of the production cases, and its trials in the order of trying."""

    spec: OpSpec
    request: Request
    seed: int
    cases: dict[Key, Case]
    scenes: dict[Key, Scene]
    production: dict[Key, Scene]
    trials: tuple[Prepared, ...]

    @cached_property
    def instructions(self) -> tuple[str, ...]:
        """Names of the instructions that its traces use."""
        scenes = (*self.scenes.values(), *self.production.values())
        return tuple(sorted({site.op for scene in scenes for site in scene.sites}))

    @cached_property
    def distinct(self) -> tuple[Prepared, ...]:
        """One trial for each trace and each set of run-time integers."""
        found: dict[tuple[object, ...], Prepared] = {}
        for prepared in self.trials:
            integers = [a.tobytes() for a in prepared.drawn.inputs.values() if a.dtype.kind in "iu"]
            found.setdefault((prepared.key, *integers), prepared)
        return tuple(found.values())

    @cached_property
    def production_trials(self) -> tuple[Prepared, ...]:
        """One trial of each production case, as a verdict has it, made when it is asked for: it may take a minute.

        Raises Failure where the kernel is refused as it is.
        """
        rng = np.random.default_rng(self.seed)
        trials = [
            Trial(with_drawn_control(self.spec, self.cases[key], rng), PRODUCTION_FAMILY, int(rng.integers(2**62)))
            for key in self.production
        ]
        return tuple(_prepared(self.spec, t, self.production[trace_key(t.case)].trace) for t in trials)

    @cached_property
    def values(self) -> dict[int, list[np.ndarray] | None]:
        """What `algebra.results` says of the distinct trials, by number; None where it proves nothing."""
        return {number: algebraic(self.scenes[p.key].trace, p) for number, p in enumerate(self.distinct)}


def algebraic(trace: Trace, prepared: Prepared) -> list[np.ndarray] | None:
    """The results of a trace in exact arithmetic at the integers of a trial, or None."""
    try:
        return results(trace, list(prepared.drawn.inputs.values()), steps=prepared.steps)
    except (Unprovable, NkiValidationError):
        return None


def prepare(request: Request, spec: OpSpec, seed: int) -> Subject:
    """Record, draw and run everything once. Raises Failure where the kernel is refused as it is."""
    trials = plan(spec, seed=seed)
    cases = {trace_key(t.case): t.case for t in trials}
    scenes = _scenes(request, spec, cases)
    for scene in scenes.values():
        check_trace(spec, scene.trace)
    prepared = [_prepared(spec, trial, scenes[trace_key(trial.case)].trace) for trial in trials]
    listed = {trace_key(c): c for c in spec.cases("production")}
    return Subject(spec, request, seed, cases | listed, scenes, _scenes(request, spec, listed), _in_turn(prepared))


def _scenes(request: Request, spec: OpSpec, cases: dict[Key, Case]) -> dict[Key, Scene]:
    traces = record(request, [spec.bind(case) for case in cases.values()]).traces if cases else ()
    return {key: Scene(trace) for key, trace in zip(cases, traces, strict=True)}


def _prepared(spec: OpSpec, trial: Trial, trace: Trace) -> Prepared:
    ready = drawn(spec, trial)
    steps = 2_000
    while True:
        started = time.monotonic()
        try:
            got, _ = execute(spec, trace, trial, ready.inputs, steps=steps)
            break
        except Failure as failure:
            if failure.reason is not Reason.STEP_BUDGET or steps >= STEP_BUDGET:
                raise
            steps *= 10
    require(spec, trace, judged(spec, ready, got))
    # A mutant may run longer than the kernel, but not for minutes.
    return Prepared(ready, trace_key(trial.case), time.monotonic() - started, 10 * steps)


def _in_turn(prepared: Sequence[Prepared]) -> tuple[Prepared, ...]:
    """One trial of each case, cheapest first, then the next of each: another shape shows more than other values."""
    cases: dict[Key, list[Prepared]] = {}
    for one in prepared:
        cases.setdefault(one.key, []).append(one)
    rounds = zip_longest(*cases.values())
    return tuple(p for turn in rounds for p in sorted(filter(None, turn), key=lambda p: p.seconds))
