"""What a legality rule is: the name that a refusal carries, and what its page says."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Rule:
    """A named rule of the hardware or the API. The refusal itself adds the line, what was seen and the exact limit."""

    name: str
    what: str  # what is legal
    why: str  # what it comes from
    fix: str  # the usual way out
    source: str  # where the SDK documentation (NKI 0.7) says so, or why this project does
