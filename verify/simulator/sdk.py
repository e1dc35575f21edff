"""Neuron SDKs as data: which names and parameters exist in which release, and what to write instead.

The table is `sdk_changes.toml`; names are written in full (`nki.isa.topk`). The simulator's definitions describe the
newest release; an older one lacks what came later.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

NEWEST = "2.33"
_CHANGES: dict[str, Any] = tomllib.loads((Path(__file__).parent / "sdk_changes.toml").read_text(encoding="utf-8"))
RELEASES: dict[str, str] = _CHANGES["releases"]


@dataclass(frozen=True, slots=True)
class Absent:
    """A name that a release does not have, and the way out."""

    name: str
    sdk: str
    why: str

    def __str__(self) -> str:
        return f"{self.name} does not exist in SDK {self.sdk}: {self.why}"


def check_sdk(sdk: str) -> str:
    """The SDK itself. Raises ValueError naming the known ones."""
    if sdk not in RELEASES:
        raise ValueError(f"unknown Neuron SDK {sdk!r}: known are {', '.join(RELEASES)}")
    return sdk


def order(sdk: str) -> tuple[int, ...]:
    """A release as numbers, to compare."""
    return tuple(int(part) for part in sdk.split("."))


def absent(name: str, sdk: str) -> Absent | None:
    """Why `name` (in full) is not in `sdk`; None if the table says nothing against it."""
    for change in _CHANGES["added"]:
        if name in change["names"] and order(sdk) < order(change["sdk"]):
            return Absent(name, sdk, f"new in {change['sdk']}; write {change['before']}")
    for change in _CHANGES["removed"]:
        if name in change["names"] and order(sdk) >= order(change["sdk"]):
            return Absent(name, sdk, f"removed in {change['sdk']}; write {change['instead']}")
    return None


def since(name: str) -> str:
    """The first of the known releases that has `name`."""
    return next((c["sdk"] for c in _CHANGES["added"] if name in c["names"]), next(iter(RELEASES)))


def later_parameters(name: str, sdk: str) -> dict[str, str]:
    """Parameters of a function that came after `sdk`, each with the release that brought it."""
    return {
        parameter: change["sdk"]
        for change in _CHANGES["parameters"]
        if change["name"] == name and order(sdk) < order(change["sdk"])
        for parameter in change["added"]
    }
