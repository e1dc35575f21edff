"""The steps of the loop. Each takes the state and the run, does one thing, and returns what it adds.

A draft's failure is a value in its attempt; a cap, a waiting hand-off or a silent model is said in
`ended`; a failure of ours raises.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from langgraph.runtime import Runtime

from nkismith.agent import diagnosis, memory
from nkismith.agent.asking import Ask, ask_all, row_of
from nkismith.agent.run import Plan, Run, to_json
from nkismith.agent.state import Attempt, State, faster, verified
from nkismith.prompts import kinds, render
from nkismith.prompts.contract import production
from nkismith.prompts.render import Prompt
from nkismith.results.store import content_hash


def draft(state: State, runtime: Runtime[Run]) -> State:
    """Ask for a first draft in every lane."""
    run = runtime.context
    prompt = first_prompt(run)
    return ask_all(run, [Ask(lane, 1, "draft", None, 0, lambda: prompt) for lane in range(run.plan.beam)])


def check(state: State, runtime: Runtime[Run]) -> State:
    """Verify the drafts of this step that have no verdict yet."""
    run = runtime.context
    checked = {}
    for attempt in (state["attempts"][lane] for lane in state["lanes"]):
        if attempt.stage or not attempt.source:
            continue
        source, plan = run.store.text(attempt.source), run.plan
        verdict = run.judge.check(
            source, run.spec, target=plan.target, sdk=plan.sdk, lnc=plan.lnc,
            progress=lambda stage, what, lane=attempt.sample: run.watcher.note(lane, f"{stage} {what}"),  # type: ignore[misc]
        )  # fmt: skip
        times = _times(verdict.profile) if verdict.accepted and verdict.profile else {}
        run.store.update_attempt(
            attempt.id, stage=str(verdict.stage), reason=str(verdict.reason or ""), accepted=int(verdict.accepted),
            verdict=to_json(verdict), **times,
        )  # fmt: skip
        checked[attempt.id] = Attempt.of(row_of(run, attempt))
        run.watcher.update()
    return {"attempts": checked}


def revise(state: State, runtime: Runtime[Run]) -> State:
    """Hand every refused draft back with its verdict."""
    run = runtime.context
    lanes = revisable([state["attempts"][attempt] for attempt in state["lanes"]], run)
    return ask_all(
        run,
        [
            Ask(old.sample, old.attempt + 1, "revise", old.id, old.round, lambda old=old: revision_prompt(run, old))  # type: ignore[misc]
            for old in lanes
        ],
    )


def profile(state: State, runtime: Runtime[Run]) -> State:
    """Time what was verified, and keep the fastest; a later one must be faster than the model's uncertainty."""
    run = runtime.context
    timed = {}
    for attempt in (state["attempts"][lane] for lane in state["lanes"]):
        if attempt.accepted and attempt.latency_us is None:
            source = run.store.text(attempt.source or "")
            measured = run.judge.profile(
                source, run.spec, production(run.spec), target=run.plan.target, lnc=run.plan.lnc
            )
            kept = {**json.loads(row_of(run, attempt)["verdict"]), "profile": json.loads(to_json(measured))}
            run.store.update_attempt(attempt.id, verdict=json.dumps(kept), **_times(measured))
            timed[attempt.id] = Attempt.of(row_of(run, attempt))
    attempts = state["attempts"] | timed
    ranked = verified({**state, "attempts": attempts})
    best, stale = state["best"], state["stale"]
    if best is None:
        best = ranked[0].id
    else:
        better = [a for a in ranked if a.round == state["round"] and faster(a, attempts[best], run.plan.gain)]
        best, stale = (better[0].id, 0) if better else (best, stale + 1)
    run.store.update_run(best=best)
    run.watcher.update()
    return {"attempts": timed, "best": best, "stale": stale}


def optimise(state: State, runtime: Runtime[Run]) -> State:
    """Ask every lane for a faster kernel, each from one of the best verified ones."""
    run, number = runtime.context, state["round"] + 1
    pool = parents(state, run.plan)
    asks = []
    for lane in range(run.plan.beam):
        parent = pool[lane % len(pool)]
        last = max((a.attempt for a in state["attempts"].values() if a.sample == lane), default=0)
        asks.append(
            Ask(lane, last + 1, "optimise", parent.id, number, lambda p=parent: optimisation_prompt(run, state, p))  # type: ignore[misc]
        )
    return {"round": number, **ask_all(run, asks)}  # type: ignore[typeddict-item]


