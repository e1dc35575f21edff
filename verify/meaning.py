"""Hashes of what a verdict and a profile rest on: the code that gives instructions their meaning, and their time.

A hash follows functions to everything they use: other functions, classes, tables and constants of ours. Wording is no
part of it: comments, docstrings, formatted messages and what a refusal says. So a verdict goes stale when an
instruction of its kernel is checked or computed in another way, a profile when the timing model or a number in it
changed, and neither when a sentence did.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import numpy as np

from nkismith.kernels.spec import OpSpec
from nkismith.verify.recording import Request
from nkismith.verify.simulator import execute, legality
from nkismith.verify.simulator.hardware import Estimate, Target
from nkismith.verify.simulator.instruction import TABLE, Definition
from nkismith.verify.simulator.machine import Machine
from nkismith.verify.simulator.memory import Memory

_OURS = "nkismith."
_HERE = Path(__file__).parent
_FILES = {"spec": "spec.yaml", "reference": "reference.py"}
_MEANING = ("check", "run", "taint", "accumulates", "engine")
_SHARED = (execute.execute, legality.check, Machine, Memory)
# What only the timing model reads; any other number of a target may be a limit.
_RATES = ("_ghz", "_gb_s", "_lanes", "_lanes_16bit", "dma_engines")
_WORDING = ("source", "reason")  # of an Estimate


def instructions(names: Iterable[str]) -> dict[str, str]:
    """A hash for each instruction, and `shared` for the machine, memories and general legality under all of them."""
    found = {name: _meaning(name) for name in sorted(set(names))}
    return {**found, "shared": _shared()}


def timing(names: Iterable[str]) -> str:
    """The hash of the timing model and of the cost of these instructions."""
    from nkismith.verify.timing import profile_trace
    from nkismith.verify.timing.cost import COSTS

    costs = [(name, COSTS.get(name), TABLE[name].engine) for name in sorted(set(names))]
    return _digest((profile_trace, costs), rates=True, rows_of=COSTS)


def subject(request: Request, spec: OpSpec, names: Iterable[str]) -> str:
    """The hash of all that a mutation score is for: kernel, spec, reference, instructions used, SDK, target, LNC."""
    files = {part: (spec.folder / file).read_bytes() for part, file in _FILES.items()}
    parts = {part: hashlib.sha256(data).hexdigest() for part, data in files.items()}
    parts["kernel"] = hashlib.sha256(request.source.encode()).hexdigest()
    machine = {"sdk": request.sdk, "target": request.target, "lnc": str(request.lnc)}
    return combined(parts | machine | instructions(names))


def combined(hashes: Mapping[str, str]) -> str:
    """One hash for many."""
    return hashlib.sha256("".join(f"{k}={hashes[k]}\n" for k in sorted(hashes)).encode()).hexdigest()


@cache
def _meaning(name: str) -> str:
    definition = TABLE[name]
    facts = (definition.params, definition.engines, definition.targets, definition.since, definition.until)
    return _digest((facts, *(getattr(definition, part) for part in _MEANING)), rates=False)


@cache
def _shared() -> str:
    return _digest(_SHARED, rates=False)


def _digest(roots: tuple[Any, ...], rates: bool, rows_of: object = None) -> str:
    walk = _Walk(rates, rows_of)
    walk.visit(roots)
    return walk.hash.hexdigest()


class _Walk:
    """Feeds a hash with everything reachable from some objects, each once.

    rates: whether numbers that only the timing model reads count. rows_of: a table of which only the rows among the
    roots count.
    """

    def __init__(self, rates: bool, rows_of: object) -> None:
        self.rates, self.rows_of = rates, rows_of
        self.hash = hashlib.sha256()
        self.seen: set[int] = set()

    def say(self, *words: object) -> None:
        self.hash.update(("\x00".join(map(str, words)) + "\n").encode())

    def visit(self, thing: Any) -> None:
        if thing is self.rows_of and thing is not None:
            return
        match thing:
            case None | bool() | int() | float() | str() | bytes() | complex():
                self.say(type(thing).__name__, thing)
            case Enum():
                self.say(type(thing).__name__, thing.name)
            case tuple() | list():
                self.say("list", len(thing))
                for item in thing:
                    self.visit(item)
            case set() | frozenset():
                self.visit(sorted(thing, key=str))
            case dict():
                self.say("dict", len(thing))
                for key, value in thing.items():
                    self.visit(key)
                    self.visit(value)
            case np.ufunc() | np.dtype():
                self.say(type(thing).__name__, thing)
            case _:
                if id(thing) not in self.seen:
                    self.seen.add(id(thing))
                    self._object(thing)

    def _object(self, thing: Any) -> None:
        thing = inspect.unwrap(thing) if callable(thing) else thing
        if isinstance(thing, MethodType):
            thing = thing.__func__
        if isinstance(thing, Definition):
            return  # hashed for the instructions that are used
        if isinstance(thing, FunctionType):
            self._function(thing)
        elif isinstance(thing, type):
            self._class(thing)
        elif isinstance(thing, property):
            self.visit(thing.fget)
        elif is_dataclass(thing):
            self.say(type(thing).__name__)
            for field in fields(thing):
                if not self._is_left_out(thing, field.name):
                    self.say(field.name)
                    self.visit(getattr(thing, field.name))

    def _is_left_out(self, thing: Any, name: str) -> bool:
        if isinstance(thing, Estimate):
            return name in _WORDING
        return isinstance(thing, Target) and not self.rates and name.endswith(_RATES)

    def _class(self, thing: type) -> None:
        if not thing.__module__.startswith(_OURS) or (thing is Target and not self.rates):
            return
        self.say("class", thing.__qualname__)
        if issubclass(thing, Enum):
            self.say(*(member.name for member in thing))
            return
        for name, member in vars(thing).items():
            if isinstance(member, FunctionType | property | staticmethod | classmethod):
                self.visit(getattr(member, "__func__", member))
            elif not name.startswith("__"):
                self.say(name)
                if isinstance(member, int | float | str | tuple | frozenset):
                    self.visit(member)
        self.visit(thing.__bases__)

    def _function(self, function: FunctionType) -> None:
        nodes = list(_nodes(function.__code__))
        if not nodes:  # generated by a dataclass, or not ours: its name has been said
            return
        for node in nodes:
            self.say(*_words(node))
        for cell in function.__closure__ or ():
            self.visit(cell.cell_contents)
        self.visit(function.__defaults__)
        names = sorted(set(_names(function.__code__)) - {"__file__"})  # where a module lies means nothing
        for name in names:
            if name in function.__globals__:
                self.say(name)
                self._global(function.__globals__[name], names)

    def _global(self, thing: Any, names: list[str]) -> None:
        """What a global name stands for; of a module of ours, what the function can take from it."""
        if not isinstance(thing, ModuleType):
            self.visit(thing)
        elif thing.__name__.startswith(_OURS):
            for name in names:
                if name in vars(thing):
                    self.say(name)
                    self._global(vars(thing)[name], names)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _nodes(code: CodeType) -> Iterator[ast.AST]:
    """The source of a function of ours: its own node, or every lambda of its line; nothing for generated code."""
    if Path(code.co_filename).is_relative_to(_HERE):
        yield from _index(code.co_filename).get(code.co_firstlineno, ())


@cache
def _index(file: str) -> dict[int, list[ast.AST]]:
    found: dict[int, list[ast.AST]] = {}
    for node in ast.walk(ast.parse(Path(file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.FunctionDef | ast.Lambda):
            decorators = getattr(node, "decorator_list", [])
            found.setdefault(min([node.lineno, *(d.lineno for d in decorators)]), []).append(node)
    return found


def _words(node: object) -> Iterator[str]:
    """A syntax tree as words that are the same in every Python version, without what only people read."""
    match node:
        case ast.JoinedStr():
            yield "text"
        case ast.Expr(value=ast.Constant(value=str())):
            pass
        case ast.Call(func=ast.Attribute(attr="refuse" | "warn"), args=[rule, *_]):
            yield from ("refuse", *_words(rule))
        case ast.AST():
            yield type(node).__name__
            for name in sorted(node._fields):
                value = getattr(node, name, None)
                if value not in (None, []) and name not in ("annotation", "returns", "ctx", "kind", "type_comment"):
                    yield name
                    yield from _words(value)
        case list():
            yield str(len(node))
            for item in node:
                yield from _words(item)
        case _:
            yield repr(node)
