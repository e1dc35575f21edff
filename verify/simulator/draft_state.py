"""What a draft's module keeps between two builds, as digests: a kernel that remembers builds differently next time.

Reading the source cannot find all state: it hides in closures, objects, iterators, cached values and behind other
names. So the recording child compares every top-level name before and after it has built the cases. Everything is
followed that was not there before the draft, whatever its kind and whatever it says of itself.
"""

from __future__ import annotations

import gc
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import FunctionType, GeneratorType
from typing import Any

_ATOMS = (bool, int, float, complex, str, bytes, range, type(None))
_TEXT = {int: int.__repr__, float: float.__repr__, complex: complex.__repr__, str: str.__repr__, bytes: bytes.__repr__}
_CACHE, _LINK = "_lru_cache_wrapper", "_lru_list_elem"
# Left out of classes: what Python itself keeps there, and where Flag keeps combinations that it has met.
_OF_CLASSES = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__", "_abc_impl"})
_MET = "_value2member_map_"
_OF_MEMBERS = frozenset({"_value_", "_name_", "__objclass__", "_sort_order_", "_inverted_"})


@dataclass
class _Walk:
    """One comparison: what was reached, and the caches on the way. `alive` keeps ids from being used again."""

    reached: set[int] = field(default_factory=set)
    alive: list[Any] = field(default_factory=list)
    caches: list[tuple[str, Any]] = field(default_factory=list)


class DraftState:
    """Everything that is alive when it is made belongs to others; what a draft makes afterwards is looked through."""

    def __init__(self, *places: object) -> None:
        """`places`: objects that are no state themselves, such as the dicts in which the draft will run."""
        self._alive = [*gc.get_objects(), *places]
        self._others = {id(value) for value in self._alive}

    def digests(self, namespace: dict[str, Any]) -> dict[str, bytes]:
        """A digest for each name of a namespace, over all state that can be reached from its value."""
        walk = _Walk()
        found = {n: self._digest(v, n, walk) for n, v in tuple(namespace.items()) if n != "__builtins__"}
        for name, cache in walk.caches:
            for result in _results(cache):
                if not self._plain(result, walk.reached):  # plain ones may come and go: they are the same each time
                    found[name] = hashlib.blake2b(found[name] + self._digest(result, name, _Walk())).digest()
        return found

    def _digest(self, root: Any, name: str, walk: _Walk) -> bytes:
        digest = hashlib.blake2b(digest_size=16)
        seen: dict[int, int] = {}
        stack = [root]
        while stack:
            value = stack.pop()
            kind = type(value)
            if kind in _ATOMS:
                digest.update(f"{kind.__name__}{value!r};".encode(errors="surrogatepass"))
                continue
            if id(value) in self._others:
                digest.update(b"%d;" % id(value))
                continue
            if id(value) in seen:
                digest.update(b"@%d;" % seen[id(value)])
                continue
            seen[id(value)] = len(seen)
            walk.alive.append(value)
            if kind.__name__ == _CACHE:
                walk.caches.append((name, value))
            children = list(_children(value))
            text = next((show(value) for base, show in _TEXT.items() if isinstance(value, base)), "")
            digest.update(f"{kind.__qualname__}{text}{len(children)};".encode(errors="surrogatepass"))
            stack += reversed(children)
        walk.reached |= seen.keys()
        return digest.digest()

    def _plain(self, value: Any, reached: set[int]) -> bool:
        """Whether a cached value can hold no state of its own: numbers, text, tuples of them, what others made, and
        what the walk has looked through anyway."""
        waiting, met = [value], set()
        while waiting:
            part = waiting.pop()
            kind = type(part)
            if kind in _ATOMS or id(part) in self._others or id(part) in reached or id(part) in met:
                continue
            met.add(id(part))
            if kind in (tuple, frozenset, slice) or (isinstance(part, tuple) and not hasattr(part, "__dict__")):
                waiting += [p for p in gc.get_referents(part) if p is not kind]
            elif isinstance(part, str) and not hasattr(part, "__dict__"):
                continue  # a dtype
            elif not (kind is FunctionType and not any(_children(part))):
                return False
        return True


def _children(value: Any) -> Iterator[Any]:
    """What `value` holds."""
    kind = type(value)
    if kind is dict:
        for key, item in value.items():
            yield from (key, item)
    elif kind is FunctionType:
        yield from (part for part in (value.__closure__, value.__defaults__, value.__kwdefaults__) if part)
        yield from (vars(value),) if vars(value) else ()
    elif isinstance(value, type):
        yield {name: item for name, item in vars(value).items() if name not in _OF_CLASSES and name != _MET}
        for member in vars(value).get(_MET, {}).values():
            yield from (part for name, part in vars(member).items() if name not in _OF_MEMBERS)
    elif kind.__name__ == _CACHE:
        yield value.__wrapped__
        yield {name: part for name, part in vars(value).items() if name != "__wrapped__"}
    elif kind is GeneratorType:
        yield None if value.gi_frame is None else value.gi_frame.f_lasti
        yield from gc.get_referents(value)
    elif hasattr(kind, "__next__") and not hasattr(value, "__dict__") and "__reduce__" in vars(kind):
        yield value.__reduce__()  # Python's iterators keep their place where no referent shows it
    else:
        getattr(value, "__dict__", None)  # from here on it has one, in this digest and in the next
        yield from gc.get_referents(value)


def _results(cache: Any) -> list[Any]:
    """What a functools cache holds."""
    held = [r for r in gc.get_referents(cache) if r is not cache.__dict__ and r is not cache.__wrapped__]
    tables = [r for r in held if type(r) is dict]
    if cache.cache_parameters()["maxsize"] is None:  # a plain dict of results
        return [result for table in tables for result in table.values()]
    # the results themselves, and a dict of links to them
    links = [t for t in tables if all(type(v).__name__ == _LINK for v in t.values())]
    return [r for r in held if not any(r is table for table in links)]
