"""Verification: from a draft's text to a verdict, stage by stage, stopping at the first failure.

    lint ─ record ─ legality ─ execute ─ compare ─ generalise ─ profile

The judge never runs the draft's Python: a sandboxed child records it, and what is executed here is the trace. Shapes
that were listed come first, then shapes drawn from the op's domain, then the production shapes, each of which is
executed and compared once before its profile is reported.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from nkismith.kernels.spec import Case, OpSpec
from nkismith.verify import sandbox
from nkismith.verify.cases import Trial, draw, fresh_seed, plan
from nkismith.verify.compare import Comparison, compare
from nkismith.verify.failure import Failure
from nkismith.verify.lint import lint
from nkismith.verify.lint.rule import RULES
from nkismith.verify.precision import check_precision
from nkismith.verify.reasons import Reason
from nkismith.verify.recording import Request, record
from nkismith.verify.reference import expected
from nkismith.verify.simulator import legality
from nkismith.verify.simulator.errors import LegalityError, UnsupportedInstruction
from nkismith.verify.simulator.execute import Execution, execute
from nkismith.verify.simulator.instruction import define
from nkismith.verify.simulator.trace import Trace, walk
from nkismith.verify.timing import Profile, profile_trace
from nkismith.verify.verdict import CaseResult, Stage, Verdict

Progress = Callable[[Stage, str], None]
_DYNAMIC = {
    "dynamic_bounds": Reason.OUT_OF_BOUNDS,
    "step_budget": Reason.STEP_BUDGET,
    "unwritten_index": Reason.UNWRITTEN_READ,
    "unwritten_scalar": Reason.UNWRITTEN_READ,
    "unwritten_predicate": Reason.UNWRITTEN_READ,
    "unbound_scalar": Reason.UNBOUND_SCALAR,
}
_PROBLEMS = {
    "missing": Reason.WRONG_ARITY,
    "shape": Reason.WRONG_SHAPE,
    "dtype": Reason.WRONG_DTYPE,
    "finite": Reason.NONFINITE,
    "untouched": Reason.UNTOUCHED_MODIFIED,
}


@dataclass(slots=True)
class _Run:
    """One check in progress: what is judged, and what has been found so far."""

    request: Request
    spec: OpSpec
    progress: Progress
    started: float
    stage: Stage = Stage.PARSE
    case: str | None = None
    results: list[CaseResult] = field(default_factory=list)
    profiles: dict[str, Profile] = field(default_factory=dict)
    isolation: sandbox.Isolation | None = None
    warnings: dict[str, None] = field(default_factory=dict)

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
    Returns a Verdict; a wrong draft is never an exception. Raises SpecError or sandbox.SandboxError for faults of ours.
    """
    source = read(source_or_path)
    run = _Run(
        Request(source, spec.op, sdk, target, lnc), spec, progress or (lambda stage, what: None), time.monotonic()
    )
    try:
        _lint(run)
        if cases is None:
            seed = fresh_seed()
            trials = plan(spec, seed=seed)
            listed = [c for group in ("smoke", "edge") for c in spec.cases(group)]  # type: ignore[arg-type]
            dims = [c.dims for c in listed]
            _judge(run, [t for t in trials if t.case.dims in dims], Stage.COMPARE)
            _judge(run, [t for t in trials if t.case.dims not in dims], Stage.GENERALISE)
            cases = spec.cases("production")
            _profile(run, [Trial(c, "normal", fresh_seed()) for c in cases])
        else:
            _judge(run, [Trial(c, "normal", fresh_seed()) for c in cases], Stage.COMPARE)
    except Failure as failure:
        return _verdict(run, failure)
    return _verdict(run, None)


def profile(
    source_or_path: str | Path, spec: OpSpec, case: Case, *, target: str = "trn2", sdk: str = "2.33", lnc: int = 1
) -> Profile:
    """The modelled time of a draft at one case. Raises Failure if it does not record or is not legal."""
    run = _Run(Request(read(source_or_path), spec.op, sdk, target, lnc), spec, lambda stage, what: None, 0.0)
    _lint(run)
    bound = spec.bind(case)
    trace = record(run.request, [bound]).traces[0]
    _legal(trace)
    return profile_trace(trace, control=bound.control, work=bound.work)


