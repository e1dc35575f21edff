"""Rules on what is reached: builtins, double-underscore names, attributes, and changes to objects of others."""

import ast
import builtins
import dis
import functools
from collections.abc import Iterator
from enum import Enum
from types import FunctionType

from nkismith.verify.lint.names import (
    BUILTINS,
    CLASS_NAMES,
    NKI_ATTRIBUTES,
    NKI_MODULES,
    PYTHON_ATTRIBUTES,
    SPECIAL_METHODS,
    STDLIB,
)
from nkismith.verify.lint.ownership import defined_attributes, is_self
from nkismith.verify.lint.rule import Seen, rule
from nkismith.verify.lint.source import Source
from nkismith.verify.reasons import Reason
from nkismith.verify.simulator.enums import ENUMS
from nkismith.verify.simulator.kernel import Kernel
from nkismith.verify.simulator.language.maths import Operator
from nkismith.verify.simulator.recorder import NkiInstruction
from nkismith.verify.simulator.scalars import NkiScalar, VirtualRegister
from nkismith.verify.simulator.tensor import NkiTensor

_REFUSED = frozenset(dir(builtins)) - BUILTINS
_WHY_REFUSED = {
    **dict.fromkeys(("getattr", "setattr", "delattr", "hasattr"), "write the attribute: value.name"),
    **dict.fromkeys(("repr", "ascii", "format"), "use str() or an f-string, in names and messages"),
    **dict.fromkeys(("id", "hash"), "compare values; ids and hashes differ from process to process"),
    **dict.fromkeys(("eval", "exec", "compile", "__import__"), "write the code itself"),
    "type": "use isinstance(value, kind)",
}


@rule(
    "builtin",
    reason=Reason.FORBIDDEN_ACCESS,
    what="Builtins that compute are allowed (len, range, min, zip, ...); those that look inside objects, run text, "
    "touch the outside or differ from process to process are not. Local variables may have any name.",
    why="A kernel is a function of shapes and dtypes. `getattr`, `vars` and `type` reach behind the API, `eval` hides "
    "code from the reader, `open` leaves the kernel, `id` and `hash` make the same source build different programs.",
    bad="""
@nki.jit
def scale(x):
    return getattr(nl, "load")(x)
""",
    good="""
@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    id, type = 0, nl.load(x)
    nl.store(y, type)
    return y
""",
)
def check_builtins(source: Source) -> Iterator[Seen]:
    for node in source.each(ast.Name):
        assert isinstance(node, ast.Name)
        found = source.scopes.find(node)
        if isinstance(node.ctx, ast.Load) and found is None and node.id not in BUILTINS:
            scope = source.scopes.of[node]
            if node.id in _REFUSED:
                yield Seen(node, f"{node.id} is not for kernels", _WHY_REFUSED.get(node.id, "do without it"))
            elif not _dunder(node.id) and not (scope.is_class and node.id in scope.names):
                yield Seen(node, f"{node.id} is not defined", "define or import it")
        elif node.id in _REFUSED and found and found[0] is source.scopes.module and not isinstance(node.ctx, ast.Load):
            # Before the assignment, or after a `del`, the name would still be the builtin.
            yield Seen(node, f"the module rebinds the builtin {node.id}", "choose another name")


def _dunder(name: str) -> bool:
    return name.startswith("__") and name.endswith("__")


@rule(
    "dunder",
    reason=Reason.FORBIDDEN_ACCESS,
    what="No name or attribute with double underscores, except `super().__init__(...)`, "
    "`super().__post_init__(...)`, the operator methods that a class may define, and `__slots__`.",
    why="They lead from any object to its class, from a class to all classes, from a function to its module: past the "
    "API and into the recorder. `__name__` and `__file__` tell the simulator and the device apart.",
    bad="""
@nki.jit
def scale(x):
    for kind in x.__class__.__base__.__subclasses__():
        print(kind)
    return x
""",
    good="""
class Tiles:
    def __init__(self, rows):
        self.rows = rows

    def __len__(self):
        return self.rows // 128

@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(len(Tiles(x.shape[0]))):
        nl.store(y[i * 128 : i * 128 + 128], nl.load(x[i * 128 : i * 128 + 128]))
    return y
""",
)
def check_dunders(source: Source) -> Iterator[Seen]:
    for node, name in _names(source):
        if name.startswith("__") and name.strip("_") and not _permitted_dunder(source, node, name):
            yield Seen(node, f"the name {name}", "use the documented API; compare kinds with isinstance")
    for node in source.each(ast.Constant):  # a name can also be given as a key: cls(**{"__class__": ...})
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and _dunder(node.value):
            yield Seen(node, f"the text {node.value!r} names something internal", "use the documented API")


def _names(source: Source) -> Iterator[tuple[ast.AST, str]]:
    """Everything that is a name: variables, attributes, parameters, keywords, definitions, patterns."""
    for node in source.nodes:
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name) | ast.keyword(arg=str(name)):
                yield node, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node, name
            case ast.alias(asname=str(name)):
                yield node, name
            case ast.MatchClass(kwd_attrs=names) | ast.Global(names=names) | ast.Nonlocal(names=names):
                yield from ((node, name) for name in names)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                yield node, name


