"""Is it right, how fast: the NKI simulator, legality, comparison, isolation, timing, the verdict.

The front door: `check` gives a Verdict on a draft, `profile` its modelled time, `load` an accepted kernel as a
function on arrays. They are imported on first use: the recording child loads this package and must stay light.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nkismith.verify.accepted import load
    from nkismith.verify.judge import check, profile
    from nkismith.verify.verdict import Verdict

__all__ = ["Verdict", "check", "load", "profile"]
_HOMES = {"check": "judge", "profile": "judge", "load": "accepted", "Verdict": "verdict"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"nkismith.verify has no {name!r}")
    from importlib import import_module

    return getattr(import_module(f"nkismith.verify.{_HOMES[name]}"), name)