def read(source_or_path: str | Path) -> str:
    """The text of a draft. A file that is not UTF-8 keeps its odd bytes as lone surrogates, for lint to refuse."""
    if isinstance(source_or_path, Path):
        return source_or_path.read_text(encoding="utf-8", errors="surrogateescape")
    return source_or_path


def _lint(run: _Run) -> None:
    run.enter(Stage.PARSE)
    request = run.request
    findings = lint(
        request.source,
        entry=request.entry,
        params=tuple(run.spec.inputs),
        sdk=request.sdk,
        max_literals=run.spec.limits.literals,
    )
    parse = [f for f in findings if RULES[f.rule].reason is Reason.PARSE]
    if not parse:
        run.enter(Stage.LINT)
    for finding in parse or findings:
        raise Failure(
            RULES[finding.rule].reason, finding.message, fix=finding.fix, line=finding.line, rule=finding.rule
        )


def _judge(run: _Run, trials: Sequence[Trial], stage: Stage) -> None:
    """Record every case of the trials once, then check, execute and compare each trial."""
    distinct = {_key(t.case): t.case for t in trials}
    traces = _recorded(run, list(distinct.values()), stage)
    for trial in trials:
        run.case = str(trial)
        _execute_and_compare(run, trial, traces[_key(trial.case)], stage)
    run.case = None


def _profile(run: _Run, trials: Sequence[Trial]) -> None:
    traces = _recorded(run, [t.case for t in trials], Stage.PROFILE)
    for trial in trials:
        run.case = str(trial.case)
        bound = run.spec.bind(trial.case)
        trace = traces[_key(trial.case)]
        run.enter(Stage.PROFILE, str(trial.case))
        found = _dynamic(profile_trace, trace, control=bound.control, work=bound.work)
        if found.latency_us < found.floor_us:
            raise Failure(
                Reason.FASTER_THAN_POSSIBLE,
                f"modelled {found.latency_us:.1f} us, physics allows no less than {found.floor_us:.1f} us: "
                "work is missing, or the spec's `work` is wrong",
            )
        _execute_and_compare(run, trial, trace, Stage.PROFILE)
        run.profiles[str(trial.case)] = found
    run.case = None


def _key(case: Case) -> tuple[object, ...]:
    return (tuple(case.dims.items()), case.dtype)  # control values do not change a trace


def _recorded(run: _Run, cases: Sequence[Case], stage: Stage) -> dict[tuple[object, ...], Trace]:
    distinct = {_key(c): c for c in cases}
    bounds = [run.spec.bind(c) for c in distinct.values()]
    run.enter(Stage.RECORD, f"{len(bounds)} shapes")
    recording = record(run.request, bounds)
    run.isolation = recording.isolation
    run.enter(Stage.LEGALITY, f"{len(bounds)} shapes")
    for case, trace in zip(distinct.values(), recording.traces, strict=True):
        run.case = str(case)
        _legal(trace)
        _check_effects(run.spec, trace)
        check_precision(trace, run.spec.accumulate)
    run.case = None
    return dict(zip(distinct, recording.traces, strict=True))


def _legal(trace: Trace) -> None:
    try:
        legality.check(trace)
    except UnsupportedInstruction as error:
        raise Failure(Reason.UNSUPPORTED_INSTRUCTION, str(error), line=error.line) from error
    except LegalityError as error:
        raise Failure(Reason.ILLEGAL, error.what, fix=error.fix, line=error.line, rule=error.rule) from error


