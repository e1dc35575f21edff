"""The rule on text made from values, which differs between the simulator and the device."""

import ast
from collections.abc import Iterator

from nkismith.verify.lint.ownership import defined_attributes
from nkismith.verify.lint.rule import Seen, rule
from nkismith.verify.lint.scopes import Scope
from nkismith.verify.lint.source import Source
from nkismith.verify.reasons import Reason


@rule(
    "text_decides",
    reason=Reason.ENVIRONMENT_DEPENDENT,
    what="Text made from a value (an f-string, `str(...)`, `%`) is for names and messages: it is not compared, "
    "searched, indexed, measured, iterated, or used as a key, and nothing asks whether a value is text. The same goes "
    "for the name of a tensor. Text written in the source may be compared.",
    why="How a tensor or a dtype prints, what unnamed tensors are called and whether dtypes are strings differs "
    "between the simulator and the device.",
    bad="""
@nki.jit
def scale(x):
    return x if "simul" in str(x) else nl.load(x)
""",
    good="""
@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    mode = "copy" if x.shape[0] < 128 else "tiled"
    assert mode in ("copy", "tiled"), f"unknown mode {mode}"
    nl.store(y, nl.load(x))
    return y
""",
)
def check_text_decides(source: Source) -> Iterator[Seen]:
    names = _text_names(source)
    for node in source.each(ast.JoinedStr, ast.Call, ast.BinOp, ast.Name, ast.Attribute, ast.MatchClass):
        if _asks_for_str(source, node):
            yield Seen(node, "asks whether a value is text", "compare dtypes and your own constants with ==")
        if not isinstance(node, ast.expr):
            continue
        if isinstance(node, ast.Name) and node.id == "str" and _is_made_text(source, node, names):
            yield Seen(node, "str is passed around as a function", "call str(...) where its result is used")
            continue
        use = _decision(source, node)
        if use and any(_is_made_text(source, part, names) for part in _addends(node)):
            yield Seen(node, f"text made from a value is {use}", "decide by shapes, dtypes and your own constants")


def _asks_for_str(source: Source, node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass"), args=[_, kinds]):
            names = ast.walk(kinds)
        case ast.MatchClass(cls=cls):
            names = ast.walk(cls)
        case _:
            return False
    return any(isinstance(n, ast.Name) and n.id == "str" and source.scopes.find(n) is None for n in names)


TextNames = set[tuple[Scope, str]]
_ALIASES = 20  # how many steps text is followed from variable to variable


def _text_names(source: Source) -> TextNames:
    """The variables that may hold text made from a value."""
    names: TextNames = set()
    assigned = [
        (scope, name, part)
        for scope in source.scopes.all
        for name, binding in scope.names.items()
        for value in binding.values
        for part in _addends(value)
    ]
    for _ in range(_ALIASES):
        more = {(scope, name) for scope, name, part in assigned if _is_made_text(source, part, names)}
        if more == names:
            break
        names = more
    return names


def _addends(node: ast.expr) -> Iterator[ast.expr]:
    """The parts of a + b + c, or the expression itself."""
    rest = [node]
    while rest:
        part = rest.pop()
        if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Add):
            rest += [part.left, part.right]
        else:
            yield part


def _is_made_text(source: Source, node: ast.expr, names: TextNames) -> bool:
    match node:
        case ast.JoinedStr(values=parts):
            return any(isinstance(part, ast.FormattedValue) for part in parts)
        case ast.Call(func=ast.Name(id="str") as function, args=[_, *_]):
            return source.scopes.find(function) is None
        case ast.Call(func=ast.Attribute(value=ast.Constant(value=str()), attr="join")):
            return True
        case ast.Attribute(attr="name", ctx=ast.Load()):
            return "name" not in defined_attributes(source) and not _has_enums(source)
        case ast.Name(id="str", ctx=ast.Load()) if source.scopes.find(node) is None:
            return _is_a_function_value(source, node)
        case ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
            return True
        case ast.Name(id=name, ctx=ast.Load()):
            found = source.scopes.find(node)
            return found is not None and (found[0], name) in names
    return False


def _has_enums(source: Source) -> bool:
    """Whether the file defines an enumeration, whose members have names of their own."""
    bases = (base for node in source.each(ast.ClassDef) if isinstance(node, ast.ClassDef) for base in node.bases)
    return any((source.path(base) or "").startswith("enum.") for base in bases)


def _is_a_function_value(source: Source, node: ast.Name) -> bool:
    """Whether `str` goes somewhere as a function, from where its results cannot be followed. `",".join(map(str, ...))`
    is text in one piece."""
    match source.parents[node]:
        case ast.Call(func=ast.Name(id="map"), args=[first, _]) as call if first is node:
            join = source.parents[call]
            return not (
                isinstance(join, ast.Call) and isinstance(join.func, ast.Attribute) and join.func.attr == "join"
            )
        case ast.Call(func=func):
            return func is not node and not (isinstance(func, ast.Name) and func.id in ("isinstance", "issubclass"))
        case ast.Assign() | ast.NamedExpr() | ast.Return() | ast.IfExp() | ast.keyword() | ast.Lambda() | ast.Starred():
            return True
        case ast.List() | ast.Set() | ast.Dict():
            return True
    return False


def _decision(source: Source, node: ast.expr) -> str | None:
    """How an expression decides something, if it does."""
    match source.parents.get(node):
        case ast.Compare():
            return "compared"
        case ast.Subscript() | ast.Slice():
            return "indexed, or used as a key"
        case ast.Attribute():
            return "examined"
        case ast.For(iter=part) | ast.comprehension(iter=part) if part is node:
            return "iterated"
        case ast.Match():
            return "matched"
        case ast.Dict(keys=keys) if node in keys:
            return "used as a key"
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) | ast.Assert(test=test) if test is node:
            return "a condition"
        case ast.Call(func=ast.Name(id=called) as function) if called in (
            *("len", "ord", "int", "float", "bool", "list", "tuple", "set", "frozenset", "dict", "sorted", "iter"),
            *("min", "max", "any", "all", "enumerate", "zip", "map", "filter", "reversed", "sum"),
        ):
            return f"given to {called}" if source.scopes.find(function) is None else None
    return None
