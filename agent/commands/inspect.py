"""Commands that show what there is: kernels, show, explain, report, lessons."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from nkismith.agent.commands.options import Json, Lnc, SpecDir, Target, check_machine, emit, op_spec


def register(app: typer.Typer) -> None:
    app.command()(kernels)
    app.command()(show)
    app.command()(explain)
    app.command()(report)
    app.command()(lessons)


def kernels(json: Json = False) -> int:
    """List the bundled ops and their accepted kernels.

    \b
    nkismith kernels
    nkismith kernels --json
    """
    from nkismith.kernels import registry
    from nkismith.kernels import spec as specs

    stored: dict[str, list[Any]] = {name: [] for name in specs.names()}
    for kernel in registry.all():
        stored[kernel.op].append(kernel)
    if json:
        emit({name: [_kernel(kernel) for kernel in found] for name, found in stored.items()})
        return 0
    for name, found in stored.items():
        print(f"{name}: {specs.load(name).summary}")
        for kernel in found:
            print(f"  {kernel.path.parent.name}  {kernel.scope}{_time(kernel)}{'  STALE' if kernel.stale else ''}")
        if not found:
            print(f"  no accepted kernel; make one: nkismith draft {name}")
    return 0


def show(
    op: Annotated[str | None, typer.Argument(help="Bundled op; or use --spec.")] = None,
    spec: SpecDir = None,
    source: Annotated[
        bool, typer.Option("--source", help="Print the source of the newest accepted kernel instead.")
    ] = False,
    target: Target = "trn2",
    lnc: Lnc = 1,
    json: Json = False,
) -> int:
    """Show an op: its contract, its cases, and each accepted kernel with its evidence.

    \b
    nkismith show rope_3d
    nkismith show rope_3d --source > kernel.py
    nkismith show rope_3d --json
    """
    from nkismith.kernels import registry
    from nkismith.prompts.render import contract_of

    contract = op_spec(op, spec)
    check_machine(target, "2.33")
    if source:
        print(registry.find(contract.folder, target=target, dtype=None, lnc=lnc).source, end="")
        return 0
    described = contract_of(contract, target, lnc)
    found = registry.of(contract)
    if json:
        emit({"contract": described, "kernels": [_kernel(kernel) for kernel in found]})
        return 0
    print(f"{described.op}: {described.summary}\n{described.maths}\n")
    for heading, tensors in (("inputs", described.inputs), ("outputs", described.outputs)):
        for tensor in tensors:
            print(f"{heading[:-1]:7} {tensor.name} {tensor.shape} {tensor.dtype}  {tensor.note}")
    print("domain  " + "; ".join(f"{name} {text}" for name, text in described.dims))
    print(f"work    {described.work}")
    for case in described.cases:
        every = f"; in {case.dtypes}" if " and " in case.dtypes else ""
        print(f"case    {case.group}: {case.label}{every}")
    for kernel in found:
        print(f"kernel  {kernel.path}  {kernel.scope}{_time(kernel)}")
        if kernel.stale:
            print(f"        {kernel.stale}")
    return 0


def explain(
    code: Annotated[str, typer.Argument(help="Reason of a verdict, or the rule of the lint or of legality behind it.")],
    json: Json = False,
) -> int:
    """Explain a code of a verdict: what it means, why it is so, and what to do about it.

    \b
    nkismith explain mismatch
    nkismith explain partition_limit
    """
    from nkismith.verify import pages

    page = pages.explain(code)
    if json:
        emit({"code": code, "text": page})
    else:
        print(page, end="")
    return 0


def report(
    run: Annotated[str, typer.Argument(help="Run: a name, its beginning, or latest.")] = "latest",
    json: Json = False,
) -> int:
    """Show the report of a run: what was tried, why each attempt failed, the best kernel, the cost.

    \b
    nkismith report
    nkismith report latest --json
    """
    from nkismith.results import report as reports
    from nkismith.results.store import RunStore, data_root

    built = reports.build(RunStore.open(data_root(), run))
    if json:
        emit(built)
    else:
        print(reports.markdown(built), end="")
    return 0


def lessons(
    kind: Annotated[str | None, typer.Option(help="Only lessons of this kind of op, such as reduction.")] = None,
    json: Json = False,
) -> int:
    """List what earlier runs taught: situation, change, effect.

    \b
    nkismith lessons
    nkismith lessons --kind reduction --json
    """
    from nkismith.agent.memory import sentence
    from nkismith.results.store import Index, data_root

    root = data_root()
    rows = Index(root).lessons() if (root / "index.db").is_file() else []
    rows = [row for row in rows if kind is None or row["kind"] == kind]
    if json:
        emit(rows)
        return 0
    for row in rows:
        print(f"{'+' if row['positive'] else '-'} [{row['kind']}, {row['op']}] {sentence(row)}")
    if not rows:
        print("no lessons yet; they are mined from the attempts of `nkismith draft`")
    return 0


def _kernel(kernel: Any) -> dict[str, Any]:
    return {
        "op": kernel.op,
        "path": kernel.path,
        "scope": kernel.scope,
        "stale": kernel.stale,
        "evidence": kernel.evidence,
    }


def _time(kernel: Any) -> str:
    measured = kernel.evidence.get("profile") or {}
    if "latency_us" not in measured:
        return ""
    return f"  {measured['latency_us']:.1f} µs {measured.get('label', '')}, floor {measured['floor_us']:.1f} µs"
