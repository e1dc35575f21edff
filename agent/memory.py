"""Lessons: what earlier attempts teach later ones, kept as data and never as prose of ours.

A lesson is mined from two attempts of one lane: a refused draft and the next one that got further, or
a verified kernel and the attempt to make it faster, whether that succeeded or not. What was changed is
the model's own sentence; what it was worth is the judge's.
"""

from __future__ import annotations

import json

from nkismith.agent.diagnosis import bottleneck
from nkismith.kernels.spec import OpSpec
from nkismith.prompts import kinds
from nkismith.prompts.render import LESSONS
from nkismith.results.store import Index, Row, RunStore, content_hash

_STAGES = ("reply", "parse", "lint", "record", "legality", "execute", "compare", "generalise", "profile")


def mine(store: RunStore, spec: OpSpec) -> list[Row]:
    """The lessons of a run, as rows of the index."""
    rows = [row for row in store.attempts() if row["verdict"] and row["source"]]
    by_id = {row["id"]: row for row in rows}
    lessons = []
    for row in rows:
        above = by_id.get(row["parent"])
        if above is None or not row["change"]:
            continue
        if row["kind"] == "revise" and not above["accepted"]:
            lesson = _repair(above, row)
        elif row["kind"] == "optimise" and above["accepted"]:
            lesson = _gain(above, row)
        else:
            lesson = None
        if lesson:
            kept = {"op": spec.op, "kind": kinds.kind(spec), "change": row["change"], "run": store.id, **lesson}
            name = content_hash(json.dumps([kept["kind"], kept["situation"], kept["change"]]))
            lessons.append({"id": name, "created_at": row["created_at"], **kept})
    return lessons


def shown(index: Index, kind: str, bottleneck: str | None, *, skip: str = "", limit: int = LESSONS) -> list[str]:
    """The lessons a prompt shows: same kind of op first, same bottleneck first, then by weight.

    `skip` leaves out a run's own lessons: it sees its attempts anyway, and a resumed run must see the same prompt.
    """

    def rank(row: Row) -> tuple[bool, bool, float]:
        return (row["kind"] != kind, bool(bottleneck) and row["bottleneck"] != bottleneck, -row["weight"])

    rows = [row for row in index.lessons() if row["run"] != skip]
    useful = [row for row in rows if row["kind"] == kind or (bottleneck and row["bottleneck"] == bottleneck)]
    return [sentence(row) for row in sorted(useful, key=rank)[:limit]]


def sentence(row: Row) -> str:
    """A lesson in one line."""
    return f"{row['situation']} → {row['change'].rstrip('.')} → {row['effect']}"


def _repair(refused: Row, next_one: Row) -> Row | None:
    before, after = _rank(refused), _rank(next_one)
    if after <= before:
        return None
    kept = json.loads(refused["verdict"])
    # Of several sentences the last one tells the pattern; the first quotes that day's numbers.
    message = " ".join(kept["message"].split()).rstrip(".").split(". ")[-1][:160]
    return {
        "situation": f"{kept.get('rule') or refused['reason']} at {refused['stage']}: {message}",
        "effect": "verified" if next_one["accepted"] else f"got as far as {next_one['stage']}",
        "reason": refused["reason"],
        "bottleneck": "",
        "positive": 1,
        "weight": 1.0 + 0.1 * (after - before),
    }


def _gain(parent: Row, child: Row) -> Row | None:
    bound = bottleneck(json.loads(parent["verdict"])["profile"])
    situation = f"{bound} busiest, {parent['latency_us']:.1f} µs modelled"
    if not child["accepted"]:
        effect, positive, weight = f"refused: {child['reason']}", 0, 0.5
    elif child["latency_us"] and parent["latency_us"]:
        percent = 100 * (1 - child["latency_us"] / parent["latency_us"])
        effect = f"{child['latency_us']:.1f} µs modelled ({abs(percent):.0f} % {'less' if percent >= 0 else 'more'})"
        positive, weight = int(percent >= 2), abs(percent) / 10
    else:
        return None
    return {
        "situation": situation, "effect": effect, "reason": child["reason"] or "", "bottleneck": bound,
        "positive": positive, "weight": weight,
    }  # fmt: skip


def _rank(row: Row) -> int:
    if row["accepted"]:
        return len(_STAGES)
    return _STAGES.index(row["stage"]) if row["stage"] in _STAGES else -1
