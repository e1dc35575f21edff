"""Intervals worked out by hand from the ranges in hardware.py."""

from math import hypot

import pytest

from nkismith.verify.simulator import hardware
from nkismith.verify.timing.interval import WIDEST, by_estimate, interval

SCHEDULE = hardware.SCHEDULE


def line(number, name):
    return (0, number, name)


def test_documented_time_leaves_only_the_compiler_s_freedom():
    low, high = interval({line(1, ""): 100.0})
    assert (low, high) == pytest.approx((100 * SCHEDULE.low, 100 * SCHEDULE.high))


def test_independent_guesses_add_as_the_root_of_the_sum_of_squares():
    """Half of the time on dma_hwdge_ns (600, 500 to 750), half documented."""
    low, high = interval({line(1, "dma_hwdge_ns"): 50.0, line(2, ""): 50.0})
    assert low == pytest.approx(100 - hypot(50 / 6, 100 * (1 - SCHEDULE.low)))
    assert high == pytest.approx(100 + hypot(50 / 4, 100 * (SCHEDULE.high - 1)))


def test_a_wide_interval_is_narrowed_about_the_value():
    low, high = interval({line(1, "loop_ns"): 100.0})
    assert high / low == pytest.approx(WIDEST)
    assert low < 100 < high


def test_no_time_has_no_interval():
    assert interval({}) == (0.0, 0.0)


def test_shares_of_an_estimate_add_up_over_lines():
    path = {line(1, "dma_rate"): 2.0, line(2, "dma_rate"): 3.0, line(2, ""): 5.0}
    assert by_estimate(path) == {"dma_rate": 5.0}
