import numpy as np
import pytest

from nkismith.kernels.expressions import ExpressionError, parse


@pytest.mark.parametrize(
    ("text", "value"),
    [("2*F", 42), ("L//2 + 1", 5), ("-(F - L + 1) % 4", 3), ("min(F, 7) + max(L, 3)", 16), ("F / 2", 10.5), (17, 17)],
)
def test_arithmetic_follows_python(text, value):
    assert parse(text).value({"F": 21, "L": 9}) == value


def test_names_are_what_the_expression_needs():
    assert parse("S*H*b + x.itemsize*min(S, 3)").names == {"S", "H", "b", "x.itemsize"}


def test_comparisons_chain_and_work_on_arrays():
    within = parse("0 <= ids < V")
    assert within.holds({"ids": np.array([0, 4]), "V": 5})
    assert not within.holds({"ids": np.array([0, 5]), "V": 5})


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os')",
        "S.__class__",
        "x[0]",
        "2**64",
        "lambda: 1",
        "S if H else 1",
        "'a'",
        "True",
        "S and H",
        "",
        "max(1)",
    ],
)
def test_what_is_not_arithmetic_is_refused(text):
    with pytest.raises(ExpressionError):
        parse(text)


def test_a_fraction_is_not_a_size():
    with pytest.raises(ExpressionError, match="use // for division"):
        parse("L/2").integer({"L": 3})


def test_a_missing_name_says_what_is_known():
    with pytest.raises(ExpressionError, match=r"no value for 'S' \(known: H\)"):
        parse("S*H").value({"H": 1})
