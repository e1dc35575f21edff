"""dtype names and tensor types, as specs, cases and verdicts write them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import ml_dtypes
import numpy as np

FLOATS = ("float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2")
INTEGERS = ("int32", "uint32", "int16", "uint16", "int8", "uint8")


def numpy_dtype(name: str) -> np.dtype:
    """The NumPy dtype of a dtype name ("bfloat16" and float8 come from ml_dtypes)."""
    return np.dtype(getattr(ml_dtypes, name)) if hasattr(ml_dtypes, name) else np.dtype(name)


@dataclass(frozen=True)
class TensorType:
    """Shape and dtype name of one tensor of one case."""

    shape: tuple[int, ...]
    dtype: str

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * numpy_dtype(self.dtype).itemsize
