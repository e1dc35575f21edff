"""Sizes that a source names are tried, alone and together, inside the domain and the budget."""

from pathlib import Path

import numpy as np

from nkismith.kernels import spec as specs
from nkismith.verify.hinted import ALONE, TOGETHER, hinted_cases

SCALE_ADD = specs.load(Path(__file__).parent / "ops" / "scale_add")  # R 1..300, C 1..96


def dims(source, spec=SCALE_ADD):
    return [tuple(c.dims.values()) for c in hinted_cases(spec, source, np.random.default_rng(3))]


def test_constants_are_tried_together_as_the_compiler_sees_them():
    assert (77, 41) in dims("def f(r, c):\n    return (r, c) == (7 * 11, 41)")


def test_a_bound_is_tried_from_both_sides():
    assert {r for r, _ in dims("def f(r):\n    return r > 211.0")} >= {210, 211, 212}


def test_usual_sizes_and_sizes_outside_the_domain_suggest_nothing():
    assert dims("P = 128\nQ = 512\nR = (1000, 0.5, 'abc', True)") == []


def test_the_number_of_cases_is_bounded_and_each_is_of_the_domain():
    found = hinted_cases(SCALE_ADD, f"N = {tuple(range(5, 300))}", np.random.default_rng(3))
    assert len(found) == TOGETHER + ALONE
    for case in found:
        SCALE_ADD.bind(case)


def test_constraints_and_run_time_scalars_hold():
    attention = specs.load("rolling_attention")
    for case in hinted_cases(attention, "A, B, C = 48, 96, 200", np.random.default_rng(3)):
        attention.bind(case)
