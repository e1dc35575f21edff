"""What counts as an accumulation, and in which dtype it must be."""

import pytest

import nkismith.verify.simulator as simulator
from nkismith.verify.failure import Failure
from nkismith.verify.precision import check_precision
from nkismith.verify.reasons import Reason
from nkismith.verify.simulator.kernel import TensorType, record

simulator.install()
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402


def accumulates(kernel, accumulate="float32"):
    trace, _ = record(kernel, (TensorType((8, 16), "bfloat16"),))
    try:
        check_precision(trace, accumulate)
    except Failure as failure:
        assert failure.reason is Reason.PRECISION_DOWNGRADE
        return True
    return False


def tile(dtype=None):
    return nl.ndarray((8, 16), dtype=dtype or nl.bfloat16, buffer=nl.sbuf)


def plus(dst, other):
    nisa.tensor_tensor(dst=dst, data1=dst, data2=other, op=nl.add)


def once(x):
    t, u = nl.load(x), nl.load(x)
    plus(t, u)


def twice(x):
    t, u = nl.load(x), nl.load(x)
    plus(t, u)
    plus(t, u)


def twice_with_a_fresh_start(x):
    t, u = nl.load(x), nl.load(x)
    plus(t, u)
    nisa.tensor_copy(dst=t, src=u)
    plus(t, u)


def twice_in_float32(x):
    t, u = tile(nl.float32), nl.load(x)
    nisa.memset(dst=t, value=0.0)
    plus(t, u)
    plus(t, u)


def in_a_loop(x):
    t, u = nl.load(x), nl.load(x)
    nl.fori_loop(0, 4, lambda i: plus(t, u))


def on_a_tile_of_the_loop(x):
    def body(i):
        t, u = nl.load(x), nl.load(x)
        plus(t, u)

    nl.fori_loop(0, 4, body)


def in_an_inner_loop(x):
    def body(i):
        t, u = nl.load(x), nl.load(x)
        nl.fori_loop(0, 4, lambda j: plus(t, u))

    nl.fori_loop(0, 4, body)


def maxima(x):
    t, u = nl.load(x), nl.load(x)
    for _ in range(3):
        nisa.tensor_tensor(dst=t, data1=t, data2=u, op=nl.maximum)


@pytest.mark.parametrize("kernel", [twice, in_a_loop, in_an_inner_loop])
def test_a_running_sum_below_float32_is_refused(kernel):
    assert accumulates(kernel)
    assert not accumulates(kernel, "bfloat16")


@pytest.mark.parametrize(
    "kernel",
    [once, twice_with_a_fresh_start, twice_in_float32, on_a_tile_of_the_loop, maxima],
    ids=lambda k: k.__name__,
)
def test_what_is_rounded_once_or_loses_nothing_is_no_accumulation(kernel):
    assert not accumulates(kernel)
