"""From stored verdicts and profiles to what the next prompt says about them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from nkismith.prompts.render import Failure, HotLine, Measure, Tried
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
    """The profile in a stored verdict, with the text of the lines that take the time."""
    profile: dict[str, Any] = json.loads(verdict)["profile"]
    lines = source.splitlines()
    active = {name: use["busy_us"] for name, use in profile["engines"].items() if use["instruction_count"]}
    active["dma"] = profile["dma"]["active_time_us"]
    return Measure(
        label=profile["label"],
        case=case,
        latency_us=profile["latency_us"],
        low_us=profile["low_us"],
        high_us=profile["high_us"],
        floor_us=profile["floor_us"],
        bound=profile["bound"],
        busiest=bottleneck(profile),
        active=active,
        diagnosis=tuple(profile["diagnosis"]),
        transfers=profile["dma"]["transfer_count"],
        contiguous_bytes=profile["dma"]["mean_contiguous_bytes"],
        hbm_read_bytes=profile["hbm_read_bytes"],
        hbm_write_bytes=profile["hbm_write_bytes"],
        sbuf_peak_bytes=profile["sbuf_peak_bytes"],
        psum_peak_bytes=profile["psum_peak_bytes"],
        spill_bytes=profile["spill_bytes"],
        instructions=profile["instruction_count"],
        hot=tuple(
            HotLine(use["line"], _text(lines, use["line"]), use["opcode"], use["busy_us"])
            for use in profile["by_line"][:HOT_LINES]
        ),
    )


def bottleneck(profile: dict[str, Any]) -> str:
    """The engine, or dma, that is active longest."""
    active = {name: use["busy_us"] for name, use in profile["engines"].items()}
    active["dma"] = profile["dma"]["active_time_us"]
    return max(active, key=lambda name: active[name])


def _text(lines: Sequence[str], number: int) -> str:
    return lines[number - 1].strip() if 0 < number <= len(lines) else ""
