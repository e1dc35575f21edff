"""From stored verdicts and profiles to what the next prompt says about them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nkismith.prompts.render import Failure, Measure, Tried
from nkismith.results.store import Row

HOT_LINES = 12
"""How many of the slowest source lines an optimisation prompt shows."""


def failure(verdict: str) -> Failure:
    """The failure part of a stored verdict, of a draft or of a reply that held none."""
    kept = json.loads(verdict)
    return Failure(
        stage=kept["stage"],
        reason=kept["reason"] or "",
        message=kept["message"],
        rule=kept.get("rule") or "",
        fix=kept.get("fix") or "",
        line=kept.get("line"),
        case=kept.get("case"),
    )


def tried(
    rows: Sequence[Row], *, sample: int | None = None, round: int | None = None, optimisations: bool = False
) -> list[Tried]:
    """Earlier attempts in one line each: those of a lane and round, or every optimisation of the run."""
    found = []
    for row in rows:
        if not row["verdict"] or (optimisations and not row["round"]):
            continue
        if sample is not None and (row["sample"], row["round"]) != (sample, round):
            continue
        found.append(Tried(row["attempt"], row["change"] or "", outcome(row)))
    return found


def outcome(row: Row) -> str:
    """What came out of an attempt, in one line."""
    if row["accepted"]:
        return "verified" + (f", {row['latency_us']:.1f} µs" if row["latency_us"] else "")
    kept = failure(row["verdict"])
    message = " ".join(kept.message.split())
    return f"refused at {kept.stage}, {kept.rule or kept.reason}: {message[:240]}{'…' if len(message) > 240 else ''}"


def measure(verdict: str, source: str, case: str) -> Measure:
    """The profile in a stored verdict, with the text of its slowest lines."""
    profile: dict[str, Any] = json.loads(verdict)["profile"]
    lines = source.splitlines()
    hot = sorted(_by_line(profile["by_line"]).items(), key=lambda item: -item[1])[:HOT_LINES]
    return Measure(
        label=profile["label"],
        case=case,
        **{
            name: float(profile[name])
            for name in (
                "latency_us", "low_us", "high_us", "floor_us", "hbm_read_bytes", "hbm_write_bytes", "sbuf_peak_bytes",
                "psum_peak_bytes", "spill_bytes",
            )
        },
        bound=str(profile["bound"]),
        engines={name: float(_busy(value)) for name, value in profile["engines"].items()},
        by_line=tuple((line, lines[line - 1].strip() if 0 < line <= len(lines) else "", us) for line, us in hot),
    )  # fmt: skip


def _by_line(listed: Any) -> dict[int, float]:
    pairs = listed.items() if isinstance(listed, dict) else ((row["line"], row) for row in listed)
    return {int(line): float(_busy(value)) for line, value in pairs}


def _busy(value: Any) -> float:
    """Busy microseconds of an engine or a line, whether the profile gives a number or a record."""
    return float(value["busy_us"]) if isinstance(value, dict) else float(value)
