"""Which binding a name means, as Python resolves it: who may shadow whom decides what `id`, `nl` or `open` is."""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass, field

Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


@dataclass(slots=True)
class Binding:
    """All bindings of one name in one scope."""

    imported: str | None = None  # dotted path, if every binding is an import of it
    mixed: bool = False  # imported, and also bound to something else
    values: list[ast.expr] = field(default_factory=list)  # right-hand sides of plain assignments `name = value`
    defined: ast.AST | None = None  # the last def or class statement
    times: int = 0

    @property
    def value(self) -> ast.expr | None:
        """The one value that the name ever has here, if that is how it is bound."""
        return self.values[0] if self.times == len(self.values) == 1 else None


@dataclass(slots=True, eq=False)
class Scope:
    """A module, class, function, lambda or comprehension."""

    node: ast.AST
    parent: Scope | None
    names: dict[str, Binding] = field(default_factory=dict)
    elsewhere: dict[str, Scope] = field(default_factory=dict)  # declared global or nonlocal

    @property
    def is_class(self) -> bool:
        return isinstance(self.node, ast.ClassDef)

    def bind(
        self, name: str, *, imported: str | None = None, value: ast.expr | None = None, defined: ast.AST | None = None
    ) -> None:
        """Note one more binding of `name`, here or where it was declared to live."""
        if name in self.elsewhere:
            self.elsewhere[name].bind(name, imported=imported, value=value, defined=defined)
            return
        first = name not in self.names
        binding = self.names.setdefault(name, Binding())
        binding.mixed = binding.mixed or (not first and binding.imported != imported)
        binding.imported = None if binding.mixed else imported
        binding.defined = defined or binding.defined
        binding.times += 1
        if value is not None:
            binding.values.append(value)

    def find(self, name: str) -> tuple[Scope, Binding] | None:
        """The nearest binding of `name` from here outwards, past class bodies, which nothing inside them sees."""
        if name in self.names:
            return self, self.names[name]
        outer = self.parent
        while outer is not None and outer.is_class:
            outer = outer.parent
        return outer.find(name) if outer else None


class Scopes:
    """The scopes of a module and what its names mean."""

    def __init__(self, tree: ast.Module) -> None:
        self.of: dict[ast.AST, Scope] = {}  # the scope in which a node is evaluated
        self.module = Scope(tree, None)
        self.all = [self.module]
        self._walk(tree.body, self.module)

    def find(self, name: ast.Name) -> tuple[Scope, Binding] | None:
        """The scope and binding that `name` refers to, None for a builtin or an undefined name.

        In a class body a name that is not bound yet falls back to what is outside, so there the outer one counts.
        """
        scope = self.of.get(name, self.module)
        if scope.is_class and isinstance(name.ctx, ast.Load) and scope.parent:
            return scope.parent.find(name.id)
        return scope.find(name.id)

    def _inside(self, node: ast.AST, parent: Scope) -> Scope:
        self.all.append(Scope(node, parent))
        return self.all[-1]

    def _walk(self, nodes: Iterable[ast.AST | None], scope: Scope) -> None:
        for node in nodes:
            if node is not None:
                self._visit(node, scope)

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        self.of[node] = scope
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Lambda():
                self._function(node, scope)
            case ast.ClassDef():
                scope.bind(node.name, defined=node)
                self._walk([*node.decorator_list, *node.bases, *node.keywords], scope)
                self._walk(node.body, self._inside(node, scope))
            case ast.ListComp() | ast.SetComp() | ast.DictComp() | ast.GeneratorExp():
                self._comprehension(node, scope)
            case ast.Assign(targets=[ast.Name(id=name) as target], value=value):
                scope.bind(name, value=value)
                self.of[target] = scope
                self._visit(value, scope)
            case ast.NamedExpr(target=target, value=value):
                outer = scope
                while isinstance(outer.node, Comprehension) and outer.parent:
                    outer = outer.parent
                outer.bind(target.id)
                self.of[target] = scope
                self._visit(value, scope)
            case _:
                self._bind(node, scope)
                self._walk(ast.iter_child_nodes(node), scope)

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda, scope: Scope) -> None:
        arguments = node.args
        inner = self._inside(node, scope)
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        named += [a for a in (arguments.vararg, arguments.kwarg) if a]
        for argument in named:
            self.of[argument] = inner
            inner.bind(argument.arg)
        # Defaults, annotations and decorators are evaluated outside: they do not see the parameters.
        self._walk([*arguments.defaults, *arguments.kw_defaults, *(a.annotation for a in named)], scope)
        if isinstance(node, ast.Lambda):
            self._visit(node.body, inner)
            return
        scope.bind(node.name, defined=node)
        self._walk([*node.decorator_list, node.returns], scope)
        self._walk(node.body, inner)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp, scope: Scope) -> None:
        inner = self._inside(node, scope)
        self._visit(node.generators[0].iter, scope)  # evaluated outside: it does not see the targets
        for i, generator in enumerate(node.generators):
            self.of[generator] = inner
            self._walk([generator.target, generator.iter if i else None, *generator.ifs], inner)
        self._walk([node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt], inner)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        match node:
            case ast.Name(id=name, ctx=ast.Store() | ast.Del()):
                scope.bind(name)
            case ast.Import(names=aliases):
                for alias in aliases:
                    path = alias.name if alias.asname else alias.name.split(".")[0]
                    scope.bind(alias.asname or path, imported=path)
            case ast.ImportFrom(module=module, names=aliases):
                for alias in aliases:
                    scope.bind(alias.asname or alias.name, imported=f"{module}.{alias.name}")
            case ast.Global(names=names):
                scope.elsewhere.update(dict.fromkeys(names, self.module))
            case ast.Nonlocal(names=names):
                for name in names:
                    found = scope.parent.find(name) if scope.parent else None
                    if found:
                        scope.elsewhere[name] = found[0]
            case ast.ExceptHandler(name=str(name)) | ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
                scope.bind(name)
            case ast.MatchMapping(rest=str(name)):
                scope.bind(name)
