"""Verification: from a draft's text to a verdict, stage by stage, stopping at the first failure.

    lint ─ record ─ legality ─ execute ─ compare ─ generalise ─ profile

The judge never runs the draft's Python: a sandboxed child records it, and what is executed here is the trace. Shapes
that were listed come first, then shapes drawn from the op's domain and shapes that the draft's constants suggest, then
the production shapes, each of which is executed and compared once, on rows of every kind, before its profile is
reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from nkismith.kernels.spec import Case, OpSpec
from nkismith.verify import lint as linting
from nkismith.verify import sandbox
from nkismith.verify.cases import PRODUCTION_FAMILY, Trial, fresh_seed, plan, trace_key, with_drawn_control
from nkismith.verify.failure import Failure
from nkismith.verify.hinted import hinted_cases
from nkismith.verify.reasons import Reason
from nkismith.verify.recording import Request, record
from nkismith.verify.simulator.install import choose
from nkismith.verify.simulator.trace import Trace, walk
from nkismith.verify.spec_quality import refuse_weak
from nkismith.verify.trial import check_legality, check_trace, drawn, dynamic, judged, require
from nkismith.verify.trial import run as execute_trial
from nkismith.verify.verdict import CaseResult, Stage, Verdict

if TYPE_CHECKING:
    from nkismith.verify.timing import Profile

Progress = Callable[[Stage, str], None]


@dataclass(slots=True)
class _Run:
    """One check in progress: what is judged, and what has been found so far."""

    request: Request
    spec: OpSpec
    progress: Progress
    started: float
    complete: bool = True
    stage: Stage = Stage.PARSE
    case: str | None = None
    results: list[CaseResult] = field(default_factory=list)
    profiles: dict[str, Profile] = field(default_factory=dict)
    isolation: sandbox.Isolation | None = None
    instructions: set[str] = field(default_factory=set)
    warnings: dict[str, None] = field(default_factory=dict)
    executed: set[tuple[object, ...]] = field(default_factory=set)  # traces, by their keys

    def enter(self, stage: Stage, what: str = "") -> None:
        self.stage = stage
        self.progress(stage, what)


def check(
    source_or_path: str | Path,
    spec: OpSpec,
    *,
    target: str = "trn2",
    sdk: str = "2.33",
    lnc: int = 1,
    cases: Sequence[Case] | None = None,
    progress: Progress | None = None,
) -> Verdict:
    """Verify a draft against its spec.

    source_or_path: the text, or a Path to it. cases: judge only these instead of listed, drawn and production ones.
    progress: called with (stage, detail) as verification advances.
    Returns a Verdict; a wrong draft is never an exception. Raises ValueError for an unknown target, SDK or LNC degree,
    SpecError (also for a spec too weak to judge by) or sandbox.SandboxError for faults of ours.
    """
    choose(sdk, target, lnc)
    source = read(source_or_path)
    run = _Run(
        Request(source, spec.op, sdk, target, lnc),
        spec,
        progress or (lambda stage, what: None),
        time.monotonic(),
        complete=cases is None,
    )
    run.enter(Stage.PARSE, "spec and reference")
    refuse_weak(spec, seed=fresh_seed())
    try:
        _lint(run)
        if cases is None:
            seed = fresh_seed()
            trials = plan(spec, seed=seed)
            listed = [c for group in ("smoke", "edge") for c in spec.cases(group)]  # type: ignore[arg-type]
            dims = [c.dims for c in listed]
            _judge(run, [t for t in trials if t.case.dims in dims], Stage.COMPARE)
            rng = np.random.default_rng(fresh_seed())
            hinted = [Trial(c, "normal", fresh_seed()) for c in hinted_cases(spec, source, rng)]
            _judge(run, [*(t for t in trials if t.case.dims not in dims), *hinted], Stage.GENERALISE)
            cases = spec.cases("production")
            _profile(run, [Trial(c, PRODUCTION_FAMILY, fresh_seed()) for c in cases])
        else:
            _judge(run, [Trial(c, "normal", fresh_seed()) for c in cases], Stage.COMPARE)
    except Failure as failure:
        return _verdict(run, failure)
    return _verdict(run, None)


def profile(
    source_or_path: str | Path, spec: OpSpec, case: Case, *, target: str = "trn2", sdk: str = "2.33", lnc: int = 1
) -> Profile:
    """The modelled time of a draft at one case.

    Raises Failure if it does not record or is not legal, ValueError for an unknown target, SDK or LNC degree.
    """
    from nkismith.verify.timing import profile_trace

    choose(sdk, target, lnc)
    run = _Run(Request(read(source_or_path), spec.op, sdk, target, lnc), spec, lambda stage, what: None, 0.0)
    _lint(run)
    bound = spec.bind(case)
    trace = record(run.request, [bound]).traces[0]
    check_legality(trace)
    return profile_trace(trace, control=bound.control, work=bound.work)


def read(source_or_path: str | Path) -> str:
    """The text of a draft, byte for byte: line ends stay, and what is not UTF-8 becomes lone surrogates for lint."""
    if isinstance(source_or_path, Path):
        return source_or_path.read_bytes().decode("utf-8", errors="surrogateescape")
    return source_or_path


def _lint(run: _Run) -> None:
    run.enter(Stage.PARSE)
    request = run.request
    findings = linting.lint(
        request.source,
        entry=request.entry,
        params=tuple(run.spec.inputs),
        sdk=request.sdk,
        max_literals=run.spec.limits.constants,
    )
    parse = [f for f in findings if linting.reason(f) is Reason.PARSE]
    if not parse:
        run.enter(Stage.LINT)
    for finding in parse or findings:
        raise Failure(linting.reason(finding), finding.message, fix=finding.fix, line=finding.line, rule=finding.rule)


def _judge(run: _Run, trials: Sequence[Trial], stage: Stage) -> None:
    """Record every case of the trials once, then check, execute and compare each trial."""
    distinct = {trace_key(t.case): t.case for t in trials}
    traces = _recorded(run, list(distinct.values()), stage)
    for trial in trials:
        run.case = str(trial)
        _execute_and_compare(run, trial, traces[trace_key(trial.case)], stage)
    run.case = None


def _profile(run: _Run, trials: Sequence[Trial]) -> None:
    from nkismith.verify.timing import profile_trace

    traces = _recorded(run, [t.case for t in trials], Stage.PROFILE)
    for trial in trials:
        run.case = str(trial.case)
        bound = run.spec.bind(trial.case)
        trace = traces[trace_key(trial.case)]
        run.enter(Stage.PROFILE, str(trial.case))
        found = dynamic(profile_trace, trace, control=bound.control, work=bound.work)
        if found.latency_us < found.floor_us:
            raise Failure(
                Reason.FASTER_THAN_POSSIBLE,
                f"modelled {found.latency_us:.1f} us, physics allows no less than {found.floor_us:.1f} us: "
                "work is missing, or the spec's `work` is wrong",
            )
        # The profile is for the run-time scalars of the spec, which anyone can read; what is executed must be secret.
        secret = with_drawn_control(run.spec, trial.case, np.random.default_rng(trial.seed))
        _execute_and_compare(run, replace(trial, case=secret), trace, Stage.PROFILE)
        run.profiles[str(trial.case)] = found
    run.case = None


def _recorded(run: _Run, cases: Sequence[Case], stage: Stage) -> dict[tuple[object, ...], Trace]:
    distinct = {trace_key(c): c for c in cases}
    bounds = [run.spec.bind(c) for c in distinct.values()]
    run.enter(Stage.RECORD, f"{len(bounds)} shapes")
    recording = record(run.request, bounds)
    run.isolation = recording.isolation
    run.enter(Stage.LEGALITY, f"{len(bounds)} shapes")
    for case, trace in zip(distinct.values(), recording.traces, strict=True):
        run.case = str(case)
        check_trace(run.spec, trace)
        run.instructions.update(instr.op for program in trace.programs for instr in walk(program.body))
    run.case = None
    return dict(zip(distinct, recording.traces, strict=True))


def _execute_and_compare(run: _Run, trial: Trial, trace: Trace, stage: Stage) -> None:
    run.enter(Stage.EXECUTE, str(trial))
    case = drawn(run.spec, trial)
    key = trace_key(trial.case)
    got, warnings = execute_trial(run.spec, trace, trial, case.inputs, twice=key not in run.executed)
    run.executed.add(key)
    run.warnings.update(dict.fromkeys(warnings))
    run.enter(stage, str(trial))
    comparisons = judged(run.spec, case, got)
    run.results.append(CaseResult(str(trial.case), trial.family, trial.seed, stage, comparisons))
    require(run.spec, trace, comparisons)


def _verdict(run: _Run, failure: Failure | None) -> Verdict:
    request = run.request
    return Verdict(
        op=run.spec.op,
        accepted=failure is None,
        stage=run.stage,
        reason=failure.reason if failure else None,
        rule=failure.rule if failure else "",
        line=failure.line if failure else None,
        message=failure.message if failure else "",
        fix=failure.fix if failure else "",
        case=run.case if failure else None,
        cases=tuple(run.results),
        profiles=run.profiles,
        isolation=str(run.isolation or "not reached"),
        strong_isolation=run.isolation is not None and run.isolation.level is sandbox.Level.STRONG,
        target=request.target,
        sdk=request.sdk,
        lnc=request.lnc,
        seconds=time.monotonic() - run.started,
        instructions=tuple(sorted(run.instructions)),
        complete=run.complete,
        warnings=tuple(run.warnings),
    )
