"""nki.collectives: the names, so that libraries import; every call raises UnsupportedInstruction.

One logical core is simulated; ranks come later. Source: nki.collectives (NKI 0.7).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nkismith.verify.simulator.errors import UnsupportedInstruction

CALLS = (
    "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v", "all_to_all_v_prepare",
    "all_to_all_v_trigger", "all_gather_v", "all_gather_v_prepare", "all_gather_v_trigger", "collective_permute",
    "collective_permute_implicit", "collective_permute_implicit_reduce",
    "collective_permute_implicit_current_processing_rank_id", "rank_id",
)  # fmt: skip


@dataclass(frozen=True)
class ReplicaGroup:
    """Groups of ranks that communicate."""

    replica_groups: Any = None


def names() -> dict[str, Any]:
    """Everything `nki.collectives` offers."""
    return {"ReplicaGroup": ReplicaGroup, **{name: _unsupported(name) for name in CALLS}}


def _unsupported(name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedInstruction(f"nki.collectives.{name}", why="collectives between ranks are not simulated")

    call.__name__ = name
    return call
