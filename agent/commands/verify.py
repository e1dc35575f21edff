"""Commands that question what was accepted: mutate, recheck."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nkismith.agent.commands.options import (
    Json,
    Lnc,
    Op,
    Sdk,
    SpecDir,
    Target,
    WrongUse,
    check_machine,
    emit,
    op_spec,
    source_of,
)
from nkismith.agent.commands.progress import Progress

if TYPE_CHECKING:
    from nkismith.kernels.spec import OpSpec
    from nkismith.verify.mutation import Score

Root = Annotated[Path | None, typer.Option(help="Where the kernels were accepted to, if not in the op's folder.")]


def register(app: typer.Typer) -> None:
    app.command()(mutate)
    app.command()(recheck)


def mutate(
    what: Annotated[str, typer.Argument(metavar="OP|FILE", help="An op with an accepted kernel, or a kernel source.")],
    op: Op = None,
    spec: SpecDir = None,
    target: Target = "trn2",
    sdk: Sdk = "2.33",
    lnc: Lnc = 1,
    root: Root = None,
    json: Json = False,
) -> int:
    """Make small mistakes in a right kernel and count how many verification finds; 98 % or the spec is too weak.

    \b
    nkismith mutate rope_3d
    nkismith mutate kernel.py --op rope_3d --json
    """
    from nkismith.verify.mutation import NotRight

    check_machine(target, sdk)
    file = Path(what)
    if file.suffix == ".py" or file.is_file():  # no op has such a name, so a missing file is not taken for one
        contract, source = op_spec(op, spec), source_of(file)
    else:
        contract, source, sdk = _accepted(what, op, spec, target, lnc, root)
    try:
        score = scored(source, contract, target=target, sdk=sdk, lnc=lnc)
    except NotRight as refused:
        print(refused)
        return 1
    if json:
        emit(score)
    else:
        _tell(score)
    return 0 if score.met else 1


def recheck(
    op: Annotated[str | None, typer.Argument(help="Bundled op; all of them by default.")] = None,
    spec: SpecDir = None,
    root: Root = None,
    mutants: Annotated[bool, typer.Option("--mutate", help="Make and judge mutants again, too.")] = False,
    json: Json = False,
) -> int:
    """Verify accepted kernels again: is their evidence fresh, is only a profile stale, has anything changed?

    \b
    nkismith recheck
    nkismith recheck rope_3d --mutate --json
    """
    from nkismith.kernels import registry
    from nkismith.kernels import spec as specs
    from nkismith.verify import evidence

    contracts = [op_spec(op, spec)] if op or spec else [specs.load(name) for name in specs.names()]
    kernels = [(contract, kernel) for contract in contracts for kernel in registry.of(contract, root)]
    found = []
    for contract, kernel in kernels:
        with Progress(f"{contract.op} {kernel.path.parent.name}") as bar:
            found.append(evidence.recheck(kernel, contract, mutants=mutants, progress=bar.at))
        if not json:
            one = found[-1]
            print(f"{one.status:13} {one.op} {one.path}\n              {one.scope}: {one.detail}")
            if one.mutation:
                print(f"              mutants: {one.mutation}")
    if json:
        emit(found)
    elif not found:
        print(f"no accepted kernel{f' of {op}' if op else ''} yet; `nkismith accept` and `nkismith draft` store them")
    return 0 if all(one.ok for one in found) else 1


def scored(source: str, contract: OpSpec, *, target: str, sdk: str, lnc: int) -> Score:
    """The mutation score of a kernel, with a progress bar while it is being made."""
    from nkismith.verify.mutation import mutate

    with Progress(f"mutants of {contract.op}") as bar:
        return mutate(
            source, contract, target=target, sdk=sdk, lnc=lnc, progress=lambda done, of: bar.at("made", done, of)
        )


def _accepted(
    what: str, op: str | None, spec: Path | None, target: str, lnc: int, root: Path | None
) -> tuple[OpSpec, str, str]:
    """The newest accepted kernel of an op: its spec, its source, and the SDK it was verified for."""
    from nkismith.kernels import registry

    if op is not None and op != what:
        raise WrongUse(f"{what} is no file, so it names the op; --op {op} names another. Leave one of the two out.")
    contract = op_spec(what, spec)
    kernel = registry.find(contract.folder, target=target, dtype=None, lnc=lnc, root=root)
    return contract, kernel.source, kernel.evidence["sdk"]


def _tell(score: Score) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title=f"Mutants of {score.op}")
    table.add_column("mistake")
    for name in ("made", "killed", "excluded", "survived"):
        table.add_column(name, justify="right")
    for kind, counts in score.by_kind().items():
        table.add_row(kind, *map(str, counts))
    table.add_section()
    table.add_row("all", *map(str, (len(score.outcomes), score.killed, score.excluded, len(score.survivors))))
    console = Console(highlight=False)
    console.print(table)
    for outcome in score.outcomes:
        if outcome.excluded_by:
            console.print(f"excluded by {outcome.excluded_by}: {outcome}", style="dim", markup=False, soft_wrap=True)
    for outcome in score.survivors:
        console.print(f"survived: {outcome}", style="bold", markup=False, soft_wrap=True)
    verdict = "met" if score.met else "NOT MET"
    console.print(
        f"{100 * score.rate:.1f} % of {len(score.outcomes) - score.excluded} killed, 98 % asked for: {verdict} "
        f"({score.trials} trials, {score.seconds:.0f} s)"
    )
