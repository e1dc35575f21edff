"""Rules on definitions: the entry point and its signature, classes, decorators."""

import ast
from collections.abc import Iterator

from nkismith.verify.lint.names import BASES, DECORATORS
from nkismith.verify.lint.rule import Seen, rule
from nkismith.verify.lint.source import Source
from nkismith.verify.reasons import Reason


@rule(
    "entry",
    reason=Reason.NO_ENTRY,
    what="The file defines one function with the op's name, at the top level, with @nki.jit as its only decorator, and "
    "binds that name nowhere else.",
    why="That function is what is verified, stored and later called on the device; there must be no doubt which it is.",
    bad="""
@nki.jit
def scaled(x):
    return x
""",
    good="""
@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(y, nl.load(x))
    return y
""",
)
def check_entry(source: Source) -> Iterator[Seen]:
    name = source.entry
    found = [n for n in source.tree.body if isinstance(n, ast.FunctionDef) and n.name == name]
    fix = f"define it once: @nki.jit, then def {name}({', '.join(source.params)})"
    if not found:
        yield Seen(1, f"no function {name} at the top level", fix)
        return
    if source.scopes.module.names[name].times > 1:
        yield Seen(found[-1], f"{name} is bound more than once", fix)
    decorators = found[0].decorator_list
    jit = [d for d in decorators if source.path(d.func if isinstance(d, ast.Call) else d) == "nki.jit"]
    if len(jit) != 1 or len(decorators) != 1:
        yield Seen(found[0], f"{name} has not @nki.jit as its only decorator", fix)


@rule(
    "signature",
    reason=Reason.WRONG_SIGNATURE,
    what="The entry point's parameters are the spec's inputs, by name and in order, without defaults, `*` or `**`.",
    why="The registry calls every accepted kernel of an op in the same way, here and on the device.",
    bad="""
@nki.jit
def scale(tensor, factor=2):
    return tensor
""",
    good="""
FACTOR = 2

@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=FACTOR)
    nl.store(y, t)
    return y
""",
)
def check_signature(source: Source) -> Iterator[Seen]:
    for node in source.tree.body:
        if isinstance(node, ast.FunctionDef) and node.name == source.entry:
            a = node.args
            names = tuple(p.arg for p in (*a.posonlyargs, *a.args))
            if names != source.params or a.vararg or a.kwonlyargs or a.kwarg or a.defaults:
                yield Seen(
                    node,
                    f"{source.entry}({ast.unparse(a)}) instead of {source.entry}({', '.join(source.params)})",
                    "take the spec's inputs, in its order; make everything else a constant of the module",
                )


@rule(
    "class_base",
    reason=Reason.FORBIDDEN_ACCESS,
    what="A class inherits from classes of this file, object, NKIObject, Enum and its kin, NamedTuple, Protocol, "
    "Generic or an exception; it has no metaclass.",
    why="An int, a tuple or a tensor with methods of one's own can give the recorder another value each time it looks.",
    bad="""
class Rows(int):
    pass

@nki.jit
def scale(x):
    return nl.ndarray((Rows(128), 1), dtype=x.dtype, buffer=nl.shared_hbm)
""",
    good="""
class Tiling(nl.NKIObject):
    rows: int

class Narrow(Tiling):
    columns: int

@nki.jit
def scale(x):
    tiling = Narrow(rows=128, columns=1)
    return nl.ndarray((tiling.rows, tiling.columns), dtype=x.dtype, buffer=nl.shared_hbm)
""",
)
def check_class_bases(source: Source) -> Iterator[Seen]:
    for node in source.each(ast.ClassDef):
        assert isinstance(node, ast.ClassDef)
        for keyword in node.keywords:
            yield Seen(keyword.value, f"class keyword {keyword.arg}", "leave it out")
        for base in node.bases:
            plain = base.value if isinstance(base, ast.Subscript) else base
            if not _is_known_base(source, plain):
                yield Seen(base, f"base class {ast.unparse(base)[:60]}", "hold the value in a field instead")


def _is_known_base(source: Source, base: ast.expr) -> bool:
    if source.path(base) in BASES:
        return True
    if not isinstance(base, ast.Name):
        return False
    found = source.scopes.find(base)
    if found is None:
        return base.id in ("object", "Exception", "AssertionError", "ValueError", "TypeError", "NotImplementedError")
    return isinstance(found[1].defined, ast.ClassDef) and found[1].times == 1


@rule(
    "decorator",
    reason=Reason.FORBIDDEN_ACCESS,
    what=f"Decorators are {', '.join(sorted(DECORATORS))}, staticmethod, classmethod, property, and own functions.",
    why="A decorator replaces what the reader sees below it. These ones are known not to.",
    bad="""
@nki.jit
@nl.load
def scale(x):
    return x
""",
    good="""
import functools

@functools.cache
def rows_per_tile(rows):
    return min(rows, 128)

@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    p = rows_per_tile(x.shape[0])
    nl.store(y[0:p], nl.load(x[0:p]))
    return y
""",
)
def check_decorators(source: Source) -> Iterator[Seen]:
    for node in source.each(ast.FunctionDef, ast.ClassDef):
        assert isinstance(node, ast.FunctionDef | ast.ClassDef)
        for decorator in node.decorator_list:
            target = decorator.func if isinstance(decorator, ast.Call) else decorator
            if source.path(target) in DECORATORS:
                continue
            found = source.scopes.find(target) if isinstance(target, ast.Name) else None
            plain = isinstance(target, ast.Name) and target.id in ("staticmethod", "classmethod", "property")
            if not (plain and found is None) and not (found and isinstance(found[1].defined, ast.FunctionDef)):
                yield Seen(decorator, f"decorator {ast.unparse(target)[:60]}", "apply it by hand, or leave it out")
