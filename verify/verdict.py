"""The verdict on one draft: what a person, a model and the registry read."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from nkismith.verify.compare import Comparison
from nkismith.verify.reasons import Reason

if TYPE_CHECKING:
    from nkismith.verify.timing import Profile


class Stage(StrEnum):
    """The stages of verification, in order; a verdict names the one that failed, or the last."""

    PARSE = "parse"
    LINT = "lint"
    RECORD = "record"
    LEGALITY = "legality"
    EXECUTE = "execute"
    COMPARE = "compare"
    GENERALISE = "generalise"
    PROFILE = "profile"


@dataclass(frozen=True, slots=True)
class CaseResult:
    """One case with one family of inputs: what was run and how far the outputs were from the reference."""

    case: str
    family: str
    seed: int  # revealed after the verdict, so that the case can be repeated
    stage: Stage  # compare for listed cases, generalise for drawn ones, profile for the profiled shape
    comparisons: tuple[Comparison, ...]

    @property
    def worst(self) -> float:
        """Largest error over the outputs, as a fraction of what is allowed."""
        return max((c.ratio for c in self.comparisons), default=0.0)


@dataclass(frozen=True, slots=True)
class Verdict:
    """What verification says of a draft, for one target, SDK and LNC degree.

    `accepted` means every stage passed under the stated isolation; it can be stored if the verdict is `complete`, which
    one on chosen cases is not. Otherwise stage, reason (a code with a page under
    docs/reasons), line of the draft, message, fix, and the smallest failing case. `cases` lists what was executed and
    compared; `profiles` is one a production case, modelled.
    """

    op: str
    accepted: bool
    stage: Stage
    reason: Reason | None
    rule: str
    line: int | None
    message: str
    fix: str
    case: str | None
    cases: tuple[CaseResult, ...]
    profiles: dict[str, Profile]
    isolation: str
    strong_isolation: bool
    target: str
    sdk: str
    lnc: int
    seconds: float
    instructions: tuple[str, ...] = ()  # names of all that its traces use
    warnings: tuple[str, ...] = field(default=())
    complete: bool = True  # listed, drawn and production cases, and not chosen ones

    @property
    def profile(self) -> Profile | None:
        """The profile of the first production case."""
        return next(iter(self.profiles.values()), None)

    @property
    def max_ratio(self) -> float:
        """Largest error of any compared output over what is allowed; at most 1 in an accepted verdict."""
        return max((c.ratio for r in self.cases for c in r.comparisons), default=0.0)

    def to_dict(self) -> dict[str, Any]:
        """Plain data with the same field names, for --json and evidence."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name not in ("profiles", "cases")}
        plain["cases"] = [asdict(c) for c in self.cases]
        plain["profiles"] = {case: p.to_dict() for case, p in self.profiles.items()}
        plain["profile"] = self.profile and self.profile.to_dict()
        plain["max_ratio"] = self.max_ratio
        return plain
