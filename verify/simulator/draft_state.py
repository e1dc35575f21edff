"""What a draft's module keeps between two builds, as digests: a kernel that remembers builds differently next time.

Reading the source cannot find all state: it hides in closures, objects, iterators, cached values and behind other
names. So the recording child compares every top-level name before and after it has built the cases.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from enum import Enum
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, GeneratorType, MethodType
from typing import Any

_ATOMS = (int, float, complex, str, bytes, range, slice, type(None))
_ITERABLES: tuple[Any, ...] = ([], (), {}, {}.values(), {}.items(), set(), "", range(0), range(1 << 70), reversed([]))
_ITERATORS: tuple[type, ...] = (
    enumerate,
    zip,
    map,
    filter,
    reversed,
    type(iter(int, 1)),
    *(type(iter(i)) for i in _ITERABLES),
)
_CACHE, _LINK = "_lru_cache_wrapper", "_lru_list_elem"
_PLAIN = (*_ATOMS, tuple, frozenset, type, FunctionType, BuiltinFunctionType)
# Left out of classes: what every class has, and where Flag keeps combinations that it has met.
_OF_CLASSES = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "_value2member_map_"})


def digests(namespace: Mapping[str, Any], module: str) -> dict[str, bytes]:
    """A digest for each name of the namespace of `module`, over all state that can be reached from its value."""
    return {name: _digest(value, module) for name, value in namespace.items() if name != "__builtins__"}


def _digest(root: Any, module: str) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    seen: dict[int, int] = {}
    stack, alive = [root], []  # `alive`: values made on the way keep their ids until the end
    while stack:
        value = stack.pop()
        if id(value) in seen:
            digest.update(b"@%d;" % seen[id(value)])
            continue
        seen[id(value)] = len(seen)
        alive.append(value)
        children = list(_children(value, module))
        atom = repr(value) if isinstance(value, _ATOMS) and not isinstance(value, Enum) else ""
        digest.update(f"{type(value).__qualname__}{atom}{len(children)};".encode(errors="surrogatepass"))
        stack += reversed(children)
    return digest.digest()


def _children(value: Any, module: str) -> Iterator[Any]:
    """What `value` holds, if it is something that a draft can have made. Objects of the simulator hold nothing here."""
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        yield from value
    elif kind is dict:
        for key, item in value.items():
            yield from (key, item)
    elif kind is CellType:
        with suppress(ValueError):  # an empty cell
            yield value.cell_contents
    elif isinstance(value, FunctionType):
        if value.__module__ == module:
            yield from (value.__closure__, value.__defaults__, value.__kwdefaults__, value.__dict__)
    elif isinstance(value, MethodType):
        yield from (value.__self__, value.__func__)
    elif isinstance(value, staticmethod | classmethod):
        yield value.__func__
    elif isinstance(value, property):
        yield value.fget
    elif isinstance(value, partial):
        yield from (value.func, value.args, value.keywords)
    elif isinstance(value, GeneratorType):
        frame = value.gi_frame
        yield from (None, 0) if frame is None else (frame.f_lasti, dict(frame.f_locals))
    elif isinstance(value, _ITERATORS):
        yield value.__reduce__()
    elif kind.__name__ == _CACHE:
        yield from (value.__wrapped__, *_mutable_results(value))
    elif isinstance(value, type):
        if value.__module__ == module:
            yield {name: item for name, item in vars(value).items() if name not in _OF_CLASSES}
    elif kind.__module__ == module:
        yield getattr(value, "__dict__", None)
        yield {name: getattr(value, name, None) for base in kind.__mro__ for name in _slots(base)}
        if isinstance(value, tuple):
            yield tuple(value)
    else:
        yield from vars(value).values() if kind.__name__ == "Kernel" else ()


def _slots(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _mutable_results(cache: Any) -> list[Any]:
    """Cached values that a build could change. Plain ones may come and go: they are the same each time."""
    held = [r for r in gc.get_referents(cache) if r is not cache.__dict__ and r is not cache.__wrapped__]
    tables = [r for r in held if type(r) is dict]
    if cache.cache_parameters()["maxsize"] is None:  # a plain dict of results
        results = [result for table in tables for result in table.values()]
    else:  # the results themselves, and a dict of links to them
        links = [t for t in tables if all(type(v).__name__ == _LINK for v in t.values())]
        results = [r for r in held if not any(r is table for table in links)]
    return [r for r in results if not isinstance(r, _PLAIN) and type(r) is not object]
