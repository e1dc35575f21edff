"""What stands behind an accepted kernel, and whether it still does.

`evidence` turns a verdict into what `accepted.json` keeps; `changes` says what has moved under it since; `recheck`
derives it again. The registry adds the hashes of kernel, spec and reference, and refuses a kernel when one of them
changed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from nkismith.kernels import registry
from nkismith.kernels.registry import AcceptedKernel
from nkismith.kernels.spec import OpSpec
from nkismith.verify import meaning
from nkismith.verify.accepted import changed_meanings
from nkismith.verify.judge import check
from nkismith.verify.mutation import Score, mutate
from nkismith.verify.recording import Request
from nkismith.verify.simulator.instructions import TABLE

Progress = Callable[[str], None]


class Status(StrEnum):
    """What `recheck` says of a stored verdict."""

    FRESH = "fresh"
    PROFILE_STALE = "profile stale"  # and refreshed
    STALE = "stale"  # something changed since, so the verdict is for another kernel; the detail names it
    WRONG = "wrong"  # it no longer passes verification


@dataclass(frozen=True, slots=True)
class Rechecked:
    """One stored verdict derived again. mutation: what is known of its score, in words."""

    op: str
    path: Path
    scope: str
    status: Status
    detail: str
    mutation: str

    @property
    def ok(self) -> bool:
        return self.status in (Status.FRESH, Status.PROFILE_STALE)


def evidence(
    verdict: Mapping[str, Any], *, provenance: Mapping[str, Any], mutation: Score | None = None
) -> dict[str, Any]:
    """The evidence of an accepted verdict, for `registry.accept`.

    verdict: as `Verdict.to_dict()` gives it. provenance: who wrote the kernel, in which run, at what cost.
    Raises RegistryError for a verdict that refuses the kernel, or that looked at chosen cases only.
    """
    if not verdict["accepted"] or not verdict.get("complete", True):
        said = "judged on chosen cases only" if verdict["accepted"] else f"refused at {verdict['stage']}"
        raise registry.RegistryError(f"{verdict['op']}: this kernel was {said}: verify all of it before it is stored")
    names = verdict["instructions"]
    meanings = meaning.instructions(names)
    return {
        "target": verdict["target"],
        "lnc": verdict["lnc"],
        "sdk": verdict["sdk"],
        "isolation": verdict["isolation"],
        "strong_isolation": verdict["strong_isolation"],
        "instructions": meaning.combined(meanings),
        "meanings": meanings,
        "timing": meaning.timing(names),
        "profile": verdict["profile"],
        "profiles": verdict["profiles"],
        "max_ratio": verdict["max_ratio"],
        "cases": [_case(case) for case in verdict["cases"]],
        "warnings": list(verdict["warnings"]),
        "mutation": mutation and mutation.to_dict(),
        "provenance": dict(provenance),
    }


def _case(case: Mapping[str, Any]) -> dict[str, Any]:
    """One executed case; its seed is told now that the verdict is out. Errors: largest, and over what is allowed."""
    kept = {name: str(case[name]) for name in ("case", "family", "stage")}
    errors = {c["output"]: {"largest": c["worst_abs"], "of_allowed": c["ratio"]} for c in case["comparisons"]}
    return {**kept, "seed": case["seed"], "errors": errors}


def changes(kernel: AcceptedKernel) -> list[str]:
    """What has changed under a verdict since it was reached; empty if it still stands."""
    if kernel.stale:
        return [kernel.stale]
    stored = kernel.evidence.get("meanings")
    if stored is None:
        return [
            f"{kernel.path.parent / 'accepted.json'} does not say what its instructions mean; accept the kernel again"
        ]
    moved = changed_meanings(kernel)
    return [f"the meaning of {', '.join(moved)} changed since"] if moved else []


def recheck(
    kernel: AcceptedKernel, spec: OpSpec, *, mutants: bool = False, progress: Progress | None = None
) -> Rechecked:
    """Verify a stored kernel again with fresh inputs, and say whether its evidence stands.

    A profile that a change of the timing model made stale is refreshed in place. mutants: make and judge mutants again
    and store the score. Raises SpecError or sandbox.SandboxError for faults of ours.
    """
    tell = progress or (lambda text: None)
    moved = changes(kernel)
    stored = kernel.evidence
    machine = {name: stored[name] for name in ("target", "sdk", "lnc")}
    verdict = check(kernel.source, spec, **machine, progress=lambda stage, what: tell(f"{stage} {what}"))

    def found(status: Status, detail: str, mutation: str = "") -> Rechecked:
        return Rechecked(spec.op, kernel.path, kernel.scope, status, detail, mutation)

    if not verdict.accepted:
        where = f"line {verdict.line}: " if verdict.line else ""
        detail = f"refused at {verdict.stage} [{verdict.rule or verdict.reason}] {where}{verdict.message}"
        return found(Status.WRONG, "; ".join([*moved, detail]))
    if moved:
        return found(Status.STALE, "; ".join(moved))
    fresh = json.loads(json.dumps(evidence(verdict.to_dict(), provenance={})))  # as it would be stored
    status, detail = Status.FRESH, f"verified in {len(verdict.cases)} cases"
    if any(fresh[part] != stored[part] for part in ("timing", "profiles")):
        registry.amend(kernel, {part: fresh[part] for part in ("timing", "profile", "profiles")})
        status, detail = Status.PROFILE_STALE, f"{detail}; {_times(stored['profile'], fresh['profile'])}"
    if mutants:
        score = mutate(kernel.source, spec, **machine, progress=lambda done, of: tell(f"mutant {done} of {of}"))
        registry.amend(kernel, {"mutation": score.to_dict()})
        return found(status, detail, f"{100 * score.rate:.1f} % of {len(score.outcomes)} mutants, made again")
    return found(status, detail, _score(stored["mutation"], Request(kernel.source, spec.op, **machine), spec))


def _times(old: Mapping[str, Any] | None, new: Mapping[str, Any] | None) -> str:
    was, now = (f"{p['latency_us']:.1f}" if p else "none" for p in (old, new))
    return f"profile refreshed, {was} to {now} µs modelled" if was != now else "profile refreshed"


def _score(stored: Mapping[str, Any] | None, request: Request, spec: OpSpec) -> str:
    """A stored score counts for exactly the kernel, spec and instructions it was made with."""
    if stored is None:
        return "no mutants made: --mutate makes them"
    names = [name for name in stored["instructions"] if name in TABLE]
    if stored["subject"] != meaning.subject(request, spec, names):
        return "the score is for another kernel, spec or simulator: --mutate makes it again"
    return f"{100 * stored['rate']:.1f} % of {stored['mutants']} mutants, stored"
