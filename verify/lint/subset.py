"""Rules for SDKs before 2.33, whose compiler parsed the kernel's source and knew only part of Python.

From 2.33 on the kernel is run as Python and these do not apply. Sources: NKI language guide, migration guides and
release notes of NKI 0.2 to 0.6, and the grammar of the open-source front end (KLR).
"""

import ast
from collections.abc import Iterator

from nkismith.verify.lint.rule import Seen, rule
from nkismith.verify.lint.source import Source
from nkismith.verify.reasons import Reason

TRACING = (2, 33)
_WHY = "Up to SDK 2.32 the kernel compiler parses the source and has no form for this; from 2.33 on it runs the source."
_BUILTINS = frozenset(
    {
        *("isinstance", "type", "slice", "print", "min", "max", "abs", "str", "bool", "int", "float", "divmod"),
        *("tuple", "list", "dict", "len", "range", "object", "super", "staticmethod"),
        *("True", "False", "None", "AssertionError", "ValueError", "TypeError", "Exception"),
    }
)


@rule(
    "subset_statement",
    reason=Reason.PYTHON_SUBSET,
    before=TRACING,
    what="Before 2.33: no nested def or class, raise, del, nonlocal, match, import inside a function, else on a loop.",
    why=_WHY,
    bad="""
@nki.jit
def scale(x):
    if len(x.shape) != 2:
        raise ValueError("a matrix, please")
    return x
""",
    good="""
@nki.jit
def scale(x):
    assert len(x.shape) == 2, "a matrix, please"
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(y, nl.load(x))
    return y
""",
)
def check_statements(source: Source) -> Iterator[Seen]:
    for node in source.nodes:
        inside = any(isinstance(a, ast.FunctionDef) for a in source.above(node))
        match node:
            case ast.Raise() | ast.Delete() | ast.Nonlocal() | ast.Match() if inside:
                yield Seen(node, f"{type(node).__name__.lower()} statement", "use if, assert and new names")
            case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.ClassDef() if inside:
                if not isinstance(source.parents[node], ast.ClassDef):
                    yield Seen(node, f"{type(node).__name__} inside a function", "move it to the top level")
            case ast.For(orelse=[_, *_]) | ast.While(orelse=[_, *_]):
                yield Seen(node, "else on a loop", "use a flag")


@rule(
    "subset_expression",
    reason=Reason.PYTHON_SUBSET,
    before=TRACING,
    what="Before 2.33: no comprehension, generator, lambda, walrus, set literal, starred value, `@` product, format "
    "specification in an f-string.",
    why=_WHY,
    bad="""
@nki.jit
def scale(x):
    starts = [128 * i for i in range(4)]
    return nl.load(x[starts[0] : starts[1]])
""",
    good="""
@nki.jit
def scale(x):
    starts = []
    for i in range(4):
        starts.append(128 * i)
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(y, nl.load(x[starts[0] : starts[1]]))
    return y
""",
)
def check_expressions(source: Source) -> Iterator[Seen]:
    unknown = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Lambda, ast.NamedExpr, ast.Set)
    for node in source.nodes:
        if not any(isinstance(a, ast.FunctionDef) for a in source.above(node)):
            continue
        match node:
            case ast.Yield() | ast.YieldFrom() | ast.Starred():
                yield Seen(node, f"{type(node).__name__} expression", "write the values out, in a loop or list")
            case ast.BinOp(op=ast.MatMult()):
                yield Seen(node, "the @ operator", "use nisa.nc_matmul")
            case ast.FormattedValue(format_spec=ast.JoinedStr()):
                yield Seen(node, "a format specification in an f-string", "leave it out")
            case ast.expr() if isinstance(node, unknown):
                yield Seen(node, f"{type(node).__name__} expression", "write a loop over a list, or a helper function")


