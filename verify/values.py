"""Families of float values; each exposes mistakes that plain Gaussian values hide.

Integers have no families: they come from their declared relations. A family never leaves what the spec declares:
uniform inputs stay in their range, positive ones stay positive, one-hot ones stay one-hot.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np

from nkismith.kernels.schema import Input, Values

OFFSET = 6.0  # two rows around 6 have a product sum of 36 a channel: exp overflows unless a maximum is subtracted
SPIKE = 100.0  # times the root mean square of a tensor: exp of such a value overflows unless a maximum is subtracted
MIXED_OFFSET = 3.5  # with 128 channels a product of two such rows still overflows exp, and rounding moves it less
MIXED_ROWS = 16  # a tensor with fewer rows could by chance lose all its plain ones
TINY = 2.0**-12  # rows whose squares fall below a usual eps, and which a norm over the whole tensor cannot see

_Family = Callable[[np.ndarray, bool, np.random.Generator], np.ndarray]


def _normal(x: np.ndarray, picked: bool, rng: np.random.Generator) -> np.ndarray:
    """As declared."""
    return x


def _scaled_up(x: np.ndarray, picked: bool, rng: np.random.Generator) -> np.ndarray:
    """Each input 4 to 16 times larger: absolute tolerances and missing scales show."""
    return x * 2.0 ** rng.integers(2, 5)


def _huge(x: np.ndarray, picked: bool, rng: np.random.Generator) -> np.ndarray:
    """One input a thousand to eight thousand times larger: results that are clamped, or that saturate early."""
    return x * 2.0 ** rng.integers(10, 14) if picked else x


def _scaled_down(x: np.ndarray, picked: bool, rng: np.random.Generator) -> np.ndarray:
    """Each input 16 to 256 times smaller: absolute tolerances accept zeros here."""
    return x * 2.0 ** -rng.integers(4, 9)


def _tiny_rows(x: np.ndarray, picked: bool, rng: np.random.Generator) -> np.ndarray:
    """Half of the rows nearly vanish: eps, and norms over the whole tensor."""
    return x * np.where(rng.random((*x.shape[:-1], 1)) < 0.5, TINY, 1.0)


def _large_logits(x: np.ndarray, picked: bool, rng: np.random.Generator) -> np.ndarray:
    """All values around one offset: overflow of exp, cancellation of means."""
    return x + OFFSET


def _spikes(x: np.ndarray, picked: bool, rng: np.random.Generator) -> np.ndarray:
    """In half of the rows of one input, always in the last, an element towers over the others, first, last or anywhere:
    maxima of another row or of a part of it, sums that lose the small terms."""
    if not picked:
        return x
    last = x.shape[-1] - 1
    where = rng.choice([0, last, -1], size=(*x.shape[:-1], 1))
    where = np.where(where < 0, rng.integers(last + 1, size=where.shape), where)
    rows = rng.random(where.shape) < 0.5
    rows[-1] = True
    tower = (np.arange(last + 1) == where) & rows
    height = SPIKE * np.sqrt(np.square(x).mean()) * rng.uniform(1, 1.3, where.shape)
    return np.where(tower, np.copysign(height, x), x)


def _ties(x: np.ndarray, picked: bool, rng: np.random.Generator) -> np.ndarray:
    """Few distinct values: equal maxima, equal indices."""
    return np.round(x)


def _zeros(x: np.ndarray, picked: bool, rng: np.random.Generator) -> np.ndarray:
    """At least one input is zero: divisions by a norm or a sum of nothing."""
    return np.zeros_like(x) if picked else x


def _one_hot(x: np.ndarray, picked: bool, rng: np.random.Generator) -> np.ndarray:
    """At least one input has a single one in each row: every element of the others counts alone."""
    return _unit_rows(x.shape, rng) if picked else x


def _infinities(x: np.ndarray, picked: bool, rng: np.random.Generator) -> np.ndarray:
    """Some elements are infinite; only for inputs that allow it."""
    return np.where(rng.random(x.shape) < 0.02, np.copysign(np.inf, x), x)


def _mixed(x: np.ndarray, picked: bool, rng: np.random.Generator) -> np.ndarray:
    """Rows of several kinds side by side: half as declared, the others around the offset, tiny, zero, or with towers in
    one input. For production shapes, which are too large to be executed once for each family."""
    rows = x.shape[:-1]
    if np.prod(rows) < MIXED_ROWS:
        return _spikes(x, picked, rng)
    kind = rng.integers(8, size=(*rows, 1))
    kind[-1] = 0  # `_spikes` has its tower in the last rows, where tiles end
    towers = np.where(kind == 0, _spikes(x, picked, rng), x) if picked else x
    return towers * np.choose(kind, [1, TINY, 0, 1, 1, 1, 1, 1]) + MIXED_OFFSET * (kind == 3)


_FAMILIES: dict[str, _Family] = {
    "normal": _normal,
    "scaled_up": _scaled_up,
    "huge": _huge,
    "scaled_down": _scaled_down,
    "tiny_rows": _tiny_rows,
    "large_logits": _large_logits,
    "spikes": _spikes,
    "ties": _ties,
    "zeros": _zeros,
    "one_hot": _one_hot,
    "mixed": _mixed,
    "infinities": _infinities,
}


def families(inputs: Iterable[Input]) -> list[str]:
    """Names of the families for an op, plain values first; `infinities` only if an input allows them."""
    allowed = any(isinstance(i.values, Values) and i.values.infinities for i in inputs)
    return [name for name in _FAMILIES if name != "infinities" or allowed]


def draw_floats(
    values: object, shape: tuple[int, ...], family: str, picked: bool, rng: np.random.Generator
) -> np.ndarray:
    """float64 values of `shape` for one input of a family; spikes, those of mixed, huge, zeros and one_hot act on
    `picked` inputs only."""
    declared = values if isinstance(values, Values) else Values()
    if declared.kind == "one_hot":
        return _unit_rows(shape, rng)
    if declared.kind == "uniform":
        x = rng.uniform(declared.low, declared.high, shape)  # type: ignore[arg-type]
    else:
        x = rng.normal(declared.mean, declared.std, shape)
    if family == "infinities" and not declared.infinities:
        return x
    x = _FAMILIES[family](x, picked, rng)
    if declared.kind == "uniform":
        return np.clip(x, declared.low, declared.high)
    return np.maximum(np.abs(x), TINY) if declared.kind == "positive" else x


def _unit_rows(shape: tuple[int, ...], rng: np.random.Generator) -> np.ndarray:
    x = np.zeros(shape)
    np.put_along_axis(x, rng.integers(shape[-1], size=(*shape[:-1], 1)), 1.0, axis=-1)
    return x
