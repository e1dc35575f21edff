"""NKIObject: the base class of kernel data classes.

Annotated fields are constructor parameters, missing ones become None, and un-annotated class attributes are accepted
as keywords too: published kernels rely on all three.
"""

from __future__ import annotations

from typing import Any


class NKIObject:
    """Base of classes that kernels pass around."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        fields = _fields(type(self))
        if len(args) > len(fields):
            raise TypeError(f"{type(self).__name__} takes {len(fields)} values, got {len(args)}")
        given = dict(zip(fields, args, strict=False)) | kwargs
        unknown = [n for n in given if n not in fields and not hasattr(type(self), n)]
        if unknown:
            raise TypeError(f"{type(self).__name__} has no field {', '.join(unknown)}")
        for name in fields:
            setattr(self, name, given.get(name, getattr(type(self), name, None)))
        for name, value in given.items():
            setattr(self, name, value)
        after = getattr(self, "__post_init__", None)
        if after is not None:
            after()


def _fields(cls: type) -> list[str]:
    names: dict[str, None] = {}
    for base in reversed(cls.__mro__):
        names.update(dict.fromkeys(vars(base).get("__annotations__", ())))
    return list(names)
