"""What mutation testing found: one outcome a mutant, and the score over all of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from nkismith.verify.mutation.mutant import Kind

REQUIRED = 0.98  # of the mutants that no rule excludes
PRODUCTION = "production shapes"
MINIMUM = 60  # mutants, of a kernel that has as many


@dataclass(frozen=True, slots=True)
class Outcome:
    """One mutant: killed by a reason code, excluded by a rule, or neither: it survived.

    at: the trial that killed it, or `record`; of a survivor `production shapes` if no other trial's trace
    was another and there was no time for these.
    """

    kind: Kind
    line: int
    what: str
    killed_by: str = ""
    at: str = ""
    excluded_by: str = ""
    seconds: float = 0.0

    @property
    def survived(self) -> bool:
        return not self.killed_by and not self.excluded_by

    def __str__(self) -> str:
        where = f"; differs only at {self.at}" if self.survived and self.at else ""
        return f"line {self.line}: {self.what} ({self.kind}{where})"


@dataclass(frozen=True, slots=True)
class Score:
    """The outcomes of a kernel's mutants.

    subject: hash of kernel, spec, reference, instructions and machine that the score is for; instructions are the names
    of those. possible: how many
    mutants there were to choose from, before those that change nothing. untried: chosen, but not started within the
    time. trials: how many a mutant had to survive. seed: of the trials.
    """

    op: str
    subject: str
    instructions: tuple[str, ...]
    seed: int
    outcomes: tuple[Outcome, ...]
    possible: int
    untried: int
    trials: int
    seconds: float

    @property
    def killed(self) -> int:
        return sum(bool(o.killed_by) for o in self.outcomes)

    @property
    def excluded(self) -> int:
        return sum(bool(o.excluded_by) for o in self.outcomes)

    @property
    def survivors(self) -> tuple[Outcome, ...]:
        return tuple(o for o in self.outcomes if o.survived)

    @property
    def rate(self) -> float:
        """Killed mutants over those that no rule excludes; 0 if there are none."""
        judged = len(self.outcomes) - self.excluded
        return self.killed / judged if judged else 0.0

    @property
    def met(self) -> bool:
        """Were enough killed, of as many as are asked for (or of all, where a kernel is too small for so many)?"""
        return self.rate >= REQUIRED and (len(self.outcomes) >= MINIMUM or not self.untried)

    def by_kind(self) -> dict[Kind, tuple[int, int, int, int]]:
        """Made, killed, excluded and surviving mutants of each kind that was made."""
        table = {}
        for kind in Kind:
            mine = [o for o in self.outcomes if o.kind is kind]
            if mine:
                killed, excluded = sum(bool(o.killed_by) for o in mine), sum(bool(o.excluded_by) for o in mine)
                table[kind] = (len(mine), killed, excluded, len(mine) - killed - excluded)
        return table

    def to_dict(self) -> dict[str, Any]:
        """Plain data for evidence and --json; the killed mutants as counts."""
        reasons = [o.killed_by for o in self.outcomes if o.killed_by]
        return {
            "op": self.op,
            "subject": self.subject,
            "instructions": list(self.instructions),
            "seed": self.seed,
            "mutants": len(self.outcomes),
            "killed": self.killed,
            "excluded": self.excluded,
            "survived": len(self.survivors),
            "rate": round(self.rate, 4),
            "met": self.met,
            "possible": self.possible,
            "untried": self.untried,
            "trials": self.trials,
            "seconds": round(self.seconds, 1),
            "kinds": {
                kind.name.lower(): dict(zip(("made", "killed", "excluded", "survived"), counts, strict=True))
                for kind, counts in self.by_kind().items()
            },
            "killed_by": {reason: reasons.count(reason) for reason in sorted(set(reasons))},
            "survivors": [{**_told(o), "at": o.at} for o in self.survivors],
            "exclusions": [{**_told(o), "rule": o.excluded_by} for o in self.outcomes if o.excluded_by],
        }


def _told(outcome: Outcome) -> dict[str, Any]:
    return {name: value for name, value in asdict(outcome).items() if name in ("kind", "line", "what")}
