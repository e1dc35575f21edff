"""Mutants of a kernel's source: numbers, operators, keywords and ranges, each changed in one place.

Left alone is what makes another right kernel rather than a mistake: tile sizes (ints at module level, bound to a name,
or of 32 and more), shapes of allocations, steps of ranges, and keywords that say where an instruction runs.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

from nkismith.verify.mutation.mutant import Kind, Mutant
from nkismith.verify.simulator.instruction import TABLE

BINARY: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.FloorDiv,
    ast.Pow: ast.Mult,
}
COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
}
TILE_LIKE = 32  # ints from here on choose a tile or state a limit of the hardware
EXTREMES = {"min": "max", "max": "min"}
ALLOCATIONS = frozenset({"ndarray", "zeros", "ones", "full", "empty", "empty_like", "zeros_like"})
RANGES = frozenset({"range", "static_range", "affine_range", "sequential_range", "fori_loop"})
PLACEMENT = frozenset({"engine", "name", "dge_mode", "priority", "perf_mode", "tile_position", "tile_size", "buffer",
                       "is_stationary_onezero", "is_moving_onezero", "address"})  # fmt: skip

Change = Callable[[ast.AST], None]  # in place, on the node's copy


def source_mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a source, in the order of its lines. The source must parse."""
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    kept = _left_alone(tree)
    for index, node in enumerate(nodes):
        if node not in kept:
            for kind, what, change in _changes(node):
                changed = copy.deepcopy(tree)
                change(list(ast.walk(changed))[index])
                yield Mutant(kind, getattr(node, "lineno", 0), what, source=ast.unparse(changed))


def _left_alone(tree: ast.Module) -> set[ast.AST]:
    """Nodes whose change would make another right kernel, and text."""
    kept: set[ast.AST] = set()
    for statement in tree.body:
        if not isinstance(statement, ast.FunctionDef | ast.ClassDef):
            kept.update(n for n in ast.walk(statement) if isinstance(n, ast.Constant) and isinstance(n.value, int))
    for node in ast.walk(tree):
        match node:
            case ast.Assign(value=ast.Constant(value=int()) as number):
                kept.add(number)
            case ast.Call(func=function, args=[shape, *_]) if _name(function) in ALLOCATIONS:
                kept.update(ast.walk(shape))
            case ast.Call(func=function, args=[_, _, step]) if _name(function) in RANGES:
                kept.update(ast.walk(step))
        if isinstance(node, ast.Call):
            for keyword in node.keywords:
                if keyword.arg in PLACEMENT or keyword.arg in ("shape", "axis"):
                    kept.update(ast.walk(keyword.value))
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            for part in (*node.decorator_list, getattr(node, "returns", None)):
                kept.update(ast.walk(part) if part is not None else ())
    return kept


def _changes(node: ast.AST) -> Iterator[tuple[Kind, str, Change]]:
    text = ast.unparse(node) if isinstance(node, ast.expr) else ""
    match node:
        case ast.Constant(value=bool()):
            pass
        case ast.Constant(value=int() as number) if abs(number) < TILE_LIKE:
            for new in (number + 1, number - 1):
                yield Kind.SOURCE_NUMBER, f"{new} for {number}", _set("value", new)
        case ast.Constant(value=float() as fraction):
            for other in (2 * fraction if fraction else 1.0, 0.0):
                if other != fraction:
                    yield Kind.SOURCE_NUMBER, f"{other:g} for {fraction:g}", _set("value", other)
        case ast.BinOp(op=operator) if type(operator) in BINARY:
            new_operator = BINARY[type(operator)]()
            yield Kind.SOURCE_OPERATOR, f"{_sign(new_operator)} in {text}", _set("op", new_operator)
        case ast.Compare(ops=[operator]) if type(operator) in COMPARISONS:
            new_comparison = COMPARISONS[type(operator)]()
            yield Kind.SOURCE_OPERATOR, f"{_sign(new_comparison)} in {text}", _set("ops", [new_comparison])
        case ast.Call(func=ast.Name(id=name)) if name in EXTREMES:
            yield Kind.SOURCE_OPERATOR, f"{EXTREMES[name]} for {text}", _renamed(EXTREMES[name])
        case ast.Call(func=function) if _name(function) in RANGES:
            yield from _ranges(node, text)
        case ast.Call(func=function) if _name(function) in TABLE:
            yield from _keywords(node, _name(function))


def _keywords(call: ast.Call, name: str) -> Iterator[tuple[Kind, str, Change]]:
    """Optional keywords that an author could forget."""
    parameters = TABLE[name].signature.parameters
    for keyword in call.keywords:
        known = parameters.get(keyword.arg or "")
        forgotten = known is not None and known.default is not known.empty and keyword.arg not in PLACEMENT
        if forgotten and (name, keyword.arg) != ("activation", "reduce_op"):  # add, named or not
            what = f"{name} without {keyword.arg}={ast.unparse(keyword.value)}"
            yield Kind.SOURCE_KEYWORD, what, _without(keyword.arg)


def _ranges(call: ast.Call, text: str) -> Iterator[tuple[Kind, str, Change]]:
    """The first or the last turn left out, and an end that is one short."""
    function = _name(call.func)
    bounds = call.args[:2] if len(call.args) > 1 else [ast.Constant(0), *call.args]
    rest = call.args[2:]
    if len(bounds) < 2 or call.keywords:
        return
    start, stop = bounds
    step = rest[0] if rest and function != "fori_loop" else ast.Constant(1)
    for what, arguments in (
        ("without its first turn", [_plus(start, step), stop, *rest]),
        ("without its last turn", [start, _minus(stop, step), *rest]),
        ("with its end one short", [start, _minus(stop, ast.Constant(1)), *rest]),
    ):
        yield Kind.SOURCE_RANGE, f"{text} {what}", _set("args", arguments)


def _plus(left: ast.expr, right: ast.expr) -> ast.expr:
    return ast.BinOp(copy.deepcopy(left), ast.Add(), copy.deepcopy(right))


def _minus(left: ast.expr, right: ast.expr) -> ast.expr:
    return ast.BinOp(copy.deepcopy(left), ast.Sub(), copy.deepcopy(right))


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def _sign(operator: ast.AST) -> str:
    """An operator as it is written."""
    one, two = ast.Constant(1), ast.Constant(2)
    if isinstance(operator, ast.cmpop):
        return ast.unparse(ast.Compare(one, [operator], [two]))[2:-2]
    assert isinstance(operator, ast.operator)
    return ast.unparse(ast.BinOp(one, operator, two))[2:-2]


def _set(field: str, value: object) -> Change:
    return lambda node: setattr(node, field, value)


def _renamed(name: str) -> Change:
    return lambda call: setattr(call, "func", ast.Name(name, ast.Load()))


def _without(keyword: str | None) -> Change:
    def change(call: ast.AST) -> None:
        assert isinstance(call, ast.Call)
        call.keywords = [k for k in call.keywords if k.arg != keyword]

    return change
