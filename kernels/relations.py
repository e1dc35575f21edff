"""What the integers of an input may be: `0 <= ids < V`, `distinct`, `sorted`, `permutation`.

An integer input has no meaningful "random" values: a slot must exist, a length must fit. The spec declares
the relation; cases are drawn from it (`draw`) and given values are checked against it (`broken_by`).
"""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from nkismith.kernels.expressions import Expression, ExpressionError, parse

WORDS = ("distinct", "sorted", "permutation")
Side = Literal["any", "low", "high"]


@dataclass(frozen=True)
class Relations:
    """Bounds (both included) and the wording of one integer input; order is along the last axis."""

    name: str
    lower: Expression
    upper: Expression
    words: frozenset[str]

    @property
    def needs(self) -> frozenset[str]:
        """Names the bounds use: dims, and integer inputs that come earlier."""
        return self.lower.names | self.upper.names

    def broken_by(self, values: np.ndarray, env: Mapping[str, Any]) -> str | None:
        """The first relation that `values` break, in words, or None."""
        low, high = self.lower.value(env), self.upper.value(env)
        if np.any(values < low) or np.any(values > high):
            return f"{self.name} must lie in {np.min(low)}..{np.max(high)}, got {values.tolist()}"
        steps = np.diff(np.sort(values, axis=-1), axis=-1)
        if self.words & {"distinct", "permutation"} and np.any(steps == 0):
            return f"{self.name} must be distinct, got {values.tolist()}"
        if "sorted" in self.words and np.any(np.diff(values, axis=-1) < 0):
            return f"{self.name} must be sorted, got {values.tolist()}"
        return None

    def draw(
        self, shape: tuple[int, ...], env: Mapping[str, Any], rng: np.random.Generator, side: Side = "any"
    ) -> np.ndarray:
        """int64 values of `shape` that keep the relation; `side` asks for the lowest or highest ones.

        Raises ExpressionError if no value exists (an empty range, or too few for distinct ones).
        """
        low, high = self.lower.value(env), self.upper.value(env)
        if np.any(np.less(high, low)):
            raise ExpressionError(f"no value of {self.name} fits {np.min(low)}..{np.max(high)}")
        if self.words & {"distinct", "permutation"}:
            count, size = int(high) - int(low) + 1, shape[-1]
            if count < size:
                raise ExpressionError(f"{self.name} needs {size} distinct values, {low}..{high} has {count}")
            first = {"low": 0, "high": count - size}.get(side)
            rows = [
                rng.choice(count, size, replace=False) if first is None else first + rng.permutation(size)
                for _ in range(int(np.prod(shape[:-1])))
            ]
            values = np.reshape(rows, shape) + int(low)
        elif side == "any":
            values = rng.integers(low, np.add(high, 1), size=shape)
        else:
            values = np.broadcast_to(low if side == "low" else high, shape).copy()
        return np.sort(values, axis=-1) if "sorted" in self.words else values


def parse_relations(name: str, lines: str | Sequence[str], extent: int | str) -> Relations:
    """Parse the declared relations of the integer input `name`, whose last axis has size `extent`.

    `permutation` alone means 0 .. extent-1. Raises ExpressionError.
    """
    text = (lines,) if isinstance(lines, str) else tuple(lines)
    words = frozenset(text) & frozenset(WORDS)
    ranges = [t for t in text if t not in words]
    if not ranges and "permutation" in words:
        return Relations(name, parse(0), parse(f"{extent} - 1"), words)
    if len(ranges) != 1:
        raise ExpressionError(f"{list(text)} must hold exactly one range such as '0 <= {name} < N', then {WORDS}")
    return Relations(name, *_range(name, ranges[0]), words)


def _range(name: str, text: str) -> tuple[Expression, Expression]:
    match parse(text).tree:
        case ast.Compare(
            left=lower, ops=[ast.Lt() | ast.LtE() as above, ast.Lt() | ast.LtE() as below], comparators=[middle, upper]
        ) if isinstance(middle, ast.Name) and middle.id == name:
            low, high = ast.unparse(lower), ast.unparse(upper)
            return (
                parse(f"{low} + 1" if isinstance(above, ast.Lt) else low),
                parse(f"{high} - 1" if isinstance(below, ast.Lt) else high),
            )
    raise ExpressionError(f"{text!r} is not a range of {name}: write '0 <= {name} < N' or 'L <= {name} <= H'")
