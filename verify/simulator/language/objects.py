"""NKIObject: the base class of kernel data classes.

Annotated fields are constructor parameters, missing ones become None, and un-annotated class attributes are accepted
as keywords too; published kernels rely on all three, with and without @dataclass. So every subclass that writes no
__init__ gets this one, and @dataclass leaves an __init__ alone that is already there. Source: nki-language-guide.
"""

from __future__ import annotations

import dataclasses
import typing
from typing import Any


class NKIObject:
    """Base of classes that kernels pass around."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _initialise(self, args, kwargs)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if "__init__" not in vars(cls) and not _written(cls):
            cls.__init__ = _generated  # type: ignore[method-assign]

    def __repr__(self) -> str:
        shown = ", ".join(f"{k}={v!r}" for k, v in vars(self).items())
        return f"{type(self).__name__}({shown})"


def _generated(self: Any, *args: Any, **kwargs: Any) -> None:
    """Fields in order of declaration, then by name."""
    _initialise(self, args, kwargs)


def _written(cls: type) -> bool:
    """Does a base class have an __init__ of its author's?"""
    for base in cls.__mro__[1:]:
        found = vars(base).get("__init__")
        if found is not None:
            return base not in (NKIObject, object) and found is not _generated
    return False


def _initialise(self: Any, args: tuple, kwargs: dict[str, Any]) -> None:
    cls = type(self)
    fields = _fields(cls)
    if len(args) > len(fields):
        raise TypeError(f"{cls.__name__} takes {len(fields)} values, got {len(args)}")
    given = dict(zip(fields, args, strict=False))
    twice = [n for n in kwargs if n in given]
    unknown = [n for n in kwargs if n not in fields and (n.startswith("__") or not hasattr(cls, n))]
    if twice or unknown:
        raise TypeError(f"{cls.__name__}: {', '.join(twice + unknown)} given twice or no field")
    given |= kwargs
    for name in fields:
        object.__setattr__(self, name, given.pop(name) if name in given else _default(cls, name))
    for name, value in given.items():
        object.__setattr__(self, name, value)
    after = getattr(self, "__post_init__", None)
    if after is not None:
        after()


def _default(cls: type, name: str) -> Any:
    field = getattr(cls, "__dataclass_fields__", {}).get(name)
    value = field if field is not None else getattr(cls, name, None)
    if not isinstance(value, dataclasses.Field):
        return value
    if value.default_factory is not dataclasses.MISSING:
        return value.default_factory()
    return None if value.default is dataclasses.MISSING else value.default


def _fields(cls: type) -> list[str]:
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        for name, kind in vars(base).get("__annotations__", {}).items():
            if not _is_class_variable(kind):
                names[name] = None
    return list(names)


def _is_class_variable(kind: Any) -> bool:
    return typing.get_origin(kind) is typing.ClassVar or kind is typing.ClassVar or str(kind).startswith("ClassVar")
