"""The matrix product of TensorE, on as many BLAS threads as pay.

An instruction multiplies at most 128 x 128 x 8192. OpenBLAS splits even that over all cores. On a quiet machine this
halves the time; where another process holds one of them, the product waits milliseconds for a thread that had
microseconds of work. So products are timed, and the thread count that was cheaper is used.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

ALWAYS_ONE_THREAD = 262_144  # multiply-adds up to which OpenBLAS does not split a product
FIRST_TRIAL, LAST_TRIAL = 32, 4096  # products between two trials of the other thread count


class _Pool:
    """Chooses between all threads and one by what a multiply-add cost so far."""

    def __init__(self, library: Any) -> None:
        self._set = library.scipy_openblas_set_num_threads64_
        self.all = int(library.scipy_openblas_get_num_threads64_())
        self.cost: dict[int, float] = {}  # threads -> smoothed seconds a multiply-add
        self._threads = self.all
        self._interval = self._left = FIRST_TRIAL

    def product(self, left: np.ndarray, right: np.ndarray, out: np.ndarray | None) -> np.ndarray:
        threads = self._next()
        self._set(threads)
        start = perf_counter()
        try:
            return np.matmul(left, right, out=out)
        finally:
            self._learn(threads, (perf_counter() - start) / (left.size * right.shape[1]))
            self._set(self.all)

    def _next(self) -> int:
        if len(self.cost) < 2:
            return 1 if self.all in self.cost else self.all
        self._left -= 1
        return self._threads if self._left else self.all + 1 - self._threads

    def _learn(self, threads: int, cost: float) -> None:
        self.cost[threads] = cost if threads not in self.cost else 0.75 * self.cost[threads] + 0.25 * cost
        if len(self.cost) < 2:
            return
        best = min(self.cost, key=self.cost.__getitem__)
        if best != self._threads:
            self._threads, self._interval = best, FIRST_TRIAL
            self._left = self._interval
        elif not self._left:  # a trial that did not win: wait longer for the next
            self._interval = min(2 * self._interval, LAST_TRIAL)
            self._left = self._interval


@cache
def _pool() -> _Pool | None:
    """The OpenBLAS that NumPy's wheels bundle; None with any other BLAS, or where it has one thread."""
    import ctypes  # here, so that a recording child does not have it

    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")):
            library = ctypes.CDLL(str(path))
            if hasattr(library, "scipy_openblas_set_num_threads64_"):
                pool = _Pool(library)
                return pool if pool.all > 1 else None
    return None


def product(left: np.ndarray, right: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """left @ right in float32."""
    pool = _pool()
    if pool is None or left.size * right.shape[1] <= ALWAYS_ONE_THREAD:
        return np.matmul(left, right, out=out)
    return pool.product(left, right, out)