def _permitted_dunder(source: Source, node: ast.AST, name: str) -> bool:
    in_class = isinstance(source.parents.get(node), ast.ClassDef)
    match node:
        case ast.FunctionDef():
            return in_class and name in SPECIAL_METHODS
        case ast.Attribute(value=ast.Call(func=ast.Name(id="super") as name_of_super, args=[], keywords=[])):
            call = source.parents[node]
            called = isinstance(call, ast.Call) and call.func is node
            builtin = source.scopes.find(name_of_super) is None
            return called and builtin and name in ("__init__", "__post_init__")
        case ast.Name(ctx=ast.Store()):
            return isinstance(source.scopes.of[node].node, ast.ClassDef) and name in CLASS_NAMES
    return False


@rule(
    "attribute",
    reason=Reason.FORBIDDEN_ACCESS,
    what="An attribute is one that NKI documents, that Python's numbers, strings and containers have, or that a class "
    "in this file defines. `str.format` is not among them; use an f-string.",
    why="Objects of the recorder have more attributes than those of the real API. A kernel that uses them does not run "
    "on the device, and could write its own trace. `str.format` reads attributes that are named in text.",
    bad="""
@nki.jit
def scale(x):
    return x.operand().buffer
""",
    good="""
from typing import NamedTuple

class Plan(NamedTuple):
    rows: int
    columns: int

@nki.jit
def scale(x):
    plan = Plan(*x.shape)
    y = nl.ndarray((plan.rows, plan.columns), dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(y, nl.load(x.reshape((plan.rows, plan.columns))))
    return y
""",
)
def check_attributes(source: Source) -> Iterator[Seen]:
    own, internal = defined_attributes(source), _internal_attributes()
    known = NKI_ATTRIBUTES | PYTHON_ATTRIBUTES | own
    for node in source.nodes:
        match node:
            case ast.Attribute(value=value, attr=name):
                module = source.path(value)
                if module in STDLIB or (module in NKI_MODULES and not name.startswith("_")):
                    continue  # module_attribute judges the one, the recorder knows the other
                if is_self(source, value) and name in own:
                    continue
                names = [name]
            case ast.MatchClass(cls=cls, kwd_attrs=names):
                # A pattern swallows the AttributeError of an attribute that only one of simulator and device has.
                names = [n for n in names if not (n in own - NKI_ATTRIBUTES and source.path(cls) is None)]
                names = [n for n in names if n not in _EVERYWHERE]
                yield from (Seen(node, f"pattern on the attribute {n}", "ask isinstance, then read it") for n in names)
                continue
            case _:
                continue
        for name in names:
            if not name.startswith("__") and name not in known:
                yield Seen(node, f"unknown attribute .{name}", "use a documented one, or define one of your own")
            elif name in internal:
                yield Seen(node, f".{name} may be the recorder's own", "name your attribute otherwise")


_EVERYWHERE = frozenset({"shape", "dtype", "value", "name"})


@functools.cache
def _internal_attributes() -> frozenset[str]:
    """What objects in a kernel's hands have in this simulator and not in the documentation. A class of the kernel that
    defines a field of that name must not make it permitted on a tensor."""
    internal: set[str] = set()
    for kind in (NkiTensor, NkiScalar, VirtualRegister, NkiInstruction, Operator, Kernel, Enum, *ENUMS):
        internal |= {name for name in (*dir(kind), *vars(kind)) if not name.startswith("__")}
        for function in vars(kind).values():
            if isinstance(function, FunctionType):
                steps = dis.get_instructions(function)
                internal |= {step.argval for step in steps if step.opname == "STORE_ATTR"}
    return frozenset(internal) - NKI_ATTRIBUTES - PYTHON_ATTRIBUTES


@rule(
    "patch",
    reason=Reason.FORBIDDEN_ACCESS,
    what="Only attributes of objects whose class is defined in this file may be set or deleted, and an imported name "
    "keeps its meaning.",
    why="Replacing `nl.load`, or the shape of a tensor, changes what the recorder sees and not what the device does.",
    bad="""
@nki.jit
def scale(x):
    x.shape = (1, 1)
    return x
""",
    good="""
class Cursor:
    def __init__(self):
        self.row = 0

@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    cursor = Cursor()
    while cursor.row < x.shape[0]:
        nl.store(y[cursor.row : cursor.row + 1], nl.load(x[cursor.row : cursor.row + 1]))
        cursor.row += 1
    return y
""",
)
def check_patches(source: Source) -> Iterator[Seen]:
    own, others = defined_attributes(source), NKI_ATTRIBUTES | _internal_attributes()
    for node in source.each(ast.Attribute, ast.Subscript):
        assert isinstance(node, ast.Attribute | ast.Subscript)
        if isinstance(node, ast.Subscript) or isinstance(node.ctx, ast.Load):
            if source.path(node.value) is not None and not isinstance(node.ctx, ast.Load):
                yield Seen(node, "an element of something imported is set", "keep it in a variable")
            continue
        known = node.attr in own and source.path(node.value) is None
        if not known or (node.attr in others and not is_self(source, node.value)):
            yield Seen(node, f".{node.attr} is set on an object of another", "keep it in a variable")
    for scope in source.scopes.all:
        for name, binding in scope.names.items():
            if binding.mixed:
                yield Seen(scope.node, f"{name} is imported and also bound to something else", "use two names")
