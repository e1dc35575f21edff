"""Mutation testing of one kernel: would the verdict notice if it were slightly wrong?

The kernel's own trials are planned, drawn and answered by the reference once. Each mutant is then asked what the
verdict asks (`verify/trial.py`), cheapest trial first, until something refuses it. What differs at production shapes
only meets these last, while there is time. What nothing refuses is either excluded by a rule that proves it equivalent
(`equivalence.py`) or a survivor: a mistake the verdict would let pass.
"""

from __future__ import annotations

import hashlib
import multiprocessing
import signal
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from itertools import zip_longest

import numpy as np

from nkismith.kernels.spec import OpSpec
from nkismith.verify import lint as linting
from nkismith.verify import meaning, sandbox
from nkismith.verify.cases import fresh_seed
from nkismith.verify.failure import Failure
from nkismith.verify.mutation.equivalence import excluded_by, form
from nkismith.verify.mutation.mutant import Kind, Mutant, Scene
from nkismith.verify.mutation.score import MINIMUM, PRODUCTION, Outcome, Score
from nkismith.verify.mutation.sources import source_mutants
from nkismith.verify.mutation.subject import Key, Prepared, Subject, algebraic, prepare
from nkismith.verify.mutation.traces import trace_mutants
from nkismith.verify.recording import Request, record
from nkismith.verify.simulator.trace import Trace
from nkismith.verify.trial import check_trace, judged, reason
from nkismith.verify.trial import run as execute

TRACES, SOURCES = 120, 40  # mutants of either sort; kernels with fewer possible mistakes get fewer
SECONDS = 150.0  # after which no further mutant is started
LAST = 110.0  # after which the production shapes, whose reference may take a minute, are not prepared any more
PROBES = 4  # trials a mutant survives before the rules are asked whether it is one
_LIMITS = sandbox.Limits(cpu_seconds=10)

Progress = Callable[[int, int], None]


class NotRight(Exception):
    """The kernel is refused as it is, so there is nothing to mutate."""


def mutate(
    source: str,
    spec: OpSpec,
    *,
    target: str = "trn2",
    sdk: str = "2.33",
    lnc: int = 1,
    seed: int | None = None,
    workers: int = 2,
    limits: tuple[int, int] = (TRACES, SOURCES),
    progress: Progress | None = None,
) -> Score:
    """Make mutants of a right kernel and count how many the verdict's questions refuse.

    seed: of the trials; fresh by default. limits: how many mutants of traces and of the source at most; which ones is
    chosen by the kernel's hash, kinds in turn. progress: called with (done, all).
    Raises NotRight if the kernel itself is refused, SpecError if the reference fails.
    """
    started = time.monotonic()
    seed = fresh_seed() if seed is None else seed
    request = Request(source, spec.op, sdk, target, lnc)
    try:
        _refuse_on_sight(request, spec)
        subject = prepare(request, spec, seed)
    except Failure as failure:
        what = str(failure).rstrip(".")
        raise NotRight(
            f"The kernel of {spec.op} is refused as it is [{failure.reason}]: {what}. See `nkismith check`."
        ) from failure
    salt = hashlib.sha256(source.encode()).hexdigest()
    scenes = sorted(subject.scenes.values(), key=lambda s: sum(map(len, s.sites.values())), reverse=True)
    of_traces, of_source = list(trace_mutants(scenes)), list(source_mutants(source))
    both = (
        _chosen([m for m in of_traces if not m.spare], limits[0], salt, scenes),
        _chosen(of_source, limits[1], salt, scenes),
    )
    chosen = [m for turn in zip_longest(*both) for m in turn if m is not None]  # if time runs out, it does for both
    missing = min(MINIMUM, sum(limits)) - len(chosen)
    chosen += _chosen([m for m in of_traces if m.spare], max(0, missing), salt, scenes)
    outcomes = list(_judged(subject, chosen, workers, started + SECONDS, progress or (lambda done, of: None)))
    try:
        outcomes = list(_at_production(subject, chosen, outcomes, started))
    except Failure as failure:
        raise NotRight(f"The kernel of {spec.op} is refused at its production shapes: {failure}") from failure
    return Score(
        op=spec.op,
        subject=meaning.subject(request, spec, subject.instructions),
        instructions=subject.instructions,
        seed=seed,
        outcomes=tuple(outcomes),
        possible=len(of_traces) + len(of_source),
        untried=len(chosen) - len(outcomes),
        trials=len(subject.trials),
        seconds=time.monotonic() - started,
    )


