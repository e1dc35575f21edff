"""Microscaling: quantization and products against the OCP definition written as loops."""

import math

import ml_dtypes
import numpy as np
import pytest

from tests.verify.simulator.one import floats, nisa, nl, refused, run, unwritten

BF16 = ml_dtypes.bfloat16
TRN3 = "trn3"
ELEMENTS = {
    "float8_e4m3fn_x4": (ml_dtypes.float8_e4m3fn, 8), "float8_e5m2_x4": (ml_dtypes.float8_e5m2, 15),
}  # fmt: skip


def scale_row(partition):
    """Partition of the scale tile for a data partition, of a tile that spans several quadrants."""
    quadrant, inside = divmod(partition, 32)
    return quadrant * 32 + inside // 8


def quantized(values, name):
    """(codes uint8 [P, N], scale bytes {(group row, column): byte}) by the documented formula."""
    element, largest = ELEMENTS[name]
    codes, scales = np.zeros(values.shape, np.uint8), {}
    for p in range(0, values.shape[0], 8):
        for f in range(0, values.shape[1], 4):
            group = values[p : p + 8, f : f + 4].astype(np.float64)
            top = np.abs(group).max()
            power = -127 if top == 0 else math.floor(math.log2(top)) - (largest - 1)
            scales[p // 8, f // 4] = power + 127
            codes[p : p + 8, f : f + 4] = (group / 2.0**power).astype(np.float32).astype(element).view(np.uint8)
    return codes, scales


def quantize(name, scale_shape=None, offset=0):
    def build(x):
        p, f = x.shape[0], x.shape[1] // 4
        data = nl.ndarray((p, f), dtype=getattr(nl, name))
        scale = nl.ndarray(scale_shape or (p, f), dtype=nl.uint8)
        nisa.memset(scale, 0)
        nisa.quantize_mx(data, x, scale[offset:, :] if offset else scale)
        return data.view(nl.uint32), scale

    return build


@pytest.mark.parametrize("name", ELEMENTS)
@pytest.mark.parametrize("partitions", [32, 64, 128])
@pytest.mark.parametrize("dtype", [BF16, np.float16])
def test_quantize_mx_scales_groups_of_8_by_4(name, partitions, dtype):
    a = (floats(partitions, 12) * np.float32(7)).astype(dtype)
    a[0:8, 4:8] = 0
    codes, scales = quantized(a.astype(np.float32), name)
    packed, scale = run(quantize(name), a, target=TRN3)
    assert packed.view(np.uint8).tolist() == codes.tolist()
    for (group, column), byte in scales.items():
        row = scale_row(8 * group) if partitions > 32 else group
        assert scale[row, column] == byte


def test_scales_of_one_quadrant_may_be_a_small_tile():
    a = floats(32, 8, dtype=BF16)
    _, scales = quantized(a.astype(np.float32), "float8_e5m2_x4")
    _, scale = run(quantize("float8_e5m2_x4", (4, 2)), a, target=TRN3)
    assert scale.tolist() == [[scales[g, c] for c in range(2)] for g in range(4)]


def test_scales_pack_at_offsets_of_four():
    a = floats(32, 8, dtype=BF16)
    _, plain = run(quantize("float8_e5m2_x4", (4, 2)), a, target=TRN3)
    _, moved = run(quantize("float8_e5m2_x4", (32, 2), offset=8), a, target=TRN3)
    assert moved[8:12].tolist() == plain.tolist()
    assert refused(quantize("float8_e5m2_x4", (32, 2), offset=2), a, target=TRN3) == "mx_scale"
    assert refused(quantize("float8_e5m2_x4", (32, 2), offset=16), a, target=TRN3) == "mx_scale"


def test_quantize_mx_rules():
    name = "float8_e4m3fn_x4"
    assert refused(quantize(name), floats(32, 8, dtype=BF16)) == "target"
    assert refused(quantize(name), floats(32, 8), target=TRN3) == "dtype"
    assert refused(quantize(name), floats(40, 8, dtype=BF16), target=TRN3) == "mx_partitions"
    assert refused(quantize(name), floats(32, 10, dtype=BF16), target=TRN3) == "free_size"
    assert refused(quantize(name, (64, 3)), floats(64, 8, dtype=BF16), target=TRN3) == "mx_scale"
    assert refused(quantize(name, (8, 2)), floats(64, 8, dtype=BF16), target=TRN3) == "mx_scale"
    assert refused(quantize("float4_e2m1fn_x4"), floats(32, 8, dtype=BF16), target=TRN3) == "dtype"


def multiply(names, m, n, **options):
    """nc_matmul_mx of operands that arrive as bytes (fp4: two a byte) with scales of one partition a group."""

    def build(s, s_scale, v, v_scale):
        out = nl.ndarray((m, n), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul_mx(
            out, s.view(getattr(nl, names[0])), v.view(getattr(nl, names[1])), s_scale, v_scale, **options
        )
        return out

    return build


def operand(name, partitions, columns, seed):
    """(bytes as stored, scale bytes [P/8, columns], values [P, columns, 4] in float64)."""
    rng = np.random.default_rng(seed)
    scale = rng.integers(124, 131, (partitions // 8, columns)).astype(np.uint8)
    if name.startswith("float4"):
        codes = rng.integers(0, 16, (partitions, columns, 4)).astype(np.uint8)
        values = codes.view(ml_dtypes.float4_e2m1fn).astype(np.float64)
        words = sum(codes[..., i].astype(np.uint16) << (4 * i) for i in range(4)).astype(np.uint16)
        stored = words.view(np.uint8)
    else:
        element = ELEMENTS[name][0]
        numbers = rng.standard_normal((partitions, columns, 4)).astype(element)
        values, stored = numbers.astype(np.float64), numbers.view(np.uint8).reshape(partitions, columns * 4)
    factors = np.repeat(2.0 ** (scale.astype(np.float64) - 127), 8, axis=0)[..., None]
    return stored, scale, values * factors


@pytest.mark.parametrize("names", [
    ("float8_e4m3fn_x4", "float8_e4m3fn_x4"), ("float8_e5m2_x4", "float8_e4m3fn_x4"),
    ("float4_e2m1fn_x4", "float8_e5m2_x4"), ("float4_e2m1fn_x4", "float4_e2m1fn_x4"),
])  # fmt: skip
def test_an_mx_product_contracts_partitions_and_packed_elements(names):
    s, s_scale, s_values = operand(names[0], 32, 4, 0)
    v, v_scale, v_values = operand(names[1], 32, 6, 1)
    want = np.zeros((4, 6))
    for p in range(32):
        for q in range(4):
            want += np.outer(s_values[p, :, q], v_values[p, :, q])
    got = run(multiply(names, 4, 6), s, s_scale, v, v_scale, target=TRN3)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-4)


def test_quantize_then_multiply_approximates_the_product():
    a, b = floats(128, 16, dtype=BF16), floats(128, 24, seed=1, dtype=BF16)

    def build(x, y):
        tiles = []
        for source in (x, y):
            columns = source.shape[1] // 4
            data = nl.ndarray((128, columns), dtype=nl.float8_e4m3fn_x4)
            scale = nl.ndarray((128, columns), dtype=nl.float8_e8m0fnu)
            nisa.quantize_mx(data, source, scale)
            tiles.append((data, scale))
        out = nl.ndarray((4, 6), dtype=nl.bfloat16, buffer=nl.psum)
        (s, s_scale), (v, v_scale) = tiles
        nisa.nc_matmul_mx(out, s, v, s_scale, v_scale)
        return out

    x, y = (t.astype(np.float32).reshape(128, -1, 4).transpose(0, 2, 1).reshape(512, -1) for t in (a, b))
    got = run(build, a, b, target=TRN3).astype(np.float32)
    assert np.abs(got - x.T @ y).max() < 0.06 * np.abs(x.T @ y).max() + 1


def test_mx_products_accumulate_like_others():
    s, s_scale, s_values = operand("float8_e5m2_x4", 32, 4, 0)
    v, v_scale, v_values = operand("float8_e5m2_x4", 32, 6, 1)

    def build(*tiles):
        out = nl.ndarray((4, 6), dtype=nl.float32, buffer=nl.psum)
        for _ in range(2):
            nisa.nc_matmul_mx(
                out, tiles[0].view(nl.float8_e5m2_x4), tiles[2].view(nl.float8_e5m2_x4), tiles[1], tiles[3]
            )
        return out

    want = 2 * np.einsum("pmq,pnq->mn", s_values, v_values)
    np.testing.assert_allclose(run(build, s, s_scale, v, v_scale, target=TRN3), want, rtol=1e-5, atol=1e-4)


def test_mx_product_rules():
    name = "float8_e5m2_x4"
    s, s_scale, _ = operand(name, 32, 4, 0)
    v, v_scale, _ = operand(name, 32, 6, 1)
    odd, odd_scale, _ = operand(name, 32, 3, 0)
    tall, tall_scale, _ = operand(name, 64, 6, 0)
    pair = (name, name)
    assert refused(multiply(pair, 4, 6), s, s_scale, v, v_scale) == "target"
    assert refused(multiply(pair, 3, 6), odd, odd_scale, v, v_scale, target=TRN3) == "matmul_stationary"
    assert refused(multiply(pair, 4, 6), s, s_scale, tall, tall_scale, target=TRN3) == "matmul_contraction"
    assert refused(multiply(pair, 4, 6), s, s_scale, v, v_scale[:, :5], target=TRN3) == "mx_scale"
    column = multiply(pair, 4, 6, tile_position=(0, 0), tile_size=(32, 64))
    assert refused(column, s, s_scale, v, v_scale, target=TRN3) == "matmul_tile"
    row = multiply(pair, 4, 6, tile_position=(32, 0), tile_size=(32, 128))
    assert run(row, s, s_scale, v, v_scale, target=TRN3).shape == (4, 6)


def test_an_unwritten_scale_taints_its_column():
    s, s_scale, _ = operand("float8_e5m2_x4", 32, 4, 0)
    v, v_scale, _ = operand("float8_e5m2_x4", 32, 6, 1)

    def build(a, a_scale, b, b_scale):
        gap = nl.ndarray((4, 6), dtype=nl.uint8)
        nisa.tensor_copy(gap[:, 0:5], b_scale[:, 0:5])
        return multiply(("float8_e5m2_x4",) * 2, 4, 6)(a, a_scale, b, gap)

    mask = unwritten(build, s, s_scale, v, v_scale, target=TRN3)
    assert mask[:, 5].all() and not mask[:, :5].any()
