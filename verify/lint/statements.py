"""Rules on form: which statements and expressions, what stands at the top level, how much literal data."""

import ast
from collections.abc import Iterator

from nkismith.verify.lint.rule import Seen, rule
from nkismith.verify.lint.source import Source
from nkismith.verify.reasons import Reason

_STATEMENTS = (
    *(ast.FunctionDef, ast.ClassDef, ast.Return, ast.Delete, ast.Assign, ast.AugAssign, ast.AnnAssign),
    *(ast.For, ast.While, ast.If, ast.With, ast.Match, ast.Raise, ast.Assert, ast.Import, ast.ImportFrom),
    *(ast.Nonlocal, ast.Expr, ast.Pass, ast.Break, ast.Continue),
    *(ast.Try, ast.TryStar, ast.Global),  # refused by rules of their own
)
_EXPRESSIONS = (
    *(ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp, ast.Lambda, ast.IfExp, ast.Dict, ast.Set, ast.ListComp),
    *(ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Yield, ast.YieldFrom, ast.Compare, ast.Call, ast.FormattedValue),
    *(ast.JoinedStr, ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List, ast.Tuple, ast.Slice),
)


@rule(
    "parse",
    reason=Reason.PARSE,
    what="The file is UTF-8 text without hidden or control characters and without a coding line; it is valid Python "
    "3.11 of sane length and depth.",
    why="The judge, the reader and the device must see the same program. A coding line, an invisible character or a "
    "carriage return in the middle of a line make some of them see another.",
    bad="""
Here is the kernel:

```python
@nki.jit
def scale(x):
    return x
```
""",
    good="""
@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(y, nl.load(x))
    return y
""",
)
def check_readable(source: Source) -> Iterator[Seen]:
    """`source.read` finds what breaks this rule: a source that has come this far does not."""
    yield from ()


@rule(
    "statement",
    reason=Reason.PYTHON_SUBSET,
    what="Functions, classes, loops, conditions, assignments, comprehensions, generators, match, lambda are fine. Not "
    "so async, type aliases, type parameters, and whatever later Pythons add.",
    why="The kernel is ordinary Python that runs once while it is built; there is nothing to await. Newer syntax does "
    "not run on the Python of every Neuron image.",
    bad="""
@nki.jit
async def scale(x):
    return x
""",
    good="""
def tiles(rows):
    for start in range(0, rows, 128):
        yield slice(start, min(start + 128, rows))

@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for rows in tiles(x.shape[0]):
        nl.store(y[rows], nl.load(x[rows]))
    return y
""",
)
def check_statements(source: Source) -> Iterator[Seen]:
    for node in source.nodes:
        kind = type(node).__name__
        if isinstance(node, ast.stmt) and not isinstance(node, _STATEMENTS):
            yield Seen(node, f"{kind} statement", "use a plain function, loop or assignment")
        elif isinstance(node, ast.expr) and not isinstance(node, _EXPRESSIONS):
            yield Seen(node, f"{kind} expression", "use a plain expression")
        elif isinstance(node, ast.comprehension) and node.is_async:
            yield Seen(node.iter, "asynchronous comprehension", "use a plain one")
        elif getattr(node, "type_params", None):
            yield Seen(node, "type parameters", "leave them out")


@rule(
    "context_manager",
    reason=Reason.ENVIRONMENT_DEPENDENT,
    what="`with` is for `nl.no_reorder()` only.",
    why="A context manager may swallow exceptions (see `exception_handling`). The kernel compiler knows one.",
    bad="""
class Quiet:
    def __init__(self, tensor):
        self.tensor = tensor

@nki.jit
def scale(x):
    with Quiet(x):
        return x
""",
    good="""
@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    with nl.no_reorder():
        nl.store(y, nl.load(x))
    return y
""",
)
def check_context_managers(source: Source) -> Iterator[Seen]:
    for node in source.each(ast.With):
        assert isinstance(node, ast.With)
        for item in node.items:
            call = item.context_expr
            if not (isinstance(call, ast.Call) and source.path(call.func) == "nki.language.no_reorder"):
                yield Seen(call, "with something else than nl.no_reorder()", "call what is needed directly")


@rule(
    "module_statement",
    reason=Reason.ENVIRONMENT_DEPENDENT,
    what="At the top level stand a docstring, imports, functions, classes, constants and asserts on them.",
    why="What runs at import runs once a process and not once a kernel, and on the device at another time than here.",
    bad="""
for kind in (nl.float32, nl.bfloat16):
    print(kind)

@nki.jit
def scale(x):
    return x
""",
    good="""
P = 128
HALVES = tuple(P // n for n in (1, 2))
assert HALVES[1] == 64

@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(y[0:P], nl.load(x[0:P]))
    return y
""",
)
def check_module_statements(source: Source) -> Iterator[Seen]:
    for node in source.tree.body:
        match node:
            case ast.Import() | ast.ImportFrom() | ast.FunctionDef() | ast.ClassDef() | ast.Assert() | ast.Pass():
                pass
            case ast.Expr(value=ast.Constant()):
                pass
            case ast.Assign(targets=targets) if all(map(_is_plain_target, targets)):
                pass
            case ast.AnnAssign(target=ast.Name()):
                pass
            case _:
                yield Seen(node, f"{type(node).__name__} at the top level", "move it into the kernel or a helper")


def _is_plain_target(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) or (
        isinstance(target, ast.Tuple | ast.List) and all(map(_is_plain_target, target.elts))
    )


@rule(
    "literals",
    reason=Reason.BULK_LITERALS,
    what="Numbers count one each, long text and large integers by their size; the spec limits the sum.",
    why="A kernel computes. A table of results or weights in its text is neither general nor reviewable, and on the "
    "device it is compiled into the program.",
    bad="TABLE = ("
    + "0.5, " * 1200
    + """)

@nki.jit
def scale(x):
    return x
""",
    good="""
import math

TABLE = tuple(math.cos(i / 64) for i in range(1200))

@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=TABLE[7])
    nl.store(y, t)
    return y
""",
)
def check_literals(source: Source) -> Iterator[Seen]:
    docstrings = {id(node.value) for node in source.each(ast.Expr) if isinstance(node, ast.Expr)}
    largest: tuple[int, ast.AST | int] = (0, 1)
    total = 0
    for node in source.each(ast.Constant):
        assert isinstance(node, ast.Constant)
        words = 0 if id(node) in docstrings else _words(node.value)
        total += words
        largest = max(largest, (words, node), key=lambda pair: pair[0])
    if total > source.max_literals:
        yield Seen(
            largest[1],
            f"{total:,} words of literal data, at most {source.max_literals:,}",
            "compute tables from a formula, or make them an input of the op",
        )


_LABEL = 64  # characters of text that a name or a message may have without counting


def _words(value: object) -> int:
    """How many 32-bit words of data a literal holds, roughly."""
    match value:
        case bool() | None:
            return 0
        case int():
            return max(1, value.bit_length() // 32)
        case float():
            return 1
        case complex():
            return 2
        case str() | bytes():
            return len(value) // 4 if len(value) > _LABEL else 0
    return 0