# -- which mutants ------------------------------------------------------------------------------------------------


def _refuse_on_sight(request: Request, spec: OpSpec) -> None:
    """Raise Failure for what lint refuses: such a source is not recorded, here as in a verdict."""
    for finding in linting.lint(
        request.source,
        entry=request.entry,
        params=tuple(spec.inputs),
        sdk=request.sdk,
        max_literals=spec.limits.constants,
    ):
        raise Failure(linting.reason(finding), finding.message, fix=finding.fix, line=finding.line, rule=finding.rule)


def _chosen(mutants: Iterable[Mutant], limit: int, salt: str, scenes: Sequence[Scene]) -> list[Mutant]:
    """At most `limit` mutants that change something: kinds in turn, and within a kind in an order that only the kernel
    decides."""
    kinds: dict[Kind, dict[str, Mutant]] = {}
    for mutant in mutants:
        kinds.setdefault(mutant.kind, {})[f"{mutant} {mutant.source}"] = mutant
    shuffled = [
        [m for _, m in sorted(same.items(), key=lambda item: hashlib.sha256((salt + item[0]).encode()).digest())]
        for same in kinds.values()
    ]
    found: list[Mutant] = []
    for turn in zip_longest(*shuffled):
        for mutant in filter(None, turn):
            if len(found) < limit and any(mutant.changes(scene) for scene in scenes):
                found.append(mutant)
    return found


# -- judging ------------------------------------------------------------------------------------------------------

_work: tuple[Subject, Sequence[Mutant]] | None = None  # what forked workers find in their copy of this process


def _judged(
    subject: Subject, mutants: Sequence[Mutant], workers: int, deadline: float, progress: Progress
) -> Iterator[Outcome]:
    """Outcomes in the order of the mutants, until the deadline."""
    global _work
    _work = (subject, mutants)
    try:
        with _pool(workers) as pool:
            futures = [pool.submit(_judge_number, n) for n in range(len(mutants))] if pool else []
            for number in range(len(mutants)):
                if time.monotonic() > deadline:
                    for future in futures[number:]:
                        future.cancel()
                    return
                yield futures[number].result() if pool else _judge_number(number)
                progress(number + 1, len(mutants))
    finally:
        _work = None


@contextmanager
def _pool(workers: int) -> Iterator[Executor | None]:
    """Forked workers, which share what was prepared; None where one process is asked for or nothing can fork."""
    if workers < 2 or "fork" not in multiprocessing.get_all_start_methods():
        yield None
        return
    context = multiprocessing.get_context("fork")
    with warnings.catch_warnings():
        # Python warns of threads held at a fork. Ours belong to PyTorch, which the workers never call.
        warnings.simplefilter("ignore", DeprecationWarning)
        with ProcessPoolExecutor(workers, mp_context=context, initializer=_quiet) as pool:
            yield pool


def _quiet() -> None:
    """Ctrl-C is for the process that waits for the workers."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _judge_number(number: int) -> Outcome:
    assert _work is not None
    subject, mutants = _work
    return judge(subject, mutants[number])


def judge(subject: Subject, mutant: Mutant) -> Outcome:
    """Ask a mutant what the verdict asks until something refuses it or a rule excludes it."""
    started = time.monotonic()
    outcome = Outcome(mutant.kind, mutant.line, mutant.what)
    at = "record"
    try:
        mutated = Mutated(subject, mutant)
        tried = 0
        for prepared in subject.trials:
            at = str(prepared.drawn.trial)
            trace = mutated.trace(prepared.key)
            if trace is None:
                continue
            _ask(subject, prepared, trace)
            tried += 1
            if tried == PROBES and (rule := mutated.excluded_by()):
                return replace(outcome, excluded_by=rule, seconds=time.monotonic() - started)
        at = PRODUCTION
        rule = mutated.excluded_by() if tried < PROBES else ""
        outcome = replace(outcome, excluded_by=rule or mutated.same_values(), at="" if tried or rule else at)
    except Failure as failure:
        outcome = replace(outcome, killed_by=str(failure.reason), at=at)
    return replace(outcome, seconds=time.monotonic() - started)


def _ask(subject: Subject, prepared: Prepared, trace: Trace) -> None:
    """Execute a mutant's trace on one trial and compare. Raises Failure for what the verdict would refuse."""
    trial = prepared.drawn.trial
    got, _ = execute(subject.spec, trace, trial, prepared.drawn.inputs, steps=prepared.steps)
    for comparison in judged(subject.spec, prepared.drawn, got):
        if not comparison.ok:
            raise Failure(reason(comparison), comparison.message)


