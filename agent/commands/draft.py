"""Commands of the agent loop: draft, prompt, record."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nkismith.agent.commands.options import (
    Json,
    Lnc,
    Sdk,
    SpecDir,
    Target,
    WrongUse,
    check_folder,
    check_machine,
    emit,
    op_spec,
)

_ENDS = {"waiting": 3, "error": 2, "provider": 2, "unavailable": 2}


def register(app: typer.Typer) -> None:
    app.command()(draft)
    app.command()(prompt)
    app.command()(record)


def draft(
    ctx: typer.Context,
    op: Annotated[str | None, typer.Argument(help="Bundled op; or use --spec.")] = None,
    spec: SpecDir = None,
    target: Target = "trn2",
    sdk: Sdk = "2.33",
    lnc: Lnc = 1,
    provider: Annotated[
        str, typer.Option(help="Who answers: anthropic, bedrock, handoff (files), recording (saved replies).")
    ] = "anthropic",
    model: Annotated[str | None, typer.Option(help="Model name; for handoff a label for the report.")] = None,
    effort: Annotated[
        str | None, typer.Option(help="Effort: low, medium, high, xhigh or max. Default: the model's.")
    ] = None,
    thinking: Annotated[str | None, typer.Option(help="adaptive, off, or tokens. Default: the model's.")] = None,
    budget_usd: Annotated[
        float, typer.Option(help="Hard cap in dollars, over all sessions of the run.", min=0.0)
    ] = 5.0,
    budget_tokens: Annotated[
        int | None, typer.Option(help="Hard cap on tokens, input and output together.", min=1)
    ] = None,
    minutes: Annotated[float | None, typer.Option(help="Hard cap on wall time, in minutes.", min=0.0)] = None,
    attempts: Annotated[int, typer.Option(help="Hard cap on model replies.", min=1)] = 12,
    beam: Annotated[int, typer.Option(help="Candidates drafted side by side.", min=1, max=16)] = 1,
    rounds: Annotated[int, typer.Option(help="Rounds of optimisation after the first verified kernel.", min=0)] = 0,
    tries: Annotated[int, typer.Option(help="Drafts in a row that may fail before a lane is given up.", min=1)] = 5,
    stop_at: Annotated[float, typer.Option(help="Stop optimising at this percent of the floor.")] = 90.0,
    patience: Annotated[int, typer.Option(help="Stop after this many rounds without a gain.", min=1)] = 2,
    lessons: Annotated[bool, typer.Option(help="Show lessons of earlier runs to the model.")] = True,
    accept: Annotated[bool, typer.Option(help="Store the best verified kernel in the registry.")] = True,
    allow_weak_isolation: Annotated[
        bool, typer.Option(help="Accept although this machine cannot isolate the recording child fully.")
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Keep accepted kernels here instead of in the op's folder.")] = None,
    recording: Annotated[Path | None, typer.Option(help="Recording to replay (default: the bundled one).")] = None,
    step: Annotated[
        bool, typer.Option(help="handoff: return at once with exit code 3; the same command continues later.")
    ] = False,
    resume: Annotated[
        str | None, typer.Option(help="Continue this run (a name, its beginning, or latest) with its own options.")
    ] = None,
    json: Json = False,
) -> int:
    """Run the agent loop for an op: draft, verify, revise, and optimise until a kernel is accepted.

    \b
    nkismith draft rope_3d --provider recording
    nkismith draft rope_3d --provider handoff --step
    nkismith draft --spec my_op --budget-usd 2 --rounds 3
    nkismith draft --resume latest
    """
    from rich.console import Console

    from nkismith.agent import loop
    from nkismith.agent.ledger import Caps
    from nkismith.agent.run import Plan

    if resume is not None:
        given = {name for name in ctx.params if getattr(ctx.get_parameter_source(name), "name", "") == "COMMANDLINE"}
        caps = {"budget_usd": "usd", "budget_tokens": "tokens", "minutes": "minutes", "attempts": "attempts"}
        if fixed := given - {"resume", "step", "json", *caps}:
            raise WrongUse(
                f"--resume continues with the run's own options; {', '.join(sorted(fixed))} cannot change. "
                "Only the caps can: --budget-usd, --budget-tokens, --minutes, --attempts."
            )
        run = loop.resume(resume, step=step, caps={caps[name]: ctx.params[name] for name in given & set(caps)})
    else:
        contract = op_spec(op, spec)
        check_machine(target, sdk)
        check_folder("--out", out)
        if provider in ("handoff", "recording") and (effort or thinking):
            raise WrongUse(
                f"--effort and --thinking are settings of a model behind an API; leave them out for {provider}."
            )
        plan = Plan(
            op=contract.op,
            spec=str(contract.folder.resolve()),
            target=target,
            sdk=sdk,
            lnc=lnc,
            beam=beam,
            rounds=rounds,
            tries=tries,
            stop_at=stop_at,
            patience=patience,
            use_lessons=lessons and provider != "recording",  # recorded replies cannot heed them
            accept=accept,
            allow_weak_isolation=allow_weak_isolation,
            kernels_root=str(out.resolve()) if out else None,
            provider=provider,
            model=model or "",
            effort=effort,
            thinking=thinking,
            recording=str(recording.resolve()) if recording else None,
            step=step,
            caps=Caps(budget_usd, budget_tokens, minutes, attempts),
        )
        run = loop.begin(plan)
    outcome = loop.watch(run, Console(stderr=True, quiet=json))
    if json:
        emit(outcome)
    else:
        _tell(outcome)
    return _ENDS.get(outcome.ended, 0 if outcome.accepted else 1)


def _tell(outcome: Any) -> None:
    if outcome.ended == "waiting":
        print(outcome.message)
        return
    best = ""
    if outcome.latency_us:
        best = f", {outcome.latency_us:.1f} µs modelled, floor {outcome.floor_us:.1f} µs"
    verdict = "accepted" if outcome.accepted else "not accepted"
    ended = "" if outcome.ended == "done" else f" Ended: {outcome.ended}. {outcome.message}"
    print(f"{outcome.op}: {verdict} after {outcome.attempts} replies, ${outcome.usd:.4f}{best}.{ended}")
    for warning in outcome.warnings:
        print(f"warning {warning}")
    if outcome.kernel:
        print(f"kernel  {outcome.kernel}")
    print(f"report  {outcome.report}")


def prompt(
    op: Annotated[str | None, typer.Argument(help="Bundled op; or use --spec.")] = None,
    spec: SpecDir = None,
    attempt: Annotated[
        int, typer.Option(help="1 for the first prompt; later ones come from the op's latest run.", min=1)
    ] = 1,
    sample: Annotated[int, typer.Option(help="Lane of the beam.", min=0)] = 0,
    run: Annotated[str | None, typer.Option(help="Run to take the prompt from (default: the op's latest).")] = None,
    target: Target = "trn2",
    sdk: Sdk = "2.33",
    lnc: Lnc = 1,
    lessons: Annotated[bool, typer.Option(help="Include lessons of earlier runs, as draft does.")] = True,
    json: Json = False,
) -> int:
    """Print exactly what a model gets for an op; the size goes to stderr.

    \b
    nkismith prompt rope_3d
    nkismith prompt rope_3d --attempt 2
    nkismith prompt --spec my_op > prompt.md
    """
    import sys

    from nkismith.agent import loop

    contract = op_spec(op, spec)
    check_machine(target, sdk)
    made = (
        loop.first_prompt(contract, target=target, sdk=sdk, lnc=lnc, lessons=lessons)
        if attempt == 1 and run is None
        else loop.stored_prompt(contract.op, run, sample, attempt)
    )
    if json:
        emit({"op": contract.op, "attempt": attempt, "sample": sample, "tokens": made.tokens, "text": made.text})
    else:
        sys.stdout.write(made.text)
        print(f"about {made.tokens:,} tokens (three bytes each)", file=sys.stderr)
    return 0


def record(
    run: Annotated[str, typer.Argument(help="Finished run whose replies to keep: a name, its beginning, or latest.")],
    out: Annotated[Path, typer.Option(help="File to write.")],
    source: Annotated[str, typer.Option(help="Where the replies came from, in words a reader can check.")],
    model: Annotated[str | None, typer.Option(help="Who gave them (default: the run's model).")] = None,
    json: Json = False,
) -> int:
    """Turn the replies of a finished run into a recording that anyone can replay.

    \b
    nkismith record latest --out rope_3d.json --source "hand-off to a coding agent, 2026-11-29"
    """
    from nkismith.agent.providers import recording
    from nkismith.results.store import RunStore, data_root

    if not source.strip():
        raise WrongUse("--source is empty. Say where the replies came from.")
    kept = recording.save(RunStore.open(data_root(), run), source, out, model=model)
    if json:
        emit({"path": out, "op": kept.op, "model": kept.model, "source": kept.source, "replies": len(kept.replies)})
    else:
        print(f"{out}: {len(kept.replies)} replies for {kept.op}")
    return 0
