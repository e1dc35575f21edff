"""How far a right kernel may be from the float64 reference, element by element.

    c * (u_out*|ref| + u_acc*sqrt(n)*B + min(spread, cap) + min(inner, cap))

u_out is the unit roundoff of the output's dtype; n the number of terms an output element sums; u_acc the unit of the
accumulation dtype; spread what rounding the inputs does to this element, inner what evaluating the reference in
float32 does to it (both measured, `verify/reference.py`); B = max(|ref|,
spread/unit) the size of the terms; cap a quarter of the largest value in the element's row, which no single error
may exceed on the ground of ill-conditioned inputs. Derivation and measured figures: docs/tolerance.md.
"""

from __future__ import annotations

import numpy as np

from nkismith.kernels.spec import Bound, OpSpec
from nkismith.verify.reference import Expected, unit_roundoff

ELEMENT = 4.0  # c for one element
ROW = 1.5  # c for the root mean square over a row: rounding errors average out there, a wrong factor does not
ROW_MINIMUM = 32  # shorter rows do not average
CAP = 0.25  # of the largest value in a row
FLUSHED = float(np.finfo(np.float32).tiny)  # engines may flush what is below to zero


def allowed_error(spec: OpSpec, bound: Bound, expected: Expected, name: str, dtype: str) -> np.ndarray:
    """The bound above at c = 1 for the result `name` of dtype `dtype`; float64, 0 where the reference is not finite."""
    want, spread = expected.values[name], expected.spread[name]
    finite = np.isfinite(want)
    magnitude = np.abs(np.where(finite, want, 0.0))
    terms = np.maximum(magnitude, spread / expected.unit)
    accumulated = unit_roundoff(spec.accumulate) * np.sqrt(bound.reduction) * terms
    if magnitude.ndim == 0 or magnitude.shape[-1] < ROW_MINIMUM:
        largest = magnitude.max(initial=0.0)
    else:
        largest = magnitude.max(axis=-1, keepdims=True)
    factor = spec.tolerance.factor if spec.tolerance else 1.0
    measured = np.minimum(spread, CAP * largest) + np.minimum(expected.inner[name], CAP * largest)
    error = factor * (unit_roundoff(dtype) * magnitude + accumulated + measured) + FLUSHED
    return np.where(finite, error, 0.0)
