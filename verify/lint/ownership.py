"""Which attributes are a draft's own, and when `self` is surely an object of the draft's own class.

A method is a function, and `Own.method(tensor)` would make a tensor its `self`. So `self` counts as own only in classes
that are used in no way by which a method could get at a foreign object.
"""

import ast
import functools

from nkismith.verify.lint.source import Source

_GENERATIONS = 20  # of subclasses that are looked through
_PLAIN_USES = (ast.arg, ast.AnnAssign, ast.FunctionDef)  # annotations


@functools.lru_cache(maxsize=4)
def defined_attributes(source: Source) -> frozenset[str]:
    """Names that classes of this file define: methods, class variables, fields, and what their methods set on self."""
    own: set[str] = set()
    for definition in source.each(ast.ClassDef):
        assert isinstance(definition, ast.ClassDef)
        for statement in definition.body:
            match statement:
                case ast.FunctionDef(name=name):
                    own.add(name)
                    own |= _set_on_first(statement)
                case ast.AnnAssign(target=ast.Name(id=name)):
                    own.add(name)
                case ast.Assign(targets=targets):
                    own |= {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}
    return frozenset(own)


def _set_on_first(method: ast.FunctionDef) -> set[str]:
    return {
        node.attr
        for node in ast.walk(method)
        if isinstance(node, ast.Attribute)
        and isinstance(node.ctx, ast.Store)
        and isinstance(node.value, ast.Name)
        and node.value.id == _first(method)
    }


def _first(method: ast.FunctionDef) -> str | None:
    parameters = [*method.args.posonlyargs, *method.args.args]
    return parameters[0].arg if parameters else None


def is_self(source: Source, node: ast.expr) -> bool:
    """Whether `node` is the first parameter, never bound again, of a method that only its own objects can have."""
    found = source.scopes.find(node) if isinstance(node, ast.Name) else None
    if found is None or not isinstance(node, ast.Name):
        return False
    scope, binding = found
    method, owner = scope.node, source.parents.get(scope.node)
    if not isinstance(method, ast.FunctionDef) or not isinstance(owner, ast.ClassDef):
        return False
    return _first(method) == node.id and binding.times == 1 and not _escapes(source, owner, frozenset(), frozenset())


@functools.lru_cache(maxsize=64)
def _escapes(source: Source, owner: ast.ClassDef, inherited: frozenset[str], seen: frozenset[ast.ClassDef]) -> bool:
    """Whether a method of `owner`, or one that it has `inherited`, may be called on an object of another class."""
    if owner in seen or len(seen) > _GENERATIONS:
        return owner not in seen
    methods = inherited | {s.name for s in owner.body if isinstance(s, ast.FunctionDef)}
    for statement in owner.body:
        if isinstance(statement, ast.FunctionDef):
            if any(not _is_property(source, decorator) for decorator in statement.decorator_list):
                return True
        elif any(isinstance(n, ast.Name) and n.id in methods for n in ast.walk(statement)):
            return True  # a method in a variable of the class
    for name in _uses(source).get(owner, ()):
        above = source.parents[name]
        if isinstance(above, ast.ClassDef) and name in above.bases:
            if _escapes(source, above, methods, seen | {owner}):
                return True
        elif not _is_plain_use(source, name, methods):
            return True
    return False


@functools.lru_cache(maxsize=4)
def _uses(source: Source) -> dict[ast.AST, list[ast.Name]]:
    """Where each class of the file is named."""
    uses: dict[ast.AST, list[ast.Name]] = {}
    for name in source.each(ast.Name):
        assert isinstance(name, ast.Name)
        found = source.scopes.find(name)
        if isinstance(name.ctx, ast.Load) and found and isinstance(found[1].defined, ast.ClassDef):
            uses.setdefault(found[1].defined, []).append(name)
    return uses


def _is_property(source: Source, decorator: ast.expr) -> bool:
    return isinstance(decorator, ast.Name) and decorator.id == "property" and source.scopes.find(decorator) is None


def _is_plain_use(source: Source, name: ast.Name, methods: frozenset[str]) -> bool:
    """Calling the class, asking isinstance, annotating, or reading a class variable."""
    above = source.parents[name]
    match above:
        case ast.Call(func=func) if func is name:
            return True
        case ast.Call(func=ast.Name(id="isinstance" | "issubclass")):
            return True
        case ast.Attribute(attr=attr):
            return attr not in methods
    while isinstance(above, ast.Subscript | ast.Tuple | ast.BinOp):
        above = source.parents[above]
    return isinstance(above, _PLAIN_USES)
