"""Where wrong elements are and what they look like: the sentence that lets a person or a model find the mistake."""

from __future__ import annotations

import numpy as np

TILES = (128, 512)  # partitions of a tile, columns of a PSUM bank


def describe(wrong: np.ndarray, got: np.ndarray, want: np.ndarray) -> str:
    """One or two sentences on the elements marked in `wrong`, or "" when nothing stands out.

    got and want are float64 arrays of the same shape; wrong is boolean and marks at least one element.
    """
    return " ".join(s for s in (_place(wrong), _look(wrong, got, want)) if s)


def _place(wrong: np.ndarray) -> str:
    if wrong.all():
        return "Every element is out."
    places = [_along(wrong, axis) for axis in range(wrong.ndim)]
    found = [p for p in places if p]
    return f"All are {' and '.join(found)}." if found else ""


def _along(wrong: np.ndarray, axis: int) -> str:
    """What the wrong elements have in common along one axis."""
    size = wrong.shape[axis]
    hit = np.flatnonzero(wrong.any(axis=tuple(a for a in range(wrong.ndim) if a != axis)))
    if size == 1 or hit.size == size:
        return ""
    if hit.size == 1:
        return f"at {'the last ' if hit[0] == size - 1 else ''}index {hit[0]} of axis {axis} (0..{size - 1})"
    for tile in TILES:
        last = (size - 1) // tile * tile
        if 0 < last <= hit[0]:
            return f"in the last tile of {tile} along axis {axis} ({last}..{size - 1})"
    if hit.size > 2 and len({int(i) % 2 for i in hit}) == 1:
        return f"at {'odd' if hit[0] % 2 else 'even'} indices of axis {axis}"
    if hit.size == hit[-1] - hit[0] + 1:
        return f"at {hit[0]}..{hit[-1]} of axis {axis} (0..{size - 1})"
    return ""


def _look(wrong: np.ndarray, got: np.ndarray, want: np.ndarray) -> str:
    """A relation between wrong values and right ones that holds for nearly all of them."""
    g, w = got[wrong], want[wrong]
    if np.isnan(g).all():
        return "They are NaN: an operand was never written, or 0/0 or inf-inf occurred."
    use = np.isfinite(g) & np.isfinite(w)
    g, w = g[use], w[use]
    if g.size < 2 or not np.any(w):
        return ""
    if not g.any():
        return "They are all zero: written as zero, or accumulated from nothing."
    factor = float(g @ w / (w @ w))
    if _near(g, factor * w):
        if abs(factor + 1) < 0.02:
            return "Their sign is flipped."
        if abs(factor - 1) > 0.02:
            return f"They are {factor:.4g} times what they should be: a scale is missing, doubled or wrong."
    offset = float(np.mean(g - w))
    if np.std(g - w) < 0.02 * abs(offset):
        return f"They are all off by {offset:.4g}."
    for axis in range(want.ndim):
        for step in (1, -1):
            if want.shape[axis] > 2 and _near(g, np.roll(want, step, axis)[wrong][use]):
                side = "previous" if step == 1 else "next"
                return f"They hold the value of the {side} index of axis {axis}: an offset is one off."
    pairs = want.shape[-1] % 2 == 0 and want.reshape(*want.shape[:-1], -1, 2)[..., ::-1].reshape(want.shape)
    if pairs is not False and _near(g, pairs[wrong][use]):
        return "The two halves of each pair of the last axis are swapped."
    return ""


def _near(a: np.ndarray, b: np.ndarray) -> bool:
    """Equal up to 2 % of the root mean square, for 95 % of the elements."""
    return bool(np.mean(np.abs(a - b) <= 0.02 * np.sqrt(np.mean(b * b)) + 1e-30) >= 0.95)