def _at_production(
    subject: Subject, mutants: Sequence[Mutant], outcomes: Sequence[Outcome], started: float
) -> Iterator[Outcome]:
    """The outcomes, with another one for each survivor that only a production shape can tell, while there is time.

    Raises Failure if the kernel itself is refused there.
    """
    until = started + LAST
    for mutant, outcome in zip(mutants, outcomes, strict=False):
        if outcome.survived and outcome.at == PRODUCTION and time.monotonic() < until:
            yield _ask_at_production(subject, mutant, outcome)
            until = started + SECONDS  # the trials are prepared now
        else:
            yield outcome


def _ask_at_production(subject: Subject, mutant: Mutant, outcome: Outcome) -> Outcome:
    trials = subject.production_trials
    started = time.monotonic()
    at = "record"
    try:
        traces = Mutated(subject, mutant).at_production()
        for prepared in trials:
            at = str(prepared.drawn.trial)
            trace = traces[prepared.key]
            if trace is not subject.production[prepared.key].trace:
                _ask(subject, prepared, trace)
        outcome = replace(outcome, at="")
    except Failure as failure:
        outcome = replace(outcome, killed_by=str(failure.reason), at=at)
    return replace(outcome, seconds=outcome.seconds + time.monotonic() - started)


class Mutated:
    """The traces of one mutant, made when they are first asked for. Everything here raises Failure like the verdict."""

    def __init__(self, subject: Subject, mutant: Mutant) -> None:
        self.subject, self.mutant = subject, mutant
        self._traces: dict[Key, Trace] = {}
        if mutant.source:
            self._record(subject.scenes)

    def trace(self, key: Key) -> Trace | None:
        """The trace at a case, checked; None where it is the kernel's own."""
        scene = self.subject.scenes[key]
        if key not in self._traces:
            self._traces[key] = self._changed(scene)
        changed = self._traces[key]
        return None if changed is scene.trace else changed

    def excluded_by(self) -> str:
        """The rules that prove the mutant to be the same program at every case of the trials.

        A source that changes none of them has to change none of the production cases, either.
        """
        pairs = [(s.trace, t) for key, s in self.subject.scenes.items() if (t := self.trace(key)) is not None]
        if pairs or not self.mutant.source:
            return excluded_by(pairs)
        traces = self.at_production()
        same = all(traces[key] is scene.trace for key, scene in self.subject.production.items())
        return "same_program" if same else ""

    def at_production(self) -> dict[Key, Trace]:
        """The traces of a changed source at the production cases, checked; the kernel's own where they are the same."""
        self._record(self.subject.production)
        return {key: self._traces[key] for key in self.subject.production}

    def same_values(self) -> str:
        """The name of the rule, if every trial's results are the same expressions of its inputs."""
        changed = 0
        for number, prepared in enumerate(self.subject.distinct):
            trace = self.trace(prepared.key)
            if trace is not None:
                changed += 1
                own, new = self.subject.values[number], algebraic(trace, prepared)
                if own is None or new is None or not all(map(np.array_equal, own, new)):
                    return ""
        return "same_values" if changed else ""

    def _changed(self, scene: Scene) -> Trace:
        assert self.mutant.change is not None
        changed = self.mutant.change(scene)
        if changed is not scene.trace:
            check_trace(self.subject.spec, changed)
        return changed

    def _record(self, scenes: dict[Key, Scene]) -> None:
        request = replace(self.subject.request, source=self.mutant.source)
        bounds = [self.subject.spec.bind(self.subject.cases[key]) for key in scenes]
        traces = record(request, bounds, limits=_LIMITS).traces
        for (key, scene), trace in zip(scenes.items(), traces, strict=True):
            same = form(trace) == form(scene.trace)
            if not same:
                check_trace(self.subject.spec, trace)
            self._traces[key] = scene.trace if same else trace
