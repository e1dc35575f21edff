"""The report of a run: report.md for a person, report.json for a program, written whenever a run ends.

Every number carries its unit in its name or column; times are modelled unless a column says otherwise.
"""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from nkismith.results.store import Row, RunStore, write_text

_WHY = {
    "done": "finished as planned",
    "tries": "every lane used up its tries",
    "budget": "the dollar or token cap",
    "time": "the wall-time cap",
    "attempts": "the cap on attempts",
    "waiting": "waiting for a hand-off reply",
    "unavailable": "the model could not be reached (no draft is counted as wrong for that)",
    "provider": "the provider refused to answer (no draft is counted as wrong for that)",
    "interrupted": "interrupted by the user",
    "error": "a failure of nkismith itself",
}


def build(store: RunStore) -> dict[str, Any]:
    """Everything a reader needs to judge a run, as plain data."""
    run = store.run
    config = run["config"]
    spent = store.spent()
    attempts = [_attempt(row) for row in store.attempts() if row["reply"]]
    calls = [call for call in store.calls() if call["state"] != "waiting"]  # a look for a reply that is not there yet
    best = next((attempt for attempt in attempts if attempt["id"] == run["best"]), None)
    return {
        "run": store.id,
        "op": run["op"],
        "target": config.get("target"),
        "sdk": config.get("sdk"),
        "lnc": config.get("lnc"),
        "provider": config.get("provider"),
        "model": config.get("model"),
        "created_at": datetime.fromtimestamp(run["created_at"], UTC).isoformat(timespec="seconds"),
        "elapsed_s": round(store.elapsed_s, 1),
        "ended": run["ended"],
        "why": _WHY.get(run["ended"], run["ended"]),
        "message": run["message"],
        "accepted": bool(run["accepted"]),
        "kernel": run["kernel"],
        "best": best,
        "attempts": attempts,
        "cost": {
            "usd": round(spent.usd, 6),
            "cap_usd": config.get("caps", {}).get("usd"),
            "tokens": spent.tokens,
            "calls": len(calls),
            "replies": spent.replies,
            "failed_calls": sum(call["state"] == "failed" for call in calls),
            "lost_calls": sum(call["state"] == "lost" for call in calls),
        },
    }


def _attempt(row: Row) -> dict[str, Any]:
    verdict = json.loads(row["verdict"]) if row["verdict"] else {}
    kept = ("id", "sample", "attempt", "kind", "parent", "round", "stage", "reason", "change", "prompt_tokens",
            "latency_us", "low_us", "high_us", "floor_us", "source", "prompt", "reply")  # fmt: skip
    of_floor = row["floor_us"] / row["latency_us"] if row["latency_us"] and row["floor_us"] else None
    return {name: row[name] for name in kept} | {
        "accepted": bool(row["accepted"]),
        "of_floor_percent": round(100 * of_floor, 1) if of_floor is not None else None,
        "rule": verdict.get("rule", ""),
        "line": verdict.get("line"),
        "message": verdict.get("message", ""),
        "fix": verdict.get("fix", ""),
        "case": verdict.get("case"),
        "max_ratio": verdict.get("max_ratio") if row["accepted"] else None,  # else it may be infinite, and says nothing
    }


def markdown(report: dict[str, Any]) -> str:
    """The report as Markdown."""
    cost, best = report["cost"], report["best"]
    outcome = "accepted" if report["accepted"] else "verified, not stored" if best else "no kernel"
    lines = [
        f"# {report['op']}: {outcome}",
        "",
        f"Run `{report['run']}`, {report['created_at']}, target {report['target']}, LNC {report['lnc']}, "
        f"SDK {report['sdk']}. Provider {report['provider']}, model {report['model'] or 'not named'}.",
        f"Ended: {report['ended'] or 'still running'}, {report['why'] or 'no end was recorded'}."
        + (f" {report['message']}" if report["message"] else ""),
        "",
    ]
    if best and best["latency_us"]:
        lines += [
            f"Best kernel: attempt {best['id']}, {best['latency_us']:.1f} µs modelled "
            f"({best['low_us']:.1f} to {best['high_us']:.1f}), floor {best['floor_us']:.1f} µs, "
            f"{best['of_floor_percent']} % of the floor. File: {report['kernel']}",
            "",
        ]
    cap = f" of ${cost['cap_usd']:.2f}" if cost["cap_usd"] is not None else ""
    lines += [
        f"Cost: ${cost['usd']:.4f}{cap}, {cost['tokens']:,} tokens, {cost['replies']} replies in {cost['calls']} calls "
        f"({cost['failed_calls']} failed, {cost['lost_calls']} lost), {report['elapsed_s']:.0f} s.",
        "",
        "| # | lane.attempt | kind | from | outcome | reason | line | modelled µs | % of floor | prompt tokens |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in report["attempts"]:
        outcome = "verified" if row["accepted"] else f"refused at {row['stage']}" if row["stage"] else "not judged"
        latency = f"{row['latency_us']:.1f}" if row["latency_us"] else ""
        why = row["rule"] or row["reason"] or ""
        lines.append(
            f"| {row['id']} | {row['sample']}.{row['attempt']} | {row['kind']} | {row['parent'] or ''} | {outcome} "
            f"| {why} | {row['line'] or ''} | {latency} | {row['of_floor_percent'] or ''} "
            f"| {row['prompt_tokens']} |"
        )
    failed = [row for row in report["attempts"] if row["stage"] and not row["accepted"]]
    if failed:
        lines += ["", "## Why attempts failed", ""]
    for row in failed:
        where = f", line {row['line']}" if row["line"] else ""
        case = f" Smallest failing case: {row['case']}." if row["case"] else ""
        lines += [
            f"**Attempt {row['id']}** ({row['stage']}, `{row['rule'] or row['reason']}`{where}).{case}",
            "",
            _quoted(row["message"]),
        ]
        if row["fix"]:
            lines += ["", f"Fix: {row['fix']}"]
        lines.append("")
    changed = [row for row in report["attempts"] if row["change"]]
    if changed:
        lines += ["", "## What was changed", ""]
        lines += [f"- Attempt {row['id']}: {row['change']}" for row in changed]
    return "\n".join(lines).rstrip() + "\n"


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}" if line else ">" for line in text.splitlines())


def write(store: RunStore) -> Path:
    """Write report.json and report.md into the run's folder; returns the path of report.md."""
    report = build(store)
    write_text(store.folder / "report.json", json.dumps(report, indent=1) + "\n")
    return write_text(store.folder / "report.md", markdown(report))
