"""Shapes and strides of views: what reshape needs, and einops-style rearrangement. Source: NkiTensor (NKI 0.7)."""

from __future__ import annotations

from math import prod

from nkismith.verify.simulator.errors import LegalityError


def is_index(value: object) -> bool:
    """Is it an int, also one of NumPy?"""
    return hasattr(value, "__index__")


def inferred(shape: tuple[int, ...], size: int) -> tuple[int, ...]:
    """The shape with its one -1 filled in. Raises LegalityError unless it holds exactly `size` elements."""
    if not all(map(is_index, shape)):
        raise LegalityError("view_size", f"shape {shape} for {size} elements", "ints known while building")
    known = prod(n for n in shape if n != -1)
    if shape.count(-1) == 1 and known > 0 and size % known == 0:
        shape = tuple(size // known if n == -1 else n for n in shape)
    if not shape or prod(shape) != size or any(n < 1 for n in shape):
        raise LegalityError("view_size", f"shape {shape} for {size} elements", "the element count must stay the same")
    return tuple(int(n) for n in shape)


def reshaped_strides(
    shape: tuple[int, ...], strides: tuple[int, ...], wanted: tuple[int, ...]
) -> tuple[int, ...] | None:
    """Strides of the reshaped view, or None where a copy would be needed (the rule of torch.Tensor.view)."""
    runs: list[tuple[int, int]] = []  # (elements, stride) of maximal dense runs, outermost first
    for extent, stride in zip(shape, strides, strict=True):
        if extent == 1:
            continue
        if runs and runs[-1][1] == extent * stride:
            runs[-1] = (runs[-1][0] * extent, stride)
        else:
            runs.append((extent, stride))
    out: list[int] = []
    left, step = runs.pop() if runs else (1, 1)
    for extent in reversed(wanted):
        if left == 1 and runs and extent != 1:
            left, step = runs.pop()
        if left % extent:
            return None
        out.append(step)
        left //= extent
        step *= extent
    return tuple(reversed(out))


def dense_strides(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Row-major strides."""
    strides, step = [], 1
    for extent in reversed(shape):
        strides.append(step)
        step *= extent
    return tuple(reversed(strides))


def splits(
    shape: tuple[int, ...], source: tuple, target: tuple, sizes: dict[str, int]
) -> tuple[list[tuple[int, ...]], list[tuple[int, ...]]]:
    """How einops-style patterns take a shape apart and put it together.

    Returns the extents into which each dimension splits, and for each dimension of the result the positions of the
    split dimensions it merges. Raises LegalityError on patterns that do not match.
    """
    left, right = _groups(source), _groups(target)
    names = [n for g in left for n in g]
    if (
        len(left) != len(shape)
        or () in (*left, *right)
        or sorted(names) != sorted(n for g in right for n in g)
        or len(set(names)) < len(names)
    ):
        raise LegalityError(
            "view_rearrange",
            f"rearrange {source} -> {target} of shape {shape}",
            "name every dimension of the source once and use the same names in the target",
        )
    extents = [_split(group, extent, sizes) for group, extent in zip(left, shape, strict=True)]
    return extents, [tuple(names.index(n) for n in g) for g in right]


def _groups(pattern: tuple) -> list[tuple[str, ...]]:
    return [(g,) if isinstance(g, str) else tuple(g) for g in pattern]


def _split(group: tuple[str, ...], extent: int, sizes: dict[str, int]) -> tuple[int, ...]:
    """Extents of the names in a group; at most one of them is not in `sizes`."""
    unknown = [n for n in group if n not in sizes]
    known = prod(sizes[n] for n in group if n in sizes)
    whole = known == extent if not unknown else known > 0 and extent % known == 0
    if len(unknown) > 1 or not whole or any(sizes[n] < 1 for n in group if n in sizes):
        raise LegalityError(
            "view_rearrange",
            f"extent {extent} does not split into {group} with {sizes}",
            "give positive fixed_sizes for all but one name of a group, dividing the extent",
        )
    return tuple(sizes.get(n, extent // known) for n in group)
