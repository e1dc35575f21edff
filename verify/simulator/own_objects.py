"""A draft's own attribute names reach its own objects only: checked while the draft runs.

Lint permits an attribute that NKI or Python's values document, and one that a class of the draft defines. Of which
object the latter is read cannot be told from the source: a class with a field `gi_frame` would open the frames of the
recorder, one with a field `row` the storage behind a tensor. So the recording child compiles the draft with each such
access, and with each change of an attribute, behind a look at the object at hand.

Python also drops exceptions in a few places (an AttributeError in a property that a pattern or a default asks for, a
TypeError in `__len__` that `list` asks for), which would let a draft find out what this API refuses. Here they stay.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

from nkismith.verify.simulator.errors import ForeignAttribute

CHECK, SIZED = "__own__", "__sized__"  # drafts cannot name them: lint refuses double underscores
_HEAP_TYPE = 1 << 9  # of type.__flags__: made while Python runs (Include/object.h)


def compile_draft(source: str, file: str, documented: frozenset[str]) -> CodeType:
    """Code of a draft that calls CHECK(object, name) for every attribute it changes and for every one it reads that
    is not `documented`, and decorates its `__len__` methods with SIZED. Raises SyntaxError."""
    tree = ast.parse(source, file)
    changed = ast.fix_missing_locations(_Checked(documented, _modules(tree)).visit(tree))
    return compile(changed, file, "exec", dont_inherit=True)


def _modules(tree: ast.Module) -> frozenset[str]:
    """Names that are bound to imports and, in no scope, to anything else."""
    imported, others = set(), set()
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=aliases):
                imported |= {alias.asname or alias.name.split(".")[0] for alias in aliases}
            case ast.ImportFrom(names=aliases):
                imported |= {alias.asname or alias.name for alias in aliases}
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()) | ast.arg(arg=name):
                others.add(name)
            case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
                others.add(name)
            case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)) | ast.MatchMapping(rest=str(name)):
                others.add(name)
            case ast.ExceptHandler(name=str(name)):
                others.add(name)
    return frozenset(imported - others)


class _Checked(ast.NodeTransformer):
    def __init__(self, documented: frozenset[str], modules: frozenset[str]) -> None:
        self._documented, self._modules = documented, modules

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        reads = isinstance(node.ctx, ast.Load)
        of_module = isinstance(node.value, ast.Name) and node.value.id in self._modules
        self.generic_visit(node)
        if not reads or not (of_module or node.attr in self._documented):
            check = ast.Name(CHECK, ast.Load())
            node.value = ast.Call(check, [node.value, ast.Constant(node.attr)], [])
            ast.copy_location(node.value, node)
        return node

    def visit_MatchClass(self, node: ast.MatchClass) -> ast.AST:
        """The class of a pattern must stay a dotted name; it is only asked whether the value is one of it."""
        node.patterns = [self.visit(p) for p in node.patterns]
        node.kwd_patterns = [self.visit(p) for p in node.kwd_patterns]
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        self.generic_visit(node)
        if node.name == "__len__":
            node.decorator_list.append(ast.copy_location(ast.Name(SIZED, ast.Load()), node))
        return node


class OwnObjects:
    """Knows the classes that were there before the draft; what is made of any other class is the draft's own."""

    def __init__(self) -> None:
        self._others: set[type] = set()
        waiting: list[type] = [object]
        while waiting:
            kind = waiting.pop()
            if kind not in self._others:
                self._others.add(kind)
                waiting += type.__subclasses__(kind)
        self._own: set[type] = set()

    def check(self, value: Any, name: str) -> Any:
        """`value`, if the draft may use attributes of its own naming on it. Raises ForeignAttribute."""
        kind = type(value)
        if kind in self._own:
            return value
        if issubclass(kind, type):  # a class: not the methods of its metaclass, such as `register`
            own = self._made(value) and not hasattr(kind, name)
        elif issubclass(kind, ModuleType) or kind is super:  # lint judges the names of modules
            own = True
        else:
            own = self._made(kind)
            if own:
                self._own.add(kind)
        if not own:
            raise ForeignAttribute(name, kind.__name__)
        return value

    def _made(self, kind: type) -> bool:
        return kind not in self._others and bool(kind.__flags__ & _HEAP_TYPE)

    def builtins(self) -> dict[str, Any]:
        """What a compiled draft needs beside Python's builtins."""
        return {CHECK: self.check, SIZED: _sized, "property": _Property}


class _Property(property):
    """A property in which a missing attribute is an error and not an answer."""

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        try:
            return super().__get__(instance, owner)
        except AttributeError as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error


def _sized(method: Callable[[Any], int]) -> Callable[[Any], int]:
    """A `__len__` in which a TypeError is an error and not an answer."""

    @functools.wraps(method)
    def __len__(self: Any) -> int:
        try:
            return method(self)
        except TypeError as error:
            raise RuntimeError(f"{type(error).__name__}: {error}") from error

    return __len__