def accept(state: State, runtime: Runtime[Run]) -> State:
    """Store the best kernel with its evidence, where the registry finds it."""
    run = runtime.context
    if state["best"] is None or not run.plan.accept:
        return {}
    best = state["attempts"][state["best"]]
    root = Path(run.plan.kernels_root) if run.plan.kernels_root else None
    path = run.judge.accept(run.store.text(best.source or ""), run.spec, evidence(run, best), root)
    return {"accepted_path": str(path)}


def give_up(state: State, runtime: Runtime[Run]) -> State:
    """No draft was verified: say why the run ended."""
    if state["ended"]:
        return {}
    return {"ended": "tries", "message": f"no draft was verified in {runtime.context.plan.tries} tries a lane"}


# -- where to go ------------------------------------------------------------------------------------------


def revisable(lanes: Sequence[Attempt], run: Run) -> list[Attempt]:
    """The refused attempts whose lane has tries left; an optimisation may fail half as often as a first draft."""
    found = []
    for attempt in lanes:
        limit = run.plan.tries if attempt.round == 0 else max(1, run.plan.tries // 2)
        rows = run.store.attempts()
        used = sum(
            row["sample"] == attempt.sample and row["round"] == attempt.round and bool(row["reply"]) for row in rows
        )
        if not attempt.accepted and used < limit:
            found.append(attempt)
    return found


def worth_optimising(state: State, plan: Plan) -> bool:
    """Are rounds left, is there still something to gain, and did the last rounds gain anything?"""
    if state["ended"] or state["best"] is None:
        return False
    of_floor = state["attempts"][state["best"]].of_floor
    near = of_floor is not None and 100 * of_floor >= plan.stop_at
    return state["round"] < plan.rounds and state["stale"] < plan.patience and not near


def parents(state: State, plan: Plan) -> list[Attempt]:
    """The verified attempts that rounds start from: first drafts, and whatever truly beat its own parent."""
    attempts = state["attempts"]

    def base(attempt: Attempt) -> Attempt | None:
        above = attempts.get(attempt.parent) if attempt.parent is not None else None
        return above if above is None or above.accepted else base(above)

    pool = [a for a in verified(state) if (above := base(a)) is None or faster(a, above, plan.gain)]
    return pool[: plan.beam]


# -- prompts ----------------------------------------------------------------------------------------------


def first_prompt(run: Run) -> Prompt:
    plan = run.plan
    lessons = memory.shown(run.index, kinds.kind(run.spec), None, skip=run.store.id) if plan.use_lessons else []
    return render.first(run.spec, target=plan.target, sdk=plan.sdk, lnc=plan.lnc, lessons=lessons)


def revision_prompt(run: Run, old: Attempt) -> Prompt:
    row = row_of(run, old)
    source = run.store.text(row["source"]) if row["source"] else ""
    return render.revision(
        Prompt.from_json(run.store.text(row["prompt"])),
        failure=diagnosis.failure(row["verdict"]),
        source=source,
        tried=diagnosis.tried(run.store.attempts(), sample=old.sample, round=old.round),
    )


def optimisation_prompt(run: Run, state: State, parent: Attempt) -> Prompt:
    row = row_of(run, parent)
    source = run.store.text(row["source"])
    measure = diagnosis.measure(row["verdict"], source, str(production(run.spec)))
    lessons = (
        memory.shown(run.index, kinds.kind(run.spec), measure.busiest, skip=run.store.id)
        if run.plan.use_lessons
        else []
    )
    return render.optimisation(
        Prompt.from_json(run.store.text(row["prompt"])),
        source=source,
        measure=measure,
        tried=diagnosis.tried(run.store.attempts(), optimisations=True),
        gain=run.plan.gain,
        lessons=lessons,
    )


def _times(profile: Any) -> dict[str, float]:
    return {name: float(getattr(profile, name)) for name in ("latency_us", "low_us", "high_us", "floor_us")}


def evidence(run: Run, attempt: Attempt) -> dict[str, Any]:
    """What stands behind an accepted kernel: who wrote it, how it was verified, what it is expected to cost."""
    row = row_of(run, attempt)
    verdict = json.loads(row["verdict"])
    spent = run.store.spent()
    return {
        "run": run.store.id,
        "provider": run.plan.provider,
        "model": run.model.model,
        "attempts": spent.replies,
        "usd": round(spent.usd, 4),
        "prompt": content_hash(Prompt.from_json(run.store.text(row["prompt"])).text),
        "verdict": verdict,
        "allow_weak_isolation": run.plan.allow_weak_isolation,
    }
