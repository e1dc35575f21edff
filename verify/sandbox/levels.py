"""Which isolation this machine allows, found out by running a probe at each level."""

import functools
import json
from dataclasses import dataclass

from nkismith.verify.sandbox.isolation import Isolation, Level
from nkismith.verify.sandbox.run import IsolationUnavailable, run

_PROBE = "nkismith.verify.sandbox.probe"


@dataclass(frozen=True, slots=True)
class LevelReport:
    """One level on this machine."""

    level: Level
    available: bool
    isolation: Isolation | None  # what a child at this level has; None if unavailable
    possible: tuple[str, ...]  # what the probe got away with; must be empty at STRONG and SECCOMP


@functools.cache
def levels() -> tuple[LevelReport, ...]:
    """Probe every level, best first; takes a tenth of a second each. The first available one is what "auto" reaches."""
    return tuple(map(_probe, Level))


def _probe(level: Level) -> LevelReport:
    try:
        result = run(b"", entry=_PROBE, level=level)
    except IsolationUnavailable:
        return LevelReport(level, False, None, ())
    possible = tuple(json.loads(result.reply or b"[]"))
    return LevelReport(level, True, result.isolation, possible)
