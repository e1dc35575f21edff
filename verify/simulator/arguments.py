"""Kernel arguments and results: tensors inside tuples, dicts, dataclasses and NKIObjects, found and replaced.

Kernels take tensors, numbers, strings, None, functions, enumerations, and tuples or objects of these. Source:
nki-language-guide (class support), migration guide 0.3.0 (tuples instead of lists).
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.language.objects import NKIObject

Replace = Callable[[str, Any], Any]


def replaced(name: str, value: Any, is_leaf: Callable[[Any], bool], replace: Replace) -> Any:
    """`value` rebuilt with replace(name, leaf) for every leaf; containers are copied, so a kernel changes its own.

    Raises LegalityError (`argument_list`) for lists, which kernels cannot take.
    """
    if is_leaf(value):
        return replace(name, value)

    def inner(key: object, part: Any) -> Any:
        return replaced(f"{name}_{key}", part, is_leaf, replace)

    if isinstance(value, list):
        raise LegalityError("argument_list", f"argument {name} is a list", "pass a tuple")
    if isinstance(value, tuple):
        parts = [inner(key, part) for key, part in zip(_keys(value), value, strict=True)]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, dict):
        return {key: inner(key, part) for key, part in value.items()}
    if _is_object(value):
        twin = copy.copy(value)
        for key in _members(value):
            part = getattr(value, key)
            if not isinstance(part, list):  # an object may hold lists, an argument may not be one
                object.__setattr__(twin, key, inner(key, part))
            else:
                object.__setattr__(twin, key, [inner(f"{key}_{i}", p) for i, p in enumerate(part)])
        return twin
    return value


def _keys(value: tuple) -> list[Any]:
    return list(getattr(value, "_fields", range(len(value))))


def _is_object(value: Any) -> bool:
    return isinstance(value, NKIObject) or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def _members(value: Any) -> list[str]:
    if hasattr(value, "__dict__"):
        return list(vars(value))
    return [f.name for f in dataclasses.fields(value) if hasattr(value, f.name)]
