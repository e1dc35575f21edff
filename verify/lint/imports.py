"""Rules on what comes in: which modules, which of their names, and that a module stays a module."""

import ast
from collections.abc import Iterator

from nkismith.verify.lint.names import DECORATORS_ONLY, NKI_MODULES, STDLIB
from nkismith.verify.lint.rule import Seen, rule
from nkismith.verify.lint.source import Source
from nkismith.verify.reasons import Reason

_ALLOWED = f"nki and its submodules, {', '.join(m for m in STDLIB if m != '__future__')}"


@rule(
    "import",
    reason=Reason.FORBIDDEN_IMPORT,
    what="A kernel imports nki and its submodules, math, functools, dataclasses, enum and typing; nothing else, "
    "nothing by `*`, nothing relative.",
    why="What a kernel computes must happen on the device. NumPy or PyTorch in a kernel run on the host while it is "
    "built, where tensors have no values; everything else reaches outside the kernel. The file must also run on a "
    "machine that has only NKI.",
    bad="""
import numpy as np

@nki.jit
def scale(x):
    return np.asarray(x) * 2
""",
    good="""
import math

@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=math.sqrt(4))
    nl.store(y, t)
    return y
""",
)
def check_imports(source: Source) -> Iterator[Seen]:
    for node in source.each(ast.Import, ast.ImportFrom):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name not in NKI_MODULES and alias.name not in STDLIB:
                    yield Seen(node, f"import of {alias.name}", f"a kernel may import {_ALLOWED}")
        elif isinstance(node, ast.ImportFrom):
            yield from _check_from(node)


def _check_from(node: ast.ImportFrom) -> Iterator[Seen]:
    module = node.module or ""
    if node.level or (module not in NKI_MODULES and module not in STDLIB):
        yield Seen(node, f"import from {'.' * node.level}{module}", f"a kernel may import {_ALLOWED}")
        return
    for alias in node.names:
        if alias.name == "*":
            yield Seen(node, f"import of everything in {module}", "name what you import")
        elif module in STDLIB and alias.name not in STDLIB[module]:
            yield Seen(node, f"import of {module}.{alias.name}", _offer(module))
        elif alias.name.startswith("_"):
            yield Seen(node, f"import of the private name {module}.{alias.name}", "use documented names of NKI")


def _offer(module: str) -> str:
    return f"of {module} a kernel may use {', '.join(sorted(STDLIB[module]))}"


@rule(
    "module_attribute",
    reason=Reason.FORBIDDEN_ACCESS,
    what="Of the standard library's modules only listed names may be used, such as `functools.partial`; of math all.",
    why="Modules hold the modules that they import: `enum.sys` is `sys`, and from there everything is in reach. Other "
    "names run text as code or copy tensors.",
    bad="""
import enum

@nki.jit
def scale(x):
    return enum.sys.modules["numpy"].asarray(x) * 2
""",
    good="""
import enum

class Mode(enum.Enum):
    DOUBLE = 2

@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=Mode.DOUBLE.value)
    nl.store(y, t)
    return y
""",
)
def check_module_attributes(source: Source) -> Iterator[Seen]:
    for node in source.each(ast.Attribute):
        assert isinstance(node, ast.Attribute)
        module = source.path(node.value)
        if module in STDLIB and node.attr not in STDLIB[module]:
            yield Seen(node, f"{module}.{node.attr}", _offer(module))


@rule(
    "module_as_value",
    reason=Reason.FORBIDDEN_ACCESS,
    what="A module is only ever followed by a dot: it is not assigned, passed, returned or put into a list.",
    why="Which names of a module may be used is decided by reading the source. A module that travels as a value would "
    "have to be followed through the program.",
    bad="""
import math

def helper(library):
    return library.sqrt(4)

@nki.jit
def scale(x):
    t = nl.load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=helper(math))
    return t
""",
    good="""
import math

def helper(value):
    return math.sqrt(value)

@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x)
    nisa.tensor_scalar(dst=t, data=t, op0=nl.multiply, operand0=helper(4))
    nl.store(y, t)
    return y
""",
)
def check_modules_stay_modules(source: Source) -> Iterator[Seen]:
    for node in source.each(ast.Name, ast.Attribute):
        path = source.path(node)
        above = source.parents.get(node)
        followed = isinstance(above, ast.Attribute) and above.value is node
        if path in NKI_MODULES | STDLIB.keys() and not followed and isinstance(getattr(node, "ctx", None), ast.Load):
            yield Seen(node, f"the module {path} is used as a value", f"write {path}.<name> where it is needed")


@rule(
    "decorator_call",
    reason=Reason.FORBIDDEN_ACCESS,
    what=f"{', '.join(sorted(DECORATORS_ONLY))} stand above a definition with `@` and are not called otherwise.",
    why="They change the object they are given. Called on a class or function of NKI they would rewrite the API under "
    "the recorder, and mean nothing on the device.",
    bad="""
from dataclasses import dataclass

dataclass(nl.NkiTensor)

@nki.jit
def scale(x):
    return x
""",
    good="""
from dataclasses import dataclass

@dataclass(frozen=True)
class Tiling:
    rows: int = 128

@nki.jit
def scale(x):
    y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    t = nl.load(x[0 : Tiling().rows])
    nl.store(y[0 : Tiling().rows], t)
    return y
""",
)
def check_decorator_calls(source: Source) -> Iterator[Seen]:
    for node in source.each(ast.Name, ast.Attribute):
        path = source.path(node)
        if path in DECORATORS_ONLY and isinstance(getattr(node, "ctx", None), ast.Load):
            above = source.parents[node]
            if isinstance(above, ast.Call) and above.func is node:
                node, above = above, source.parents[above]
            if not (isinstance(above, ast.FunctionDef | ast.ClassDef) and node in above.decorator_list):
                yield Seen(node, f"{path} is not used as a decorator", f"write @{path} above your own definition")
