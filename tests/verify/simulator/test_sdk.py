"""Releases as data: names and parameters appear and go where the release notes say."""

import pytest

from nkismith.verify.simulator import sdk


@pytest.mark.parametrize(
    ("name", "release", "hint"),
    [
        ("nki.isa.scalar_load", "2.32", "register_load"),
        ("nki.isa.topk", "2.31", "max8"),
        ("nki.language.dynamic_range", "2.33", "fori_loop"),
        ("nki.language.par_dim", "2.29", "partition dimension first"),
    ],
)
def test_an_absent_name_says_what_to_write(name, release, hint):
    missing = sdk.absent(name, release)
    assert missing is not None
    assert hint in str(missing)


@pytest.mark.parametrize(
    ("name", "release"),
    [
        ("nki.isa.scalar_load", "2.33"),
        ("nki.isa.topk", "2.32"),
        ("nki.language.dynamic_range", "2.32"),
        ("nki.isa.nc_matmul", "2.29"),
    ],
)
def test_a_present_name_is_not_refused(name, release):
    assert sdk.absent(name, release) is None


def test_parameters_are_later_than_the_function():
    assert sdk.later_parameters("nki.isa.activation", "2.32") == {"engine": "2.33"}
    assert sdk.later_parameters("nki.isa.activation", "2.33") == {}


def test_an_unknown_release_is_refused_by_name():
    with pytest.raises(ValueError, match=r"2\.29, 2\.30, 2\.31, 2\.32, 2\.33"):
        sdk.check_sdk("2.99")


def test_releases_map_to_nki_versions():
    assert sdk.RELEASES["2.33"] == "0.7.0"
    assert sdk.since("nki.isa.topk") == "2.32"
    assert sdk.since("nki.isa.tensor_copy") == "2.29"
