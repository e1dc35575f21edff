"""Is a kernel's output right: shape, dtype and every element against the float64 reference, with the cause in words."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from nkismith.kernels.schema import Match, Ulp, ValidChoice
from nkismith.kernels.spec import Bound, OpSpec
from nkismith.kernels.tensors import FLOATS, TensorType, numpy_dtype
from nkismith.verify.reference import Expected
from nkismith.verify.symptoms import describe
from nkismith.verify.tolerance import ELEMENT, ROW, ROW_MINIMUM, allowed_error


@dataclass(frozen=True, slots=True)
class Comparison:
    """How one result differs from the reference.

    problem: "" if right, else missing, shape, dtype, untouched, finite, close, row, exact, ulp or valid_choice.
    worst_at: index of the element with the largest error relative to what is allowed; got, want, allowed are its.
    ratio: that error over what is allowed (above 1 is wrong). beyond: how many elements are wrong.
    hint: where they are and what they look like, or "".
    right_at: the right element nearest to worst_at, if there are wrong and right ones.
    """

    output: str
    problem: str
    message: str
    hint: str = ""
    worst_at: tuple[int, ...] = ()
    right_at: tuple[int, ...] | None = None  # the right element nearest to worst_at, if some are right
    got: float = np.nan
    want: float = np.nan
    allowed: float = np.nan
    worst_abs: float = 0.0
    ratio: float = 0.0
    beyond: int = 0
    elements: int = 0

    @property
    def ok(self) -> bool:
        return not self.problem


def compare(
    spec: OpSpec, bound: Bound, expected: Expected, inputs: Mapping[str, np.ndarray], got: Mapping[str, np.ndarray]
) -> tuple[Comparison, ...]:
    """Judge every result of one run: in-place inputs after the call (whole), then outputs.

    inputs: the arrays before the call. got: by name, in-place inputs and outputs as the kernel left them. Whatever is
    missing, of another shape or of another dtype is wrong, not converted.
    """
    results = []
    for name in expected.values:
        in_place = name in bound.in_place
        tensor = bound.inputs[name] if in_place else bound.outputs[name]
        match = spec.inputs[name].match if in_place else spec.outputs[name].match
        found = _form(name, got.get(name), tensor)
        if found is None and in_place:
            found = _untouched(name, got[name], expected.values[name], inputs[name])
        if found is None:
            found = _values(spec, bound, expected, inputs, name, got[name], match)
        results.append(found)
    return tuple(results)


def _form(name: str, array: np.ndarray | None, tensor: TensorType) -> Comparison | None:
    if array is None:
        return Comparison(name, "missing", f'output "{name}" is missing: the kernel returned nothing for it')
    if array.shape != tensor.shape:
        message = f'output "{name}" has shape {list(array.shape)}, the spec says {list(tensor.shape)}'
        return Comparison(name, "shape", message)
    if array.dtype != numpy_dtype(tensor.dtype):
        return Comparison(name, "dtype", f'output "{name}" is {array.dtype.name}, the spec says {tensor.dtype}')
    return None


def _untouched(name: str, got: np.ndarray, want: np.ndarray, before: np.ndarray) -> Comparison | None:
    """What the reference leaves alone must keep its bits (a zero may change its sign, as x + 0 does)."""
    kept = (want == before) | (np.isnan(want) & np.isnan(before.astype(want.dtype)))
    changed = kept & (_bits(got) != _bits(before)) & ~((got == 0) & (before == 0))
    if not changed.any():
        return None
    return _wrong(name, "untouched", got, before.astype(np.float64), _all_or_nothing(changed), np.zeros(got.shape))


def _values(
    spec: OpSpec,
    bound: Bound,
    expected: Expected,
    inputs: Mapping[str, np.ndarray],
    name: str,
    got: np.ndarray,
    match: Match,
) -> Comparison:
    want = expected.values[name]
    rounded = want.astype(got.dtype)
    if isinstance(match, ValidChoice):
        return _choice(spec, bound, expected, inputs, name, got, match.valid_choice)
    if match == "valid_choice":
        return _choice(
            spec, bound, expected, inputs, name, got, next(n for n, t in bound.inputs.items() if t.dtype in FLOATS)
        )
    if match == "exact":
        return _wrong(name, "exact", got, want, _all_or_nothing(_bits(got) != _bits(rounded)), np.zeros(want.shape))
    if isinstance(match, Ulp):
        steps = np.abs(_ordered(got) - _ordered(rounded)) * ~(np.isnan(got) & np.isnan(rounded))
        allowed = match.ulp * np.abs(np.spacing(rounded).astype(np.float64))
        return _wrong(name, "ulp", got, want, steps / match.ulp, allowed)
    return _close(name, got, want, rounded, allowed_error(spec, bound, expected, name, got.dtype.name))


def _close(name: str, got: np.ndarray, want: np.ndarray, rounded: np.ndarray, unit: np.ndarray) -> Comparison:
    """Equal where the reference is not finite, within the bound element by element, and row by row on average."""
    finite = np.isfinite(rounded)
    alike = np.where(finite, np.isfinite(got), (got == rounded) | (np.isnan(got) & np.isnan(rounded)))
    if not alike.all():
        return _wrong(name, "finite", got, want, _all_or_nothing(~alike), ELEMENT * unit)
    error = np.abs(np.subtract(got, want, out=np.zeros(want.shape), where=finite, dtype=np.float64))
    ratio = np.divide(error, ELEMENT * unit, out=np.zeros_like(error), where=finite)
    if ratio.size and ratio.max() <= 1 and error.ndim and error.shape[-1] >= ROW_MINIMUM:
        squares = np.sqrt(np.square(error).sum(-1, keepdims=True)), np.sqrt(np.square(unit).sum(-1, keepdims=True))
        rows = squares[0] / (ROW * np.maximum(squares[1], np.finfo(np.float64).tiny))
        if rows.max() > 1:
            # Every element of such a row is suspect; the worst one stands for it.
            suspect = np.broadcast_to(rows > 1, error.shape)
            return _wrong(name, "row", got, want, np.where(suspect, 1 + ratio, ratio), ROW * unit)
    return _wrong(name, "close", got, want, ratio, ELEMENT * unit)


def _choice(
    spec: OpSpec,
    bound: Bound,
    expected: Expected,
    inputs: Mapping[str, np.ndarray],
    name: str,
    got: np.ndarray,
    source: str,
) -> Comparison:
    """Indices along the last axis of `source`: right if what they pick ties with what the reference picks."""
    want = expected.values[name]
    if source in expected.values:
        scores = expected.values[source]
        allowed = ELEMENT * allowed_error(spec, bound, expected, source, bound.outputs[source].dtype)
    else:
        scores = inputs[source].astype(np.float64)
        allowed = np.zeros(scores.shape)  # nothing was computed, so only equal values tie
    one_each = scores.ndim == want.ndim + 1
    indices, wanted = (a[..., None] if one_each else a for a in (got.astype(np.int64), want.astype(np.int64)))
    inside = (indices >= 0) & (indices < scores.shape[-1])
    picks = [np.take_along_axis(a, i, -1) for i in (np.where(inside, indices, 0), wanted) for a in (scores, allowed)]
    off = np.abs(picks[0] - picks[2]) > picks[1] + picks[3]
    repeated = np.zeros_like(off)
    order = np.sort(indices, axis=-1)
    repeated[(order[..., 1:] == order[..., :-1]).any(-1)] = True
    wrong = (off | ~inside | repeated).reshape(want.shape)
    return _wrong(name, "valid_choice", got, want, _all_or_nothing(wrong), np.zeros(want.shape))


def _wrong(
    name: str, problem: str, got: np.ndarray, want: np.ndarray, ratio: np.ndarray, allowed: np.ndarray
) -> Comparison:
    """The comparison for a map of error over what is allowed; right if that is nowhere above 1."""
    wrong = ratio > 1
    at = tuple(int(i) for i in np.unravel_index(int(np.argmax(ratio)), ratio.shape))
    beyond = int(wrong.sum())
    with np.errstate(invalid="ignore"):
        difference = np.abs(got.astype(np.float64) - want)
    base = Comparison(
        output=name,
        problem="",
        message=f'output "{name}" agrees: its largest error is {ratio[at]:.2f} of what is allowed',
        worst_at=at,
        got=float(got[at]),
        want=float(want[at]),
        allowed=float(allowed[at]),
        worst_abs=float(np.nanmax(np.where(np.isfinite(difference), difference, 0.0), initial=0.0)),
        ratio=float(ratio[at]),
        beyond=beyond,
        elements=int(got.size),
    )
    if not beyond:
        return base
    hint = describe(wrong, got.astype(np.float64), want.astype(np.float64))
    bound = f", allowed {allowed[at]:.2g} for {got.dtype.name}" if allowed[at] else ""
    out = f"({beyond:,} of {got.size:,} elements out). {hint}"
    message = (
        f"{_OPENING[problem].format(name=name)} at {list(at)}: got {got[at]:.6g}, want {want[at]:.6g}{bound} {out}"
    )
    return replace(base, problem=problem, message=message.strip(), hint=hint, right_at=_nearest(~wrong, at))


def _nearest(chosen: np.ndarray, at: tuple[int, ...]) -> tuple[int, ...] | None:
    """Index of the chosen element fewest steps away from `at`."""
    places = np.argwhere(chosen)
    if not len(places):
        return None
    return tuple(int(i) for i in places[np.abs(places - np.array(at)).sum(axis=1).argmin()])


_OPENING = {
    "untouched": 'in-place input "{name}" changed where the op must leave it as it is,',
    "finite": 'output "{name}" is infinite or NaN where the reference is not, or the reverse,',
    "close": 'output "{name}" differs from the reference',
    "row": 'output "{name}" is off on average over a row, though no element is far off,',
    "exact": 'output "{name}" must be bit-equal to the reference and differs',
    "ulp": 'output "{name}" is more units in the last place away than the spec allows,',
    "valid_choice": 'output "{name}" picks an element that does not tie with the reference\'s,',
}


def _all_or_nothing(wrong: np.ndarray) -> np.ndarray:
    """Error over what is allowed where nothing is allowed."""
    return np.where(wrong, np.inf, 0.0)


def _bits(array: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")


def _ordered(array: np.ndarray) -> np.ndarray:
    """int64 that count up with the value: neighbours in the dtype differ by 1."""
    bits = _bits(array).astype(np.int64)
    if array.dtype.kind in "iu":
        return array.astype(np.int64)
    sign = 1 << (8 * array.dtype.itemsize - 1)
    return np.where(bits & sign, -(bits & (sign - 1)), bits)
