"""dtypes and casts against PyTorch and exact arithmetic."""

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nkismith.verify.simulator.dtypes import DTYPES, STORAGE, as_float32, cast
from nkismith.verify.simulator.operators import erf

SPECIAL = [0.0, -0.0, 1.0, -1.5, 65504.0, 65520.0, 448.0, 464.0, 240.0, 248.0, 3.4e38, 1e-40, np.inf, -np.inf, np.nan]


def column(values):
    return np.array([values], np.float32)


@given(st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_bfloat16_and_float16_round_like_pytorch(values):
    x = column(values + SPECIAL)
    for dtype, kind in (("bfloat16", torch.bfloat16), ("float16", torch.float16)):
        want = torch.from_numpy(x).to(kind).float().numpy()
        np.testing.assert_array_equal(as_float32(cast(x, dtype), dtype), want)


@given(st.lists(st.floats(-500, 500, width=32), min_size=1, max_size=20))
def test_fp8_rounds_to_the_nearest_of_its_values(values):
    for dtype, top in (("float8_e4m3", 240.0), ("float8_e5m2", 57344.0), ("float8_e4m3fn", 448.0)):
        grid = np.arange(256, dtype=np.uint8).view(STORAGE[dtype]).astype(np.float64)
        grid = np.unique(grid[np.isfinite(grid)])
        assert grid.max() == top
        got = as_float32(cast(column(values), dtype), dtype)[0]
        for x, y in zip(values, got.astype(np.float64), strict=True):  # differences of float32 are exact in float64
            if abs(x) <= top:
                assert abs(y - x) == np.abs(grid - x).min()


def test_ties_go_to_the_even_neighbour():
    assert cast(column([1 + 2.0**-8, 1 + 3 * 2.0**-8]), "bfloat16").astype(np.float32).tolist() == [[1.0, 1 + 2.0**-6]]
    assert cast(column([17.0, 19.0, 18.0]), "float8_e4m3").astype(np.float32).tolist() == [[16.0, 20.0, 18.0]]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "uint16", "int32", "uint32"])
def test_floats_become_integers_to_nearest_even_and_saturate(dtype):
    info = np.iinfo(dtype)
    x = [0.5, 1.5, 2.5, -0.5, -1.5, 126.5, 127.5, 1e10, -1e10, float(info.max), float(info.min), np.inf, -np.inf, 1e30]
    whole = [round(float(np.float32(v))) if np.isfinite(v) else (info.max if v > 0 else info.min) for v in x]
    want = [min(max(v, info.min), info.max) for v in whole]
    assert cast(column(x), dtype).tolist() == [want]


@given(st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=9))
def test_integers_saturate_too(values):
    wide = np.array([values], np.int64)
    for dtype in ("int8", "uint16"):
        info = np.iinfo(dtype)
        assert cast(wide, dtype).tolist() == [[min(max(v, info.min), info.max) for v in values]]


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=20))
def test_tfloat32_keeps_ten_mantissa_bits(values):
    x = column(values)
    got = cast(x, "tfloat32")
    assert not (got.view(np.uint32) & 0x1FFF).any()
    finite = np.isfinite(got)
    assert (np.abs(got - x)[finite] <= np.maximum(np.abs(x) * 2.0**-11, 2.0**-137)[finite]).all()


def test_nan_stays_nan_and_overflow_is_infinite_where_there_is_infinity():
    for dtype in ("bfloat16", "float16", "float8_e4m3", "float8_e5m2"):
        got = as_float32(cast(column([np.nan, 3.4e38, -3.4e38]), dtype), dtype)[0]
        assert np.isnan(got[0]) and got[1] == np.inf and got[2] == -np.inf
    assert np.isnan(as_float32(cast(column([np.nan]), "float8_e4m3fn"), "float8_e4m3fn")).all()


def test_the_scale_dtype_holds_powers_of_two_and_its_smallest_for_zero():
    got = cast(column([0.0, 1.0, 2.0**-3, 2.0**100]), "float8_e8m0fnu")
    assert got.view(np.uint8).tolist() == [[0, 127, 124, 227]]


def test_every_value_of_a_narrow_dtype_survives_the_way_through_float32():
    for dtype in DTYPES:
        if STORAGE[dtype].itemsize == 1 and dtype != "bool_":
            values = np.arange(256, dtype=np.uint8).view(STORAGE[dtype])[None]
            wide = as_float32(values, dtype)
            keep = ~np.isnan(wide)
            assert cast(wide, dtype)[keep].tobytes() == values[keep].tobytes()


def test_dtypes_equal_what_means_the_same():
    assert DTYPES["bfloat16"] == ml_dtypes.bfloat16 == DTYPES["bfloat16"]
    assert DTYPES["float32"] == np.float32 and DTYPES["float32"] == "float32" and DTYPES["float32"] != np.float16
    assert DTYPES["uint8"] == np.dtype("uint8") and DTYPES["bool_"] == "bool"


def test_erf_is_the_library_function():
    x = np.concatenate([np.linspace(-7, 7, 4001), [np.inf, -np.inf, np.nan, 1e-12]])
    with np.errstate(invalid="ignore"):
        got = erf(x)
    np.testing.assert_allclose(got, torch.erf(torch.from_numpy(x)).numpy(), rtol=1e-12, atol=1e-13)
