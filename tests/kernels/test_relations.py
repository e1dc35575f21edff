import numpy as np
import pytest

from nkismith.kernels.expressions import ExpressionError
from nkismith.kernels.relations import parse_relations

RNG = np.random.default_rng(0)


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("0 <= n < V", 0, 9), ("1 <= n <= V", 1, 10), ("-2 < n < V//2", -1, 4)],
)
def test_draws_fill_the_range_and_nothing_else(text, low, high):
    values = parse_relations("n", text, "K").draw((2000,), {"V": 10}, RNG)
    assert set(values.tolist()) == set(range(low, high + 1))


def test_both_ends_can_be_asked_for():
    relations = parse_relations("n", "1 <= n <= V", "K")
    assert relations.draw((3,), {"V": 10}, RNG, "low").tolist() == [1, 1, 1]
    assert relations.draw((3,), {"V": 10}, RNG, "high").tolist() == [10, 10, 10]


def test_bounds_may_be_earlier_integers_element_by_element():
    ends = np.array([3, 1, 7])
    values = parse_relations("starts", "0 <= starts < ends", "K").draw((3,), {"ends": ends}, RNG)
    assert (values >= 0).all() and (values < ends).all()


def test_permutation_sorted_and_distinct_hold_along_the_last_axis():
    order = parse_relations("p", "permutation", "n").draw((4, 6), {"n": 6}, RNG)
    assert (np.sort(order, axis=-1) == np.arange(6)).all()
    ids = parse_relations("ids", ["0 <= ids < n", "distinct", "sorted"], "K").draw((4, 6), {"n": 50}, RNG)
    assert (np.diff(ids, axis=-1) > 0).all()


@pytest.mark.parametrize(
    ("lines", "values", "word"),
    [
        (["0 <= n < 4"], [0, 4], r"must lie in 0\.\.3, got \[0, 4\]"),
        (["0 <= n < 4", "distinct"], [1, 1], "distinct"),
        (["0 <= n < 4", "sorted"], [2, 1], "sorted"),
    ],
)
def test_given_values_that_break_a_relation_are_named(lines, values, word):
    import re

    message = parse_relations("n", lines, "K").broken_by(np.array(values), {})
    assert message is not None and re.search(word, message)
    assert parse_relations("n", lines, "K").broken_by(np.array([1, 2]), {}) is None


@pytest.mark.parametrize("lines", ["n < 4", "0 <= m < 4", "distinct", ["0 <= n < 4", "unique"], "0 > n > -4"])
def test_a_relation_that_is_not_a_range_is_refused(lines):
    with pytest.raises(ExpressionError):
        parse_relations("n", lines, "K")


def test_an_impossible_draw_is_an_error_not_a_loop():
    with pytest.raises(ExpressionError, match="needs 5 distinct values"):
        parse_relations("n", ["0 <= n < 4", "distinct"], "K").draw((5,), {}, RNG)
    with pytest.raises(ExpressionError, match="no value of n"):
        parse_relations("n", "1 <= n < 1", "K").draw((1,), {}, RNG)
