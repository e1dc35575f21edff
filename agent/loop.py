"""Put a run together: its store, its provider, its judge, someone to watch; then walk the graph."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from nkismith.agent import memory
from nkismith.agent.judge import Verifier
from nkismith.agent.ledger import Ledger
from nkismith.agent.live import View
from nkismith.agent.providers import NAMES, ChatModel, ProviderError
from nkismith.agent.run import Judge, Outcome, Plan, Run, execute, start
from nkismith.kernels import spec as specs
from nkismith.kernels.spec import OpSpec
from nkismith.prompts import kinds, render
from nkismith.prompts.render import Prompt
from nkismith.results.store import Index, RunStore, UnknownRun, data_root


def begin(plan: Plan, *, root: Path | None = None, judge: Judge | None = None) -> Run:
    """A new run; with `step`, the waiting run of the same plan if there is one."""
    spec = specs.load(plan.spec)
    if plan.target not in spec.targets:
        raise ProviderError(f"The spec of {spec.op} is not for {plan.target}; its targets: {', '.join(spec.targets)}.")
    index = Index(root or data_root())
    if plan.step:
        for row in index.runs(op=plan.op, status="waiting"):
            store = RunStore.open(index.root, row["id"])
            if Plan.from_row(store.run["config"]) == plan:
                return _run(plan, spec, store, index, judge)
            store.close()
    chosen = model(plan, Path())  # a missing key is said before anything is written
    if not plan.model and not plan.step:  # a waiting step is found again by its plan, as it was asked for
        plan = replace(plan, model=chosen.model)
    return _run(plan, spec, start(plan, index), index, judge)


def resume(
    run: str,
    *,
    step: bool = False,
    caps: Mapping[str, Any] | None = None,
    root: Path | None = None,
    judge: Judge | None = None,
) -> Run:
    """An earlier run, to be continued with its own plan; `caps` are those that were raised since."""
    index = Index(root or data_root())
    store = RunStore.open(index.root, run)
    kept = Plan.from_row(store.run["config"])
    plan = replace(kept, step=step, caps=replace(kept.caps, **(caps or {})))
    if plan.caps != kept.caps:
        store.update_run(config=json.dumps(plan.to_row()))
    return _run(plan, specs.load(plan.spec), store, index, judge)


def _run(plan: Plan, spec: OpSpec, store: RunStore, index: Index, judge: Judge | None) -> Run:
    chosen = model(plan, store.folder)
    return Run(plan, spec, store, index, chosen, Ledger(store, chosen, plan.caps), judge or Verifier())


def model(plan: Plan, folder: Path) -> ChatModel:
    """The provider of a plan. Raises ProviderError or PriceError before anything is asked."""
    match plan.provider:
        case "anthropic" | "bedrock" as name:
            from nkismith.agent.providers.anthropic import AnthropicModel

            return AnthropicModel(plan.model or None, provider=name, effort=plan.effort, thinking=plan.thinking)
        case "handoff":
            from nkismith.agent.providers.handoff import HandoffModel

            return HandoffModel(folder / "handoff", model=plan.model or "handoff", step=plan.step)
        case "recording":
            from nkismith.agent.providers import recording

            where = Path(plan.recording) if plan.recording else None
            return recording.RecordingModel(recording.load(plan.op, where))
    raise ProviderError(f"Unknown provider {plan.provider!r}. Providers: {', '.join(NAMES)}.")


def watch(run: Run, console: Console) -> Outcome:
    """Walk the graph with a person watching; Ctrl-C ends with a report."""
    from nkismith.agent import graph  # LangGraph takes a second to import, and prompts need none of it

    with View(run.store, run.plan, console) as view:
        run.watcher = view
        return execute(run, graph.invoke)


def first_prompt(spec: OpSpec, *, target: str, sdk: str, lnc: int, lessons: bool) -> Prompt:
    """What a model would get for a first draft today."""
    shown: list[str] = []
    root = data_root()
    if lessons and (root / "index.db").is_file():
        shown = memory.shown(Index(root), kinds.kind(spec), None)
    return render.first(spec, target=target, sdk=sdk, lnc=lnc, lessons=shown)


def stored_prompt(op: str, run: str | None, sample: int, attempt: int) -> Prompt:
    """The prompt of an attempt of a run (default: the latest run of `op`), as it was sent."""
    root = data_root()
    if run is None:
        runs = Index(root).runs(op=op)
        if not runs:
            raise UnknownRun(
                f"No run of {op} yet in {root}: only the first prompt is known before a draft was judged. "
                f"Run `nkismith draft {op}` first, or leave --attempt out."
            )
        run = runs[0]["id"]
    store = RunStore.open(root, run)
    row = store.attempt(sample, attempt)
    if row is None:
        have = ", ".join(f"{known['sample']}.{known['attempt']}" for known in store.attempts()) or "none"
        raise UnknownRun(f"Run {store.id} has no attempt {attempt} in lane {sample}. It has (lane.attempt): {have}.")
    return Prompt.from_json(store.text(row["prompt"]))
