"""What a legality rule is: the name that a refusal carries, what its page says, and kernels on both sides of it."""

from __future__ import annotations

import textwrap
from dataclasses import dataclass

REFUSED, ACCEPTED = "-", "+"
_GUTTER = 2  # columns of a line that hold its mark


@dataclass(frozen=True, slots=True)
class Example:
    """A kernel in two versions that differ in what the rule is about. Its page shows it, and a test runs both versions.

    kernel: its text, without `import nki, nki.isa as nisa, nki.language as nl`. Lines marked `-` are in the refused
        version only, lines marked `+` in the accepted one only; the mark stands two columns before the code.
    says: words of the refusal: the shape, dtype or number that was seen, and the limit.
    gives: what the accepted version returns, as a NumPy expression of the inputs.
    given: the inputs, `name dtype (shape)` or `name dtype [[values]]`, separated by "; ".
    at: words of the line that is refused, where it is not the first one marked `-`.
    """

    kernel: str
    says: str
    gives: str
    given: str = "x float32 (4, 8)"
    at: str = ""
    target: str = "trn2"
    lnc: int = 1
    sdk: str = "2.33"

    @property
    def lines(self) -> list[str]:
        """The text line by line, marks included."""
        return textwrap.dedent(self.kernel).strip("\n").split("\n")

    def version(self, mark: str) -> str:
        """The source of one version."""
        return "\n".join(line[_GUTTER:] for line in self.lines if line[:1] in ("", " ", mark))

    @property
    def refused_line(self) -> int:
        """The line of the refused version at which the refusal points, from 1."""
        kept = [line for line in self.lines if line[:1] != ACCEPTED]
        return 1 + next(n for n, line in enumerate(kept) if (self.at in line if self.at else line.startswith(REFUSED)))


@dataclass(frozen=True, slots=True)
class Rule:
    """A named rule of the hardware or the API. The refusal itself adds the line, what was seen and the exact limit."""

    name: str
    what: str  # what is legal
    why: str  # what it comes from
    fix: str  # the usual way out
    source: str  # where the SDK documentation (NKI 0.7) says so, or why this project does
    examples: tuple[Example, ...] = ()  # empty only where no kernel can break the rule
