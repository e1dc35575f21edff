"""What the graph carries: which attempts there are and how they came out. Texts stay in the store.

An attempt is a draft with its verdict. It lies in a lane (`sample`): with `--beam 3` three lanes are
drafted side by side, and each goes on from its own drafts until the optimisation rounds, where every
lane continues from one of the best verified attempts.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict

from nkismith.results.store import Row

Kind = Literal["draft", "revise", "optimise"]
Ended = Literal[
    "done", "tries", "budget", "time", "attempts", "waiting", "unavailable", "provider", "interrupted", "error"
]
"""Why a run stopped. done: as planned; tries: every lane used up its revisions; unavailable and provider: the
model could not answer (never counted as a wrong kernel); the rest are caps, hand-off, Ctrl-C and our own failures."""


@dataclass(frozen=True)
class Attempt:
    """One attempt in hashes and small numbers. Times are modelled microseconds at the production shape."""

    id: int
    sample: int
    attempt: int
    kind: Kind
    parent: int | None
    round: int
    source: str | None
    stage: str
    reason: str
    accepted: bool
    latency_us: float | None = None
    low_us: float | None = None
    high_us: float | None = None
    floor_us: float | None = None

    @classmethod
    def of(cls, row: Row) -> Attempt:
        """From the store's row. An empty stage means that no verdict was given yet."""
        return cls(
            id=row["id"],
            sample=row["sample"],
            attempt=row["attempt"],
            kind=row["kind"],
            parent=row["parent"],
            round=row["round"],
            source=row["source"] or None,
            stage=row["stage"] or "",
            reason=row["reason"] or "",
            accepted=bool(row["accepted"]),
            latency_us=row["latency_us"],
            low_us=row["low_us"],
            high_us=row["high_us"],
            floor_us=row["floor_us"],
        )

    @property
    def of_floor(self) -> float | None:
        """Floor over latency: 1.0 is as fast as physics allows."""
        if not self.latency_us or not self.floor_us:
            return None
        return self.floor_us / self.latency_us


class State(TypedDict, total=False):
    """`lanes` are the attempts of the current step, one a lane; `best` the fastest verified attempt."""

    attempts: Annotated[dict[int, Attempt], operator.or_]
    lanes: tuple[int, ...]
    best: int | None
    round: int
    stale: int
    ended: Ended | None
    message: str
    accepted_path: str


def verified(state: State) -> list[Attempt]:
    """Accepted attempts, the fastest first; those without a time last."""
    found = [attempt for attempt in state["attempts"].values() if attempt.accepted]
    return sorted(found, key=lambda attempt: (attempt.latency_us is None, attempt.latency_us or 0.0, attempt.id))


def faster(child: Attempt, parent: Attempt, gain: float) -> bool:
    """Is the child faster by at least `gain` (0.02 is 2 %), and by more than the model's uncertainty?

    The ends of a modelled interval are the machine at its kindest and its harshest, and both kernels
    would run on the same machine. So the gain must hold at both ends, not only in the middle.
    """
    pairs: list[tuple[Any, Any]] = [
        (child.latency_us, parent.latency_us),
        (child.low_us, parent.low_us),
        (child.high_us, parent.high_us),
    ]
    return all(new is not None and old is not None and new <= (1 - gain) * old for new, old in pairs)
