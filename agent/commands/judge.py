"""Commands that judge a kernel file: check, profile, accept."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nkismith.agent.commands.options import (
    Json,
    Lnc,
    Op,
    Sdk,
    SpecDir,
    Target,
    WrongUse,
    check_folder,
    check_machine,
    emit,
    op_spec,
    source_of,
)
from nkismith.agent.commands.progress import Progress

File = Annotated[Path, typer.Argument(help="Kernel source, a Python file.")]


def register(app: typer.Typer) -> None:
    app.command()(check)
    app.command()(profile)
    app.command()(accept)


def check(
    file: File,
    op: Op = None,
    spec: SpecDir = None,
    target: Target = "trn2",
    sdk: Sdk = "2.33",
    lnc: Lnc = 1,
    cases: Annotated[str | None, typer.Option(help="Only these cases: smoke, edge or production.")] = None,
    json: Json = False,
) -> int:
    """Verdict on a kernel source: legal on the hardware, and equal to the reference over the op's domain?

    \b
    nkismith show rope_3d --source > kernel.py
    nkismith check kernel.py --op rope_3d
    nkismith check kernel.py --op rope_3d --cases smoke --json
    """
    contract, source = op_spec(op, spec), source_of(file)
    check_machine(target, sdk)
    chosen = _cases(contract, cases)
    verdict = _verdict(source, contract, target=target, sdk=sdk, lnc=lnc, cases=chosen)
    if json:
        emit(verdict)
    else:
        tell(verdict, file)
    return 0 if verdict.accepted else exit_code(verdict.reason)


def profile(
    file: File,
    op: Op = None,
    spec: SpecDir = None,
    target: Target = "trn2",
    sdk: Sdk = "2.33",
    lnc: Lnc = 1,
    case: Annotated[
        str, typer.Option(help="Case to time: production, edge, smoke, or one of their labels.")
    ] = "production",
    timeline: Annotated[
        Path | None, typer.Option(help="Also write the schedule: .json opens in Perfetto, .png is a picture.")
    ] = None,
    json: Json = False,
) -> int:
    """Modelled time and traffic of a kernel at one case, against the floor of the op's work.

    \b
    nkismith profile kernel.py --op rope_3d --timeline timeline.json
    nkismith profile kernel.py --op rope_3d --case smoke --json
    """
    from nkismith import verify
    from nkismith.verify.failure import Failure

    contract, source = op_spec(op, spec), source_of(file)
    check_machine(target, sdk)
    chosen = _case(contract, case)
    if timeline is not None and (timeline.suffix not in (".json", ".png") or not timeline.parent.is_dir()):
        raise WrongUse(f"{timeline}: a timeline is a .json or .png file in a folder that exists.")
    try:
        measured = verify.profile(source, contract, chosen, target=target, sdk=sdk, lnc=lnc)
    except Failure as failure:
        if json:
            emit(
                {
                    "reason": failure.reason,
                    "rule": failure.rule,
                    "line": failure.line,
                    "message": str(failure),
                    "fix": failure.fix,
                }
            )
        else:
            _refusal(file, "refused", failure)
        return exit_code(failure.reason)
    if timeline is not None:
        _draw(source, contract, chosen, target, sdk, lnc, timeline)
    if json:
        emit(measured)
        return 0
    print(
        f"{contract.op} at {chosen} on {target}, LNC {lnc}: {measured.latency_us:.1f} µs {measured.label} "
        f"({measured.low_us:.1f} to {measured.high_us:.1f}); floor {measured.floor_us:.1f} µs, "
        f"{measured.percent_of_floor:.1f} % of it, set by {measured.bound}"
    )
    print(
        f"HBM read {measured.hbm_read_bytes / 1e6:.2f} MB, written {measured.hbm_write_bytes / 1e6:.2f} MB, spilled "
        f"{measured.spill_bytes / 1e6:.2f} MB; a partition's peak: SBUF {measured.sbuf_peak_bytes / 1024:.1f} KiB, "
        f"PSUM {measured.psum_peak_bytes / 1024:.1f} KiB"
    )
    for line in measured.diagnosis[1:]:  # the first sums up what stands above
        print(f"- {line}")
    for use in measured.by_line[:8]:
        print(f"{use.busy_us:10.1f} µs  {file}:{use.line}  {use.opcode}")
    if timeline is not None:
        opener = " (open it in https://ui.perfetto.dev)" if timeline.suffix == ".json" else ""
        print(f"timeline  {timeline}{opener}")
    return 0


def accept(
    file: File,
    op: Op = None,
    spec: SpecDir = None,
    target: Target = "trn2",
    sdk: Sdk = "2.33",
    lnc: Lnc = 1,
    out: Annotated[Path | None, typer.Option(help="Keep the kernel here instead of in the op's folder.")] = None,
    allow_weak_isolation: Annotated[
        bool, typer.Option(help="Accept although this machine cannot isolate the recording child fully.")
    ] = False,
    mutants: Annotated[
        bool, typer.Option(help="Also make mutants of it, up to three minutes, and keep the score as evidence.")
    ] = True,
    json: Json = False,
) -> int:
    """Verify a kernel and store it with its evidence, where the pipeline finds it.

    \b
    nkismith accept kernel.py --op rope_3d
    nkismith accept kernel.py --op rope_3d --out accepted --no-mutants
    """
    from nkismith.agent.commands.verify import scored
    from nkismith.agent.judge import Verifier, require_isolation

    contract, source = op_spec(op, spec), source_of(file)
    check_machine(target, sdk)
    check_folder("--out", out)
    verdict = _verdict(source, contract, target=target, sdk=sdk, lnc=lnc)
    path = score = None
    if verdict.accepted:
        plain = verdict.to_dict()
        require_isolation(contract, plain, allow_weak_isolation)
        score = scored(source, contract, target=target, sdk=sdk, lnc=lnc) if mutants else None
        evidence = {
            "verdict": plain,
            "mutation": score,
            "provider": "file",
            "allow_weak_isolation": allow_weak_isolation,
        }
        path = Verifier().accept(source, contract, evidence, out)
    if json:
        emit({"verdict": verdict, "mutation": score, "path": path})
    else:
        tell(verdict, file)
        if path and score:
            print(f"{score.killed} of {len(score.outcomes) - score.excluded} mutants killed ({100 * score.rate:.1f} %)")
        if path:
            print(f"stored  {path}")
    return 0 if verdict.accepted else exit_code(verdict.reason)


def _verdict(source: str, contract: Any, **machine: Any) -> Any:
    from nkismith import verify

    with Progress(contract.op) as bar:
        return verify.check(source, contract, **machine, progress=lambda stage, what: bar.at(f"{stage} {what}"))


def exit_code(reason: Any) -> int:
    """Of a refusal: 1 for a kernel that is wrong, 2 for a file that is no kernel at all."""
    return 2 if reason in ("parse", "no_entry") else 1


def tell(verdict: Any, file: Path) -> None:
    """A verdict for a person: what, where, how to fix."""
    for warning in verdict.warnings:
        print(f"warning: {warning}")
    if verdict.accepted:
        cases = f" in {len(verdict.cases)} cases" if verdict.cases else ""
        print(f"{file}: verified{cases}; isolation: {verdict.isolation.split(' (')[0]}")
        if verdict.profile:
            measured = verdict.profile
            print(
                f"{measured.latency_us:.1f} µs {measured.label} ({measured.low_us:.1f} to {measured.high_us:.1f}), "
                f"floor {measured.floor_us:.1f} µs, set by {measured.bound}"
            )
        return
    _refusal(file, f"refused at {verdict.stage}", verdict)


def _refusal(file: Path, how: str, found: Any) -> None:
    """What was refused, and how to fix it. A file that is no kernel at all is wrong use, on one line of stderr."""
    where = f"{file}:{found.line}" if found.line else str(file)
    if exit_code(found.reason) == 2:
        raise WrongUse(f"{where}: {found.message}. Fix: {found.fix}.")
    print(f"{where}: {how} [{found.rule or found.reason}] {found.message}")
    if case := getattr(found, "case", None):  # a profile has one case, which the user chose
        print(f"smallest failing case: {case}")
    if found.fix:
        print(f"fix: {found.fix}")


def _draw(source: str, contract: Any, case: Any, target: str, sdk: str, lnc: int, path: Path) -> None:
    """Record once more, for the schedule behind the profile."""
    from nkismith.verify.recording import Request, record
    from nkismith.verify.timing import model
    from nkismith.verify.timing.timeline import write

    bound = contract.bind(case)
    trace = record(Request(source, contract.op, sdk, target, lnc), [bound]).traces[0]
    write(model(trace, control=bound.control, work=bound.work), path)


def _cases(contract: Any, group: str | None) -> Any:
    if group is None:
        return None
    if group not in ("smoke", "edge", "production"):
        raise WrongUse(f"Unknown group of cases {group!r}. Groups: smoke, edge, production.")
    listed = contract.cases(group)
    if not listed:
        raise WrongUse(f"The spec of {contract.op} lists no {group} cases.")
    return listed


def _case(contract: Any, name: str) -> Any:
    listed = {group: contract.cases(group) for group in ("smoke", "edge", "production")}
    if name in listed:
        if not listed[name]:
            raise WrongUse(f"The spec of {contract.op} lists no {name} case.")
        return listed[name][0]
    everything = [case for group in listed.values() for case in group]
    for case in everything:
        if name in (case.label, str(case)):
            return case
    raise WrongUse(
        f"{contract.op} has no case {name!r}. Cases: smoke, edge, production, or a label: "
        + "; ".join(str(case) for case in everything)
    )