def _check_effects(spec: OpSpec, trace: Trace) -> None:
    """What the kernel returns and writes is what the spec declares."""
    names = dict(zip(trace.inputs, spec.inputs, strict=True))
    for program in trace.programs:
        for instr in walk(program.body):
            for parameter in define(instr.op).writes:
                operand = instr.operands.get(parameter)
                name = names.get(operand.buffer) if operand is not None else None
                if name is not None and name not in spec.in_place:
                    raise Failure(
                        Reason.UNTOUCHED_MODIFIED,
                        f"{instr.op} writes the input {name}, which the spec does not declare in place",
                        fix="write to a tensor of your own",
                        line=instr.line,
                    )
    returned = _returned(spec, trace)
    if len(returned) != len(spec.outputs):
        wanted = ", ".join(spec.outputs) or "nothing"
        raise Failure(
            Reason.WRONG_ARITY,
            f"the kernel returns {len(trace.outputs)} tensors, the spec has {len(spec.outputs)} outputs ({wanted})",
            fix="return the spec's outputs in order; in-place inputs need not be returned",
        )
    for name, index in zip(spec.outputs, returned, strict=True):
        source = names.get(trace.outputs[index].buffer)
        if source is not None:
            raise Failure(
                Reason.WRONG_ARITY,
                f"output {name} is the input {source} itself",
                fix="allocate the output with nl.ndarray(..., buffer=nl.shared_hbm) and write it",
            )


def _returned(spec: OpSpec, trace: Trace) -> list[int]:
    """Indices of the returned tensors that are outputs: in-place inputs in front may be returned or not."""
    positions = {trace.inputs[i] for i, name in enumerate(spec.inputs) if name in spec.in_place}
    leading = [i for i, o in enumerate(trace.outputs) if o.buffer in positions]
    if len(leading) == len(spec.in_place) == len(trace.outputs) - len(spec.outputs):
        return [i for i in range(len(trace.outputs)) if i not in leading]
    return list(range(len(trace.outputs)))


def _execute_and_compare(run: _Run, trial: Trial, trace: Trace, stage: Stage) -> None:
    spec, bound = run.spec, run.spec.bind(trial.case)
    run.enter(Stage.EXECUTE, str(trial))
    inputs = draw(spec, trial)
    done = _dynamic(execute, trace, list(inputs.values()), seed=trial.seed % (1 << 32))
    run.warnings.update(dict.fromkeys(f"line {line}: {text}" for line, text in done.warnings))
    got = _results(spec, trace, done)
    run.enter(stage, str(trial))
    want = expected(spec, bound, inputs, seed=trial.seed % (1 << 32))
    comparisons = compare(spec, bound, want, inputs, got)
    run.results.append(CaseResult(str(trial.case), trial.family, trial.seed, stage, comparisons))
    for comparison in comparisons:
        if not comparison.ok:
            raise _mismatch(comparison)


def _results(spec: OpSpec, trace: Trace, done: Execution) -> dict[str, np.ndarray]:
    after = dict(zip(spec.inputs, done.inputs, strict=True))
    got = {name: after[name] for name in spec.in_place}
    for name, index in zip(spec.outputs, _returned(spec, trace), strict=True):
        unwritten = done.unwritten[index]
        if unwritten is not None:
            at = np.argwhere(unwritten)
            raise Failure(
                Reason.UNWRITTEN_OUTPUT,
                f"output {name}: {len(at):,} of {unwritten.size:,} elements hold unwritten data, first at "
                f"{at[0].tolist()}, last at {at[-1].tolist()}",
                fix="write every element; look at the last tile of each dimension",
            )
        got[name] = done.outputs[index]
    return got


def _mismatch(comparison: Comparison) -> Failure:
    reason = _PROBLEMS.get(comparison.problem, Reason.MISMATCH)
    return Failure(reason, comparison.message, fix=comparison.hint)


def _dynamic(call: Callable, *args: object, **kwargs: object):  # type: ignore[no-untyped-def]
    """Call something that may raise a dynamic rule."""
    try:
        return call(*args, **kwargs)
    except LegalityError as error:
        reason = _DYNAMIC.get(error.rule, Reason.ILLEGAL)
        raise Failure(reason, error.what, fix=error.fix, line=error.line, rule=error.rule) from error


def _verdict(run: _Run, failure: Failure | None) -> Verdict:
    request = run.request
    return Verdict(
        op=run.spec.op,
        accepted=failure is None,
        stage=run.stage,
        reason=failure and failure.reason,
        rule=failure.rule if failure else "",
        line=failure and failure.line,
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
        warnings=tuple(run.warnings),
    )
