"""What a lint rule is, and the table of all rules. A rule is also a page: docs/lint/<name>.md."""

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from nkismith.verify.lint.source import Source
from nkismith.verify.reasons import Reason


@dataclass(frozen=True, slots=True)
class Finding:
    """One place where a source breaks a rule."""

    rule: str
    line: int  # 1-based
    message: str  # what was seen, and where
    fix: str


@dataclass(frozen=True, slots=True)
class Seen:
    """What a check yields: the node, or the line, that breaks its rule."""

    where: ast.AST | int
    message: str
    fix: str

    @property
    def line(self) -> int:
        return self.where if isinstance(self.where, int) else getattr(self.where, "lineno", 1)


Check = Callable[[Source], Iterator[Seen]]


@dataclass(frozen=True, slots=True)
class Rule:
    """A named rule with what a reader needs to obey it. `bad` and `good` are whole kernels of an op `scale(x)`, except
    for their imports of nki, and are tested: `bad` breaks this rule and `good` breaks none."""

    name: str
    reason: Reason
    what: str
    why: str
    bad: str
    good: str
    check: Check
    before: tuple[int, int] | None  # applies to SDKs earlier than this one only


RULES: dict[str, Rule] = {}


def rule(
    name: str, *, reason: Reason, what: str, why: str, bad: str, good: str, before: tuple[int, int] | None = None
) -> Callable[[Check], Check]:
    """Enter a check into the table under `name`, which no other rule may have."""

    def enter(check: Check) -> Check:
        if name in RULES:
            raise ValueError(f"two lint rules are called {name!r}")
        RULES[name] = Rule(name, reason, what, why, bad.strip("\n"), good.strip("\n"), check, before)
        return check

    return enter
