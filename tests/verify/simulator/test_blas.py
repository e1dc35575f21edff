"""The matrix product picks the thread count that is cheaper, and leaves BLAS as it found it."""

import numpy as np
import pytest

from nkismith.verify.simulator import blas
from tests.verify.simulator.one import floats


@pytest.mark.parametrize("shape", [(3, 4, 5), (128, 128, 512), (1, 128, 700)])
def test_a_product_is_numpys(shape):
    m, k, n = shape
    left, right = floats(k, m).T, floats(k, n, seed=1)
    out = np.empty((m, n), np.float32)
    blas.product(left, right, out=out)
    np.testing.assert_allclose(out, left.astype(np.float64) @ right, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(blas.product(left, right), out, rtol=1e-4, atol=1e-4)


class Library:
    """A BLAS whose products cost `seconds[threads]`."""

    def __init__(self, seconds):
        self.seconds, self.threads, self.now, self.used = seconds, 2, 0.0, []

    def scipy_openblas_set_num_threads64_(self, threads):
        self.threads = threads

    def scipy_openblas_get_num_threads64_(self):
        return self.threads

    def clock(self):
        self.used.append(self.threads)
        self.now += self.seconds[self.threads] / 2
        return self.now


def used_by(seconds, monkeypatch, products=400):
    library = Library(seconds)
    pool = blas._Pool(library)
    monkeypatch.setattr(blas, "perf_counter", library.clock)
    left, right = np.ones((2, 2), np.float32), np.ones((2, 2), np.float32)
    for _ in range(products):
        pool.product(left, right, None)
        assert library.threads == 2
    return library.used[::2]


def test_all_threads_are_used_where_they_help(monkeypatch):
    used = used_by({2: 1.0, 1: 2.0}, monkeypatch)
    assert used.count(1) <= 6  # a trial now and then, ever more rarely


def test_one_thread_is_used_where_threads_wait(monkeypatch):
    used = used_by({2: 100.0, 1: 2.0}, monkeypatch)
    assert used.count(2) <= 6
