"""Author-given addresses: which tiles clash, and that they stay inside their memory."""

import numpy as np
import pytest

from nkismith.verify.simulator import install
from nkismith.verify.simulator.errors import LegalityError

install()
import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402


def two_tiles(first, second, read_first_again=True):
    """Write one tile, write another, then read the first (or the second)."""

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        a = nl.ndarray((32, 8), dtype=nl.float32, buffer=nl.sbuf, address=first)
        b = nl.ndarray((32, 8), dtype=nl.float32, buffer=nl.sbuf, address=second)
        nisa.memset(a, 1.0)
        nisa.memset(b, 2.0)
        c = nl.ndarray((32, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.tensor_copy(c, a if read_first_again else b)
        nisa.dma_copy(out, c)
        return out

    return nki.simulate(kernel)(np.zeros((32, 8), np.float32))


def refused(*args, **kwargs):
    with pytest.raises(LegalityError) as caught:
        two_tiles(*args, **kwargs)
    assert caught.value.line is not None
    return caught.value.rule


def test_reading_a_tile_that_another_has_overwritten_is_a_clash():
    assert refused((0, 0), (0, 16)) == "address_clash"


def test_tiles_may_share_bytes_one_after_the_other():
    assert two_tiles((0, 0), (0, 16), read_first_again=False).max() == 2.0


def test_neighbours_in_bytes_or_partitions_do_not_clash():
    assert two_tiles((0, 0), (0, 32)).max() == 1.0
    assert two_tiles((0, 0), (32, 0)).max() == 1.0


def test_a_tile_stays_inside_its_memory():
    assert refused((0, 0), (0, 229376)) == "address"


def test_a_loop_that_overwrites_what_its_next_pass_reads_is_a_clash():
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        a = nl.ndarray((32, 8), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
        b = nl.ndarray((32, 8), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
        nisa.memset(a, 1.0)

        def body(i):
            nisa.dma_copy(out, a)
            nisa.memset(b, 2.0)

        nl.fori_loop(0, 2, body)
        return out

    with pytest.raises(LegalityError) as caught:
        nki.simulate(kernel)(np.zeros((32, 8), np.float32))
    assert caught.value.rule == "address_clash"


def returned(first, second):
    """Write one tensor of HBM, write another, return the first."""

    @nki.jit
    def kernel(x):
        a = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.shared_hbm, address=first)
        b = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.shared_hbm, address=second)
        nisa.dma_copy(a, x)
        nisa.dma_copy(b, x)
        return a

    return nki.simulate(kernel)(np.ones((4, 8), np.float32))


def test_a_result_that_another_tensor_of_hbm_has_overwritten_is_a_clash():
    assert returned((0,), (128,)).max() == 1.0
    with pytest.raises(LegalityError) as caught:
        returned((0,), (124,))
    assert caught.value.rule == "address_clash" and caught.value.line


@pytest.mark.parametrize("step", [1, 2])
def test_only_what_is_written_again_counts_as_written_again(step):
    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        a = nl.ndarray((32, 8), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
        b = nl.ndarray((32, 8), dtype=nl.float32, buffer=nl.sbuf, address=(0, 0))
        nisa.memset(a, 1.0)
        nisa.memset(b, 2.0)
        nisa.memset(a[:, 0:8:step], 3.0)
        nisa.dma_copy(out, a)
        return out

    x = np.zeros((32, 8), np.float32)
    if step == 1:
        assert nki.simulate(kernel)(x).min() == 3.0
    else:
        with pytest.raises(LegalityError, match="address_clash"):
            nki.simulate(kernel)(x)
