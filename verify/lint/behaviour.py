"""Rules on what makes one source build different kernels: caught exceptions, state, run-time values."""

import ast
from collections.abc import Iterator

from nkismith.verify.lint.rule import Seen, rule
from nkismith.verify.lint.source import Source
from nkismith.verify.reasons import Reason

_CHANGES = frozenset(
    {
        *("add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "reverse", "setdefault"),
        *("sort", "update", "difference_update", "intersection_update", "symmetric_difference_update"),
    }
)


@rule(
    "exception_handling",
    reason=Reason.ENVIRONMENT_DEPENDENT,
    what="No try statement. Raising and asserting are fine.",
    why="Which exception a refused instruction raises, and whether at all, is not documented. A kernel that catches it "
    "takes one path here and may take another on the device, where nobody compared it.",
    bad="""
@nki.jit
def scale(x):
    try:
        return nl.load(x)
    except Exception:
        return x
""",
    good="""
@nki.jit
def scale(x):
    if len(x.shape) != 2:
        raise ValueError("scale takes a matrix")
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(y, nl.load(x))
    return y
""",
)
def check_exception_handling(source: Source) -> Iterator[Seen]:
    for node in source.each(ast.Try, ast.TryStar):
        yield Seen(node, "try statement", "test the shape or dtype with if before the call")


@rule(
    "global_state",
    reason=Reason.ENVIRONMENT_DEPENDENT,
    what="Functions do not change what lives at the top level: no `global`, no assignment into, and no method that "
    "changes, a module's list, dict, class or function. State inside one call is free.",
    why="A kernel is built once for each shape and process. With state, the second build differs from the first, and "
    "compiled kernels are cached by their arguments alone.",
    bad="""
CALLS = []

@nki.jit
def scale(x):
    CALLS.append(1)
    return nl.load(x) if len(CALLS) > 1 else x
""",
    good="""
SIZES = [128, 64]

@nki.jit
def scale(x):
    used = []
    def take(rows):
        used.append(rows)
        return rows
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(y[0 : take(SIZES[0])], nl.load(x[0 : SIZES[0]]))
    return y
""",
)
def check_global_state(source: Source) -> Iterator[Seen]:
    fix = "keep it in a local variable, or pass it"
    for node in source.nodes:
        match node:
            case ast.Global(names=names):
                yield Seen(node, f"global {', '.join(names)}", fix)
            case ast.Subscript(ctx=ast.Store() | ast.Del()) | ast.Attribute(ctx=ast.Store() | ast.Del()):
                if name := _module_variable(source, node.value):
                    yield Seen(node, f"{name} lives at the top level and is changed", fix)
            case ast.AugAssign(target=ast.Name() as target):
                if name := _module_variable(source, target):
                    yield Seen(node, f"{name} lives at the top level and is changed", fix)
            case ast.Call(func=ast.Attribute(value=value, attr=attr)) if attr in _CHANGES:
                if name := _module_variable(source, value):
                    yield Seen(node, f"{name} lives at the top level and is changed", fix)
            case ast.Call(func=ast.Name(id="next"), args=[ast.Name() as iterator, *_]):
                if name := _module_variable(source, iterator):
                    yield Seen(node, f"{name} is an iterator at the top level and is advanced", fix)


def _module_variable(source: Source, node: ast.expr) -> str | None:
    """The top-level variable, class or function that `a`, `a.b` or `a[i].b` inside a function starts from."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    if not isinstance(node, ast.Name) or source.scopes.of[node] is source.scopes.module:
        return None
    found = source.scopes.find(node)
    return node.id if found and found[0] is source.scopes.module and not found[1].imported else None


@rule(
    "mutable_default",
    reason=Reason.ENVIRONMENT_DEPENDENT,
    what="A parameter's default is not a list, dict or set.",
    why="It is made once and shared by all calls: state that outlives a kernel (see `global_state`). The kernel "
    "compiler before 2.33 also refuses lists as arguments.",
    bad="""
def collect(tile, seen=[]):
    seen.append(tile)
    return len(seen)

@nki.jit
def scale(x):
    return nl.load(x[0 : collect(x)])
""",
    good="""
def collect(tile, seen=()):
    return len((*seen, tile))

@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(y[0 : collect(x)], nl.load(x[0 : collect(x)]))
    return y
""",
)
def check_mutable_defaults(source: Source) -> Iterator[Seen]:
    for node in source.each(ast.arguments):
        assert isinstance(node, ast.arguments)
        for default in (*node.defaults, *node.kw_defaults):
            match default:
                case ast.List() | ast.Dict() | ast.Set() | ast.ListComp() | ast.DictComp() | ast.SetComp():
                    yield Seen(default, "a mutable default", "use a tuple, or None and make it inside")
                case ast.GeneratorExp() | ast.Call(func=ast.Name(id="list" | "dict" | "set" | "iter")):
                    yield Seen(default, "a mutable default", "use a tuple, or None and make it inside")


@rule(
    "run_time_value",
    reason=Reason.PYTHON_SUBSET,
    what="A value that nisa.scalar_load gives, a register, or the index of a compiled loop, is not used by if, while, "
    "range, int, bool, and, or, not.",
    why="The kernel is built before it runs: such a value does not exist yet. Loops over it are nl.fori_loop and "
    "nl.while_loop; offsets and bounds may be computed from it with +, - and *.",
    bad="""
@nki.jit
def scale(x):
    n = nisa.scalar_load(x)
    for i in range(n):
        nl.load(x)
    return x
""",
    good="""
@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    n = nisa.scalar_load(x)

    def body(i):
        nl.store(y[nl.ds(i, 1)], nl.load(x[nl.ds(i, 1)]))

    nl.fori_loop(0, n, body)
    return y
""",
)
def check_run_time_values(source: Source) -> Iterator[Seen]:
    for node in source.each(ast.Name):
        assert isinstance(node, ast.Name)
        use = _python_control(source, node) if _is_run_time(source, node) else None
        if use:
            yield Seen(node, f"{node.id} has no value yet; {use} needs one", "use nl.fori_loop or nl.while_loop")


_MAKES_SCALARS = frozenset({"nki.isa.scalar_load", "nki.isa.register_alloc"})


def _is_run_time(source: Source, node: ast.Name) -> bool:
    found = source.scopes.find(node)
    value = found[1].value if found else None
    return isinstance(value, ast.Call) and source.path(value.func) in _MAKES_SCALARS


def _python_control(source: Source, node: ast.expr) -> str | None:
    above = source.parents.get(node)
    match above:
        case ast.BinOp() | ast.Compare():
            return _python_control(source, above)
        case ast.UnaryOp(op=ast.Not()):
            return "not"
        case ast.UnaryOp():
            return _python_control(source, above)
        case ast.BoolOp():
            return "and/or"
        case ast.If(test=test) | ast.IfExp(test=test) if test is node:
            return "if"
        case ast.While(test=test) if test is node:
            return "while"
        case ast.Assert(test=test) if test is node:
            return "assert"
        case ast.Call(func=ast.Name(id="range" | "int" | "bool" | "float" | "len" as called)):
            return called
    return None
