"""The small arithmetic a spec may write: `D//2`, `S*H*D*b`, `0 <= ids < V`.

An expression is parsed once with `ast` and only the node types below are accepted, so a spec from a
stranger's folder can compute sizes but cannot call, index, or raise to powers. Values are Python ints
and floats or NumPy arrays (relations between integer inputs are checked element by element).
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Div: operator.truediv,
    ast.Mod: operator.mod,
}
_COMPARE = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_FUNCTIONS = {"min": np.minimum, "max": np.maximum}
_WANTED = "numbers, names, + - * / // %, parentheses, min(a, b), max(a, b)"


class ExpressionError(ValueError):
    """An expression that cannot be parsed or evaluated; the message says which part and what is allowed."""


@dataclass(frozen=True)
class Expression:
    """One parsed expression. `names` are what it needs: dims, `b`, or `x.itemsize`."""

    text: str
    tree: ast.expr
    names: frozenset[str]

    @property
    def is_comparison(self) -> bool:
        return isinstance(self.tree, ast.Compare)

    def value(self, env: Mapping[str, Any]) -> Any:
        """Evaluate with `env`; raises ExpressionError for a name that has no value or a division by zero."""
        try:
            return _evaluate(self.tree, env)
        except KeyError as missing:
            known = ", ".join(sorted(env)) or "none"
            raise ExpressionError(f"{self.text!r}: no value for {missing.args[0]!r} (known: {known})") from None
        except ZeroDivisionError:
            raise ExpressionError(f"{self.text!r} divides by zero") from None

    def integer(self, env: Mapping[str, Any]) -> int:
        """Evaluate to a whole number; a fraction is an error, not a silent truncation."""
        got = self.value(env)
        if got != int(got):
            raise ExpressionError(f"{self.text!r} is {got}, not a whole number: use // for division")
        return int(got)

    def holds(self, env: Mapping[str, Any]) -> bool:
        """Whether a comparison is true (for arrays: true everywhere)."""
        return bool(np.all(self.value(env)))


@lru_cache(maxsize=4096, typed=True)
def parse(text: str | int | float) -> Expression:
    """Parse `text`; raises ExpressionError naming the first thing that is not allowed."""
    source = str(text).strip()
    try:
        tree = ast.parse(source, mode="eval").body
    except (SyntaxError, ValueError):
        raise ExpressionError(f"{source!r} is not an expression: use {_WANTED}") from None
    for node in ast.walk(tree):
        _refuse(node, source)
    names = set()
    attributes = {id(n.value) for n in ast.walk(tree) if isinstance(n, ast.Attribute)}
    functions = {id(n.func) for n in ast.walk(tree) if isinstance(n, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and id(node) not in attributes | functions:
            names.add(node.id)
        elif isinstance(node, ast.Attribute):
            names.add(f"{node.value.id}.{node.attr}")  # type: ignore[attr-defined]
    return Expression(source, tree, frozenset(names))


def _refuse(node: ast.AST, source: str) -> None:
    match node:
        case ast.Constant(value=value) if isinstance(value, (int, float)) and not isinstance(value, bool):
            return
        case ast.Name() | ast.Load() | ast.operator() | ast.unaryop() | ast.cmpop():
            allowed = {ast.Name, ast.Load, ast.USub, *_BINARY, *_COMPARE}
            if type(node) in allowed:
                return
        case ast.BinOp() | ast.Compare() | ast.UnaryOp():
            return
        case ast.Attribute(value=ast.Name(), attr="itemsize"):
            return
        case ast.Call(func=ast.Name(id=name), args=[_, _], keywords=[]) if name in _FUNCTIONS:
            return
    what = ast.unparse(node) if isinstance(node, ast.expr) else type(node).__name__
    raise ExpressionError(f"{what!r} is not allowed in {source!r}: use {_WANTED}")


def _evaluate(node: ast.expr, env: Mapping[str, Any]) -> Any:
    match node:
        case ast.Constant(value=value):
            return value
        case ast.Name(id=name):
            return env[name]
        case ast.Attribute(value=ast.Name(id=owner), attr=attr):
            return env[f"{owner}.{attr}"]
        case ast.UnaryOp(operand=operand):
            return -_evaluate(operand, env)
        case ast.BinOp(left=left, op=op, right=right):
            return _BINARY[type(op)](_evaluate(left, env), _evaluate(right, env))
        case ast.Call(func=ast.Name(id=name), args=arguments):
            got = _FUNCTIONS[name](*(_evaluate(a, env) for a in arguments))
            return got.item() if np.ndim(got) == 0 else got
        case ast.Compare(left=left, ops=ops, comparators=rights):
            values = [_evaluate(v, env) for v in (left, *rights)]
            links = [_COMPARE[type(op)](a, b) for op, a, b in zip(ops, values, values[1:], strict=False)]
            return np.logical_and.reduce(links) if len(links) > 1 else links[0]
    raise AssertionError(f"parse() let {ast.dump(node)} through")
