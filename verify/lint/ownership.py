"""Which attributes are a draft's own, and when an object looks like one of the draft's own class.

A method is a function, and `Own.method(tensor)` makes a tensor its `self`. What the source cannot tell, the recording
child finds out: there an attribute of the draft's own naming reaches objects of its own classes only.
"""

import ast
import functools

from nkismith.verify.lint.source import Source


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
    """Whether `node` is the first parameter, never bound again, of a method."""
    found = source.scopes.find(node) if isinstance(node, ast.Name) else None
    if found is None or not isinstance(node, ast.Name):
        return False
    scope, binding = found
    method = scope.node
    if not isinstance(method, ast.FunctionDef) or not isinstance(source.parents.get(method), ast.ClassDef):
        return False
    return _first(method) == node.id and binding.times == 1
