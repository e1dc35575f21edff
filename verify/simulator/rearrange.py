"""einops-style rearrangement of views: names split, move and merge. Source: NkiTensor.rearrange."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from nkismith.verify.simulator.errors import LegalityError

if TYPE_CHECKING:
    from nkismith.verify.simulator.tensor import NkiTensor


def _groups(pattern: tuple) -> list[tuple[str, ...]]:
    return [(g,) if isinstance(g, str) else tuple(g) for g in pattern]


def rearranged(tensor: NkiTensor, source: tuple, target: tuple, sizes: dict[str, int]) -> NkiTensor:
    """The view of `tensor` whose dimensions follow `target`. Raises LegalityError on patterns that do not match."""
    left, right = _groups(source), _groups(target)
    names = [n for g in left for n in g]
    if len(left) != tensor.ndim or sorted(names) != sorted(n for g in right for n in g) or len(set(names)) < len(names):
        raise LegalityError(
            "view_rearrange",
            f"rearrange {source} -> {target} of shape {tensor.shape}",
            "name every dimension of the source once and use the same names in the target",
        )
    extents: dict[str, int] = {}
    split: list[int] = []
    for group, extent in zip(left, tensor.shape, strict=True):
        unknown = [n for n in group if n not in sizes]
        known = prod(sizes[n] for n in group if n in sizes)
        if len(unknown) > 1 or (unknown and extent % known) or (not unknown and known != extent):
            raise LegalityError(
                "view_rearrange",
                f"extent {extent} does not split into {group} with {sizes}",
                "give fixed_sizes for all but one name of a group, dividing the extent",
            )
        for name in group:
            extents[name] = sizes.get(name, extent // known)
            split.append(extents[name])
    order = [names.index(n) for g in right for n in g]
    merged = tuple(prod(extents[n] for n in g) for g in right)
    return tensor.reshape(tuple(split)).permute(tuple(order)).reshape(merged)
