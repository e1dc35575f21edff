"""TensorE: products, accumulation into PSUM, transposes, tiles of the array."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verify.simulator.one import floats, in_psum, like, nisa, nl, refused, run, unwritten, warned

BF16, E4M3, E4M3FN, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
TRN3 = "trn3"


def product(dtype=None, **options):
    def build(s, m):
        out = nl.ndarray((s.shape[-1], m.shape[-1]), dtype=dtype or nl.float32, buffer=nl.psum)
        nisa.nc_matmul(out, s, m, **options)
        return out

    return build


def dot(s, m):
    """stationary.T @ moving by loops in float64."""
    s, m = s.astype(np.float64), m.astype(np.float64)
    return np.array(
        [[sum(s[k, i] * m[k, j] for k in range(len(s))) for j in range(m.shape[1])] for i in range(s.shape[1])]
    )


@given(
    st.sampled_from([(np.float32, np.float32), (BF16, BF16), (BF16, np.float16), (E4M3, E5M2), (E5M2, BF16)]),
    st.integers(1, 7), st.integers(1, 5), st.integers(1, 6), st.integers(0, 99),
)  # fmt: skip
@settings(max_examples=25, deadline=None)
def test_a_matmul_contracts_the_partitions(dtypes, k, m, n, seed):
    s, v = floats(k, m, seed=seed).astype(dtypes[0]), floats(k, n, seed=seed + 1).astype(dtypes[1])
    np.testing.assert_allclose(run(product(), s, v), dot(s, v), rtol=1e-5, atol=1e-5)


def test_products_of_16_bit_values_are_exact():
    s, v = floats(1, 8, dtype=BF16), floats(1, 9, seed=1, dtype=BF16)
    want = s.astype(np.float32).T * v.astype(np.float32)
    assert run(product(), s, v).tobytes() == want.tobytes()


def test_free_dimensions_are_flattened():
    s, v = floats(8, 2, 3), floats(8, 4, 5, seed=1)

    def build(x, y):
        out = nl.ndarray((6, 4, 5), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(out, x, y)
        return out

    np.testing.assert_allclose(
        run(build, s, v).reshape(6, 20), dot(s.reshape(8, 6), v.reshape(8, 20)), rtol=1e-5, atol=1e-5
    )


@pytest.mark.parametrize("dtypes,target,rule", [
    ((np.float32, BF16), "trn2", "matmul_dtypes"), ((E4M3FN, E4M3FN), "trn2", "target"),
    ((E4M3FN, E4M3), TRN3, "matmul_dtypes"), ((np.int8, np.int8), "trn2", "dtype"),
])  # fmt: skip
def test_the_dtype_table(dtypes, target, rule):
    s, v = np.ones((4, 4)).astype(dtypes[0]), np.ones((4, 4)).astype(dtypes[1])
    assert refused(product(), s, v, target=target) == rule


def test_float8_e4m3fn_multiplies_on_trn3():
    s, v = floats(4, 4).astype(E4M3FN), floats(4, 4, seed=1).astype(E5M2)
    np.testing.assert_allclose(run(product(), s, v, target=TRN3), dot(s, v), rtol=1e-5, atol=1e-6)


def test_the_destination_is_float32_and_on_trn3_also_bfloat16():
    a = floats(4, 4, dtype=BF16)
    assert refused(product(nl.bfloat16), a, a) == "matmul_dst"
    assert refused(product(nl.float16), a, a, target=TRN3) == "matmul_dst"
    want = dot(a, a).astype(np.float32).astype(BF16)
    assert run(product(nl.bfloat16), a, a, target=TRN3).tobytes() == want.tobytes()


def test_size_limits():
    def wide(s, m):  # 256 stationary columns on 128 partitions of dst
        out = nl.ndarray((128, 2, 4), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(out, s, m)
        return out

    assert refused(wide, floats(8, 256), floats(8, 4)) == "matmul_stationary"
    assert refused(product(), floats(8, 4), floats(7, 4)) == "matmul_contraction"
    assert run(product(), floats(8, 128), floats(8, 512)).shape == (128, 512)

    def mismatched(s, m):
        out = nl.ndarray((4, 5), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(out, s, m)
        return out

    assert refused(mismatched, floats(8, 4), floats(8, 4)) == "operand_shapes"


def test_one_instruction_writes_one_bank_on_trn2():
    def window(start, columns):
        def build(a, b):
            wide = like(a, "float32", nl.psum, (a.shape[1], 1024))
            nisa.memset(wide, 0.0)
            nisa.nc_matmul(wide[:, start : start + columns], a, b[:, :columns])
            return wide

        return build

    a, b = floats(32, 16), floats(32, 512, seed=1)
    for start, columns in ((0, 512), (512, 512), (384, 128), (512, 1)):
        result = run(window(start, columns), a, b, target="trn2")
        np.testing.assert_allclose(result[:, start : start + columns], a.T @ b[:, :columns], rtol=1e-4, atol=1e-4)
    for start, columns in ((256, 512), (511, 2)):
        assert refused(window(start, columns), a, b) == "psum_bank"
        run(window(start, columns), a, b, target="trn3")  # its moving tile may fill all of PSUM


def test_operands_come_from_sbuf_and_results_go_to_psum():
    def psum_operand(s, m):
        return product()(in_psum(s), m)

    def sbuf_result(s, m):
        out = nl.ndarray((4, 4), dtype=nl.float32)
        nisa.nc_matmul(out, s, m)
        return out

    a = floats(4, 4)
    assert refused(psum_operand, a, a) == "buffer"
    assert refused(sbuf_result, a, a) == "buffer"


def twice(first, second, before=None):
    def build(s, m):
        out = nl.ndarray((4, 6), dtype=nl.float32, buffer=nl.psum)
        if before is not None:
            nisa.memset(out, before)
        nisa.nc_matmul(out, s, m, accumulate=first)
        nisa.nc_matmul(out, s, m, accumulate=second)
        return out

    return build


def test_accumulate_overwrites_adds_or_finds_out():
    s, v = floats(5, 4), floats(5, 6, seed=1)
    once = s.T @ v
    for first, second, times in (
        (None, None, 2),
        (False, True, 2),
        (False, False, 1),
        (None, True, 2),
        (None, False, 1),
    ):
        np.testing.assert_allclose(run(twice(first, second), s, v), times * once, rtol=1e-5, atol=1e-6)


def test_accumulate_true_on_psum_that_nothing_wrote_is_undefined():
    s, v = floats(5, 4), floats(5, 6)
    assert unwritten(twice(True, True), s, v).all()
    assert not unwritten(twice(False, True), s, v).any()


def test_accumulating_onto_values_that_no_matmul_wrote_adds_and_warns_on_trn2():
    s, v = floats(5, 4), floats(5, 6, seed=1)
    build = twice(True, True, before=3.0)
    np.testing.assert_allclose(run(build, s, v), 3 + 2 * (s.T @ v), rtol=1e-5, atol=1e-5)
    assert any("no matmul wrote" in text for text in warned(build, s, v))
    assert warned(build, s, v, target=TRN3) == []
    assert warned(twice(False, True, before=0.0), s, v) == []


def test_windows_of_one_psum_tile_accumulate_element_by_element():
    s, v = floats(5, 4), floats(5, 4, seed=1)
    want = np.zeros((4, 6), np.float32)
    for shift in range(3):
        want[:, shift : shift + 4] += s.T @ v

    def build(x, y):
        out = nl.ndarray((4, 6), dtype=nl.float32, buffer=nl.psum)
        for shift in range(3):
            nisa.nc_matmul(out[:, shift : shift + 4], x, y)
        return out

    np.testing.assert_allclose(run(build, s, v), want, rtol=1e-5, atol=1e-5)


def test_a_psum_tile_made_in_a_loop_body_starts_anew_each_time():
    s, v = floats(5, 4), floats(5, 6, seed=1)

    def build(x, y):
        out = nl.ndarray((4, 6), dtype=nl.float32)

        def body(_):
            result = nl.ndarray((4, 6), dtype=nl.float32, buffer=nl.psum)
            nisa.nc_matmul(result, x, y)
            nisa.tensor_copy(out, result)

        nl.fori_loop(0, 3, body)
        return out

    np.testing.assert_allclose(run(build, s, v), s.T @ v, rtol=1e-5, atol=1e-6)


def test_bfloat16_psum_rounds_after_each_addition():
    s, v = floats(5, 4, dtype=BF16), floats(5, 6, seed=1, dtype=BF16)

    def build(x, y):
        out = nl.ndarray((4, 6), dtype=nl.bfloat16, buffer=nl.psum)
        for _ in range(3):
            nisa.nc_matmul(out, x, y)
        return out

    once = s.astype(np.float32).T @ v.astype(np.float32)
    want = once.astype(BF16)
    for _ in range(2):
        want = (want.astype(np.float32) + once).astype(BF16)
    assert run(build, s, v, target=TRN3).tobytes() == want.tobytes()


@pytest.mark.parametrize("dtypes", [(E4M3, E4M3), (E4M3, E5M2)])
def test_double_row_contracts_twice_the_partitions(dtypes):
    s, v = floats(6, 2, 3).astype(dtypes[0]), floats(6, 2, 5, seed=1).astype(dtypes[1])
    want = sum(dot(s[:, i], v[:, i]) for i in (0, 1))
    double = product(perf_mode=nisa.matmul_perf_mode.double_row)
    np.testing.assert_allclose(run(double, s, v), want, rtol=1e-5, atol=1e-5)


def test_double_row_rules():
    double = nisa.matmul_perf_mode.double_row
    fp8 = floats(4, 2, 4).astype(E4M3)
    assert refused(product(perf_mode=double), floats(4, 2, 4, dtype=BF16), fp8) == "matmul_double_row"
    assert refused(product(perf_mode=double), fp8.reshape(4, 8), fp8) == "matmul_double_row"
    assert refused(product(perf_mode=double, is_transpose=True), fp8, fp8) == "matmul_double_row"
    tiled = product(perf_mode=double, tile_position=(0, 0), tile_size=(32, 64))
    assert refused(tiled, fp8, fp8) == "matmul_double_row"


@pytest.mark.parametrize("position,size,rule", [
    ((0, 0), (32, 128), None), ((32, 0), (32, 128), None), ((64, 0), (64, 128), None), ((0, 64), (64, 64), None),
    ((16, 0), (32, 128), "matmul_tile"), ((0, 0), (48, 128), "matmul_tile"), ((), (32, 128), "matmul_tile"),
    ((128, 0), (32, 128), "matmul_tile"), ((0, 0), (32, 32), "matmul_tile"),
])  # fmt: skip
def test_tiles_of_the_array(position, size, rule):
    s, v = floats(32, 40), floats(32, 6, seed=1)
    build = product(tile_position=position, tile_size=size)
    if rule is None:
        np.testing.assert_allclose(run(build, s, v), dot(s, v), rtol=1e-4, atol=1e-4)
    else:
        assert refused(build, s, v) == rule


def transposed(dtype=None, buffer=None, engine=None):
    def build(x):
        p, f = x.shape[0], int(np.prod(x.shape[1:]))
        out = nl.ndarray((f, p), dtype=dtype or x.dtype, buffer=buffer or nl.psum)
        nisa.nc_transpose(out, x, engine=engine or nisa.engine.unknown)
        return out

    return build


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16, np.uint16, np.int32])
@pytest.mark.parametrize("shape", [(128, 128), (7, 40), (16, 3, 4)])
def test_transpose_swaps_partitions_and_the_flattened_free_axes(dtype, shape):
    a = np.random.default_rng(0).integers(0, 100, shape).astype(dtype)
    assert run(transposed(), a).tolist() == a.reshape(shape[0], -1).T.tolist()


def test_transpose_keeps_nan_and_infinity_where_they_are():
    a = floats(40, 33)
    a[3, 4], a[7, 8] = np.nan, np.inf
    a = a.astype(BF16)
    assert run(transposed(), a).tobytes() == np.ascontiguousarray(a.T).tobytes()


def test_engines_of_transpose():
    a = floats(32, 32)
    assert run(transposed(buffer=nl.sbuf), a).tolist() == a.T.tolist()
    assert refused(transposed(buffer=nl.sbuf), floats(33, 4)) == "transpose_size"
    assert refused(transposed(buffer=nl.sbuf, engine=nisa.engine.tensor), a) == "buffer"
    assert refused(transposed(engine=nisa.engine.vector), floats(64, 4)) == "transpose_size"
    assert refused(transposed(dtype=nl.bfloat16), a) == "dtype"


def test_8_bit_transposes_of_trn2_land_with_element_step_two():
    a = floats(40, 36).astype(E4M3)

    def build(x):
        out = nl.ndarray((36, 80), dtype=nl.float8_e4m3, buffer=nl.psum)
        nisa.nc_transpose(out[:, 0:80:2], x)
        return out

    got = run(build, a, target="trn2")
    assert got[:, ::2].tobytes() == np.ascontiguousarray(a.T).tobytes()
    assert (got[:, 1::2].view(np.uint8) == 0).all()
    assert refused(transposed(), a) == "transpose_fp8_step"
    assert run(transposed(), a, target=TRN3).tobytes() == np.ascontiguousarray(a.T).tobytes()


def test_is_transpose_moves_bits_to_the_ones_of_the_moving_operand():
    a = floats(6, 4, dtype=BF16)
    a[2, 1] = np.nan
    order = [3, 0, 5, 1, 4, 2]
    ones = np.eye(6)[:, order].astype(BF16)
    assert run(product(nl.bfloat16, is_transpose=True), a, ones).tobytes() == np.ascontiguousarray(a[order].T).tobytes()
    assert warned(product(nl.bfloat16, is_transpose=True), a, ones) == []
    assert any("one 1" in text for text in warned(product(is_transpose=True), a, ones * 2))


def test_unwritten_data_reaches_the_rows_and_columns_it_is_multiplied_into():
    def build(s, m):
        gap = like(s)
        nisa.tensor_copy(gap[:, 0:2], s[:, 0:2])
        return product()(gap, m)

    mask = unwritten(build, floats(4, 3), floats(4, 5))
    assert mask.tolist() == [[False] * 5] * 2 + [[True] * 5]


def test_unwritten_data_stays_in_place_through_a_transpose():
    def build(x):
        gap = like(x)
        nisa.tensor_copy(gap[:, 1:4], x[:, 1:4])
        return transposed()(gap)

    mask = unwritten(build, floats(40, 4))
    assert mask[0].all() and not mask[1:].any()


def test_tfloat32_has_ten_mantissa_bits():
    a = np.array([[1 + 2.0**-10 + 2.0**-13]], np.float32)

    def build(x, y):
        return product()(x.view(nl.tfloat32), y.view(nl.tfloat32))

    assert run(build, a, np.ones((1, 1), np.float32)).tolist() == [[1 + 2.0**-10]]