@rule(
    "subset_loop",
    reason=Reason.PYTHON_SUBSET,
    before=TRACING,
    what="Before 2.33: `for` has one plain name as its target, and iterates a list, a tuple or a range.",
    why=_WHY,
    bad="""
@nki.jit
def scale(x):
    for start, stop in ((0, 64), (64, 128)):
        nl.load(x[start:stop])
    return x
""",
    good="""
@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for start in (0, 64):
        nl.store(y[start : start + 64], nl.load(x[start : start + 64]))
    return y
""",
)
def check_loops(source: Source) -> Iterator[Seen]:
    for node in source.each(ast.For):
        assert isinstance(node, ast.For)
        if not isinstance(node.target, ast.Name):
            yield Seen(node, "a loop target that is not one name", "index inside the loop")
        if isinstance(node.iter, ast.Dict | ast.Set | ast.Constant | ast.JoinedStr):
            yield Seen(node.iter, "a loop over a dict, set or text", "loop over a list or tuple")


@rule(
    "subset_call",
    reason=Reason.PYTHON_SUBSET,
    before=TRACING,
    what="Before 2.33: no `**` in a call, and of the builtins only isinstance, slice, print, min, max, abs, str, bool, "
    "int, float, divmod, tuple, list, dict, len and range.",
    why=_WHY,
    bad="""
@nki.jit
def scale(x):
    for i, rows in enumerate((64, 64)):
        nl.load(x[i * 64 : i * 64 + rows])
    return x
""",
    good="""
@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(2):
        nl.store(y[i * 64 : i * 64 + 64], nl.load(x[i * 64 : i * 64 + 64]))
    return y
""",
)
def check_calls(source: Source) -> Iterator[Seen]:
    for node in source.each(ast.Call):
        assert isinstance(node, ast.Call)
        if any(keyword.arg is None for keyword in node.keywords):
            yield Seen(node, "** in a call", "write the keywords out")
        name = node.func
        inside = any(isinstance(above, ast.FunctionDef) for above in source.above(node))
        if inside and isinstance(name, ast.Name) and source.scopes.find(name) is None and name.id not in _BUILTINS:
            yield Seen(node, f"the builtin {name.id}", "write a loop")


@rule(
    "subset_definition",
    reason=Reason.PYTHON_SUBSET,
    before=TRACING,
    what="Before 2.33: no `*args`, `**kwargs` or keyword-only parameters; classes inherit from NKIObject or Enum.",
    why=_WHY,
    bad="""
def rows(*sizes):
    return sizes[0]

@nki.jit
def scale(x):
    return nl.load(x[0 : rows(128)])
""",
    good="""
class Tiling(nl.NKIObject):
    rows: int

@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(y, nl.load(x[0 : Tiling(rows=128).rows]))
    return y
""",
)
def check_definitions(source: Source) -> Iterator[Seen]:
    for node in source.nodes:
        match node:
            case ast.FunctionDef(args=arguments) if arguments.vararg or arguments.kwarg or arguments.kwonlyargs:
                yield Seen(
                    node, f"{node.name} takes *args, **kwargs or keyword-only parameters", "list plain parameters"
                )
            case ast.ClassDef(bases=bases):
                paths = [source.path(base) or "" for base in bases]
                if not bases or not all(p.endswith(".NKIObject") or p.startswith("enum.") for p in paths):
                    yield Seen(
                        node, f"class {node.name} inherits from neither NKIObject nor Enum", "inherit from NKIObject"
                    )


@rule(
    "subset_comparison",
    reason=Reason.PYTHON_SUBSET,
    before=TRACING,
    what="Before 2.33: no `is` and `is not`, and `in` only as a single comparison.",
    why="Since SDK 2.29 the kernel compiler refuses `is`; from 2.33 on the kernel runs as Python.",
    bad="""
def first(rows=None):
    return 0 if rows is None else rows

@nki.jit
def scale(x):
    return nl.load(x[first() : 128])
""",
    good="""
def first(rows=None):
    return 0 if rows == None else rows

@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(y, nl.load(x[first() : 128]))
    return y
""",
)
def check_comparisons(source: Source) -> Iterator[Seen]:
    for node in source.each(ast.Compare):
        assert isinstance(node, ast.Compare)
        if any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops):
            yield Seen(node, "is or is not", "use == or !=")
        elif len(node.ops) > 1 and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            yield Seen(node, "a chain of comparisons with in", "split it with and")
