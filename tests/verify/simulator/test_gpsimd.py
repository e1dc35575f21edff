"""GpSimdE against loops in Python and the documentation's examples; every rule with an innocent neighbour."""

import ml_dtypes
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from .one import floats, like, refused, run, unwritten

BF16 = ml_dtypes.bfloat16


def new(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)


# -- iota, affine_select ------------------------------------------------------------------------------------------


def affine(partitions, pattern, offset, multiplier):
    """The documented loop."""
    (sw, nw), (sz, nz), (sy, ny), (sx, nx) = [[0, 1]] * (4 - len(pattern)) + pattern
    values = np.zeros((partitions, nw, nz, ny, nx), np.int64)
    for p, w, z, y, x in np.ndindex(values.shape):
        values[p, w, z, y, x] = offset + p * multiplier + w * sw + z * sz + y * sy + x * sx
    return values.reshape(partitions, -1)


@pytest.mark.parametrize(
    ("pattern", "offset", "multiplier"),
    [
        ([[1, 12]], 0, 0),
        ([[3, 4], [-1, 3]], -5, 7),
        ([[10, 2], [0, 3], [1, 2]], 100, -3),
        ([[1, 1], [2, 3], [5, 2], [7, 2]], 1, 1),
    ],
)
@pytest.mark.parametrize("dtype", ["int32", "float32", "int16", "bfloat16"])
def test_iota(pattern, offset, multiplier, dtype):
    def build(tile):
        result = like(tile, dtype)
        nisa.iota(result, pattern, offset, multiplier)
        return result

    got = run(build, np.zeros((5, 12), np.float32))
    np.testing.assert_array_equal(got.astype(np.float64), affine(5, pattern, offset, multiplier))


def test_iota_wraps_at_32_bits():
    def build(tile):
        result = like(tile, "int32")
        nisa.iota(result, [[1 << 30, 4]])
        return result

    np.testing.assert_array_equal(run(build, floats(1, 4)), [[0, 1 << 30, -(1 << 31), -(1 << 30)]])


@pytest.mark.parametrize("op", ["equal", "not_equal", "greater", "greater_equal", "less", "less_equal"])
def test_affine_select_keeps_what_the_comparison_with_zero_holds_for(op):
    x = floats(6, 8)

    def build(tile):
        result = like(tile)
        nisa.affine_select(result, [[-1, 8]], 1, tile, -9948.0, cmp_op=getattr(nl, op), offset=1)
        return result

    want = np.where(getattr(np, op)(affine(6, [[-1, 8]], 1, 1), 0), x, np.float32(-9948))
    np.testing.assert_array_equal(run(build, x), want)


def test_affine_select_masks_causally_and_casts():
    x = floats(16, 16, dtype=BF16)

    def build(tile):
        result = like(tile, "float32")
        nisa.affine_select(result, [[-1, 16]], 1, tile, -1.0, cmp_op=nl.greater_equal)
        return result

    want = np.where(np.tril(np.ones((16, 16), bool)), x.astype(np.float32), np.float32(-1))
    np.testing.assert_array_equal(run(build, x), want)


def test_affine_select_reads_only_what_it_keeps():
    def build(tile):
        half = like(tile)
        nisa.memset(half[:, 0:4], 1.0)
        result = like(tile)
        nisa.affine_select(result, [[-1, 8]], 0, half, 0.0, cmp_op=nl.greater, offset=6)
        return result

    np.testing.assert_array_equal(unwritten(build, floats(2, 8)), [[False] * 4 + [True] * 2 + [False] * 2] * 2)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda t: nisa.iota(like(t), [[1, 7]]), "operand_shapes"),
        (lambda t: nisa.iota(like(t), [[1, 1]] * 4 + [[1, 8]]), "affine_pattern"),
        (lambda t: nisa.iota(like(t), [[1, 8]], offset=1.5), "affine_pattern"),
        (lambda t: nisa.iota(like(t), [[1, 2, 4]]), "affine_pattern"),
        (lambda t: nisa.iota(like(t, buffer=nl.psum), [[1, 8]]), "buffer"),
        (lambda t: nisa.affine_select(like(t), [[1, 8]], 0, t, 0.0, cmp_op=nl.add), "operator"),
        (lambda t: nisa.affine_select(like(t), [[1, 8]], 0, t, None), "operand_type"),
    ],
)
def test_rules_of_affine_instructions(build, expected):
    def whole(tile):
        build(tile)
        return tile

    assert refused(whole, floats(2, 8)) == expected

    def neighbour(tile):
        result = like(tile)
        nisa.iota(result, [[1, 8]], offset=1)
        return result

    run(neighbour, floats(2, 8))


# -- segments, non-zeros, partitions ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_sequence_bounds_of_the_documented_example(dtype):
    def build(tile):
        result = new((1, 2, tile.shape[1]), tile.dtype)
        nisa.sequence_bounds(result, tile)
        return result

    ids = np.array([[0, 1, 1, 2, 2, 2, 0, 3, 3]], dtype)
    want = [[[9, 1, 1, 3, 3, 3, 9, 7, 7], [-1, 3, 3, 6, 6, 6, -1, 9, 9]]]
    np.testing.assert_array_equal(run(build, ids), want)
    np.testing.assert_array_equal(run(build, np.array([[4]], dtype)), [[[0], [1]]])
    np.testing.assert_array_equal(run(build, np.array([[5, 5, 5]], dtype)), [[[0, 0, 0], [3, 3, 3]]])


def test_sequence_bounds_needs_one_partition_and_two_rows():
    def build(tile):
        nisa.sequence_bounds(new((1, 3, 4), "int32"), tile[0:1])
        return tile

    assert refused(build, np.zeros((1, 4), np.int32)) == "operand_shapes"


@pytest.mark.parametrize("dtype", [np.int32, np.float32])
def test_nonzero_with_count_of_the_documented_example(dtype):
    def build(tile):
        result = new((tile.shape[0], tile.shape[1] + 1), "int32")
        nisa.nonzero_with_count(result, tile, index_offset=16, padding_val=-1)
        return result[0:1]

    x = np.array([[0, 1, 1, 0, 0, 1, 0, 0]], dtype)
    np.testing.assert_array_equal(run(build, x), [[17, 18, 21, -1, -1, -1, -1, -1, 3]])


def test_nonzero_with_count_touches_every_sixteenth_partition():
    def build(tile):
        result = new((128, 5), "int32")
        nisa.memset(result, 77)
        nisa.nonzero_with_count(result, tile)
        return result

    x = np.random.default_rng(0).integers(0, 2, (128, 4)).astype(np.float32)
    got = run(build, x)
    for p in range(128):
        found = list(np.flatnonzero(x[p]))
        want = found + [-1] * (4 - len(found)) + [len(found)] if p % 16 == 0 else [77] * 5
        np.testing.assert_array_equal(got[p], want)


def test_nonzero_with_count_has_one_element_more():
    def build(tile):
        nisa.nonzero_with_count(new((1, 8), "int32"), tile)
        return tile

    assert refused(build, floats(1, 8)) == "operand_shapes"


@pytest.mark.parametrize(
    ("op", "want"),
    [
        ("add", lambda x: x.sum(0)),
        ("average", lambda x: x.mean(0)),
        ("mean", lambda x: x.mean(0)),
        ("max", lambda x: x.max(0)),
        ("maximum", lambda x: x.max(0)),
    ],
)
def test_partition_reductions(op, want):
    def build(tile):
        result = new((1, 3, 4))
        nisa.tensor_partition_reduce(result, getattr(nl, op), tile)
        return result

    x = floats(100, 3, 4)
    np.testing.assert_allclose(run(build, x)[0], want(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_partition_reductions_of_bits(op):
    def build(tile):
        result = new((1, 6), tile.dtype)
        nisa.tensor_partition_reduce(result, getattr(nl, op), tile)
        return result

    x = np.random.default_rng(0).integers(-1000, 1000, (9, 6)).astype(np.int32)
    np.testing.assert_array_equal(run(build, x)[0], getattr(np, op).reduce(x, axis=0))
    assert refused(build, floats(9, 6)) == "dtype"


def test_partition_sums_of_integers_are_exact():
    def build(tile):
        result = new((1, 1), "int32")
        nisa.tensor_partition_reduce(result, nl.add, tile)
        return result

    x = np.full((3, 1), (1 << 24) + 1, np.int32)
    assert run(build, x)[0, 0] == 3 * ((1 << 24) + 1)


def test_partition_reductions_know_their_operators():
    def build(op):
        def inner(tile):
            nisa.tensor_partition_reduce(new((1, 6)), op, tile)
            return tile

        return inner

    assert refused(build(nl.multiply), floats(9, 6)) == "operator"
    run(build(nl.add), floats(9, 6))


# -- gathers ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("run_length", [1, 2, 4, 8])
@pytest.mark.parametrize("count", [None, 37])
def test_local_gather_reads_its_index_partition_first(run_length, count):
    rng = np.random.default_rng(0)
    data = floats(32, 64)
    index = rng.integers(0, 64 - run_length + 1, (32, 4)).astype(np.uint16)
    n = count or 64

    def build(tile, at):
        result = new((32, n, run_length))
        nisa.local_gather(result, tile, at, run_length, count)
        return result

    got = run(build, data, index)
    for p in range(32):
        group = p // 16 * 16
        flat = [index[group + i % 16, i // 16] for i in range(n)]
        want = np.stack([data[p, i : i + run_length] for i in flat])
        np.testing.assert_array_equal(got[p], want)


@pytest.mark.parametrize(
    ("partitions", "index", "options", "dst", "expected"),
    [
        (24, (24, 1), {}, (24, 16), "partition_groups"),
        (16, (16, 1), {"num_elem_per_idx": 3}, (16, 48), "gather_run"),
        (16, (16, 1), {"num_valid_indices": 17}, (16, 17), "gather_count"),
        (16, (16, 257), {}, (16, 4112), "gather_count"),
        (16, (16, 1), {}, (16, 15), "operand_shapes"),
        (32, (16, 1), {}, (32, 16), "operand_shapes"),
    ],
)
def test_rules_of_local_gather(partitions, index, options, dst, expected):
    def build(tile, at):
        result = new(dst)
        nisa.local_gather(result, tile, at, **options)
        return tile

    assert refused(build, floats(partitions, 64), np.zeros(index, np.uint16)) == expected

    def neighbour(tile, at):
        result = new((16, 16))
        nisa.local_gather(result, tile, at)
        return result

    run(neighbour, floats(16, 64), np.zeros((16, 1), np.uint16))
    assert refused(neighbour, floats(16, 64), np.zeros((16, 1), np.int16)) == "dtype"
    assert refused(neighbour, floats(16, 64), np.full((16, 1), 64, np.uint16)) == "dynamic_bounds"


def test_n_gather_flattens_free_dimensions():
    data = floats(10, 4, 8)
    index = np.random.default_rng(0).integers(0, 32, (10, 3, 7)).astype(np.uint32)

    def build(tile, at):
        result = new(at.shape)
        nisa.nc_n_gather(result, tile, at)
        return result

    want = np.take_along_axis(data.reshape(10, 32), index.reshape(10, 21).astype(np.int64), axis=1)
    np.testing.assert_array_equal(run(build, data, index).reshape(10, 21), want)
    assert refused(build, data, index.astype(np.int32)) == "dtype"
    assert refused(build, data, np.full((10, 3, 7), 32, np.uint32)) == "dynamic_bounds"


def test_n_gather_keeps_the_dtype():
    def build(tile, at):
        result = new(at.shape, "bfloat16")
        nisa.nc_n_gather(result, tile, at)
        return result

    assert refused(build, floats(4, 8), np.zeros((4, 2), np.uint32)) == "dtype"


# -- topk ---------------------------------------------------------------------------------------------------------


def snake(group):
    """Elements of a group of 16 partitions in snake order."""
    return group.T.reshape(-1)


@pytest.mark.parametrize(("partitions", "n", "k"), [(16, 42, 8), (32, 64, 20), (128, 100, 64), (16, 8, 8)])
@pytest.mark.parametrize("ordered", [False, True])
def test_topk_of_each_group_of_sixteen_partitions(partitions, n, k, ordered):
    rng = np.random.default_rng(0)
    columns = -(-n // 16)
    x = rng.permutation(partitions * columns).reshape(partitions, columns).astype(np.float32).astype(BF16)

    def build(tile):
        values, places = new((partitions, k), "bfloat16"), new((partitions, k), "uint32")
        nisa.topk(values, places, tile, n, sorted=ordered)
        return values, places

    values, places = run(build, x)
    for start in range(0, partitions, 16):
        elements = snake(x[start : start + 16])[:n].astype(np.float32)
        got = snake(values[start : start + 16])[:k].astype(np.float32)
        at = snake(places[start : start + 16])[:k]
        want = np.sort(elements)[::-1][:k]
        np.testing.assert_array_equal(np.sort(got)[::-1], want)
        np.testing.assert_array_equal(elements[at], got)
        if ordered:
            np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize(
    ("partitions", "n", "k", "dtype", "expected"),
    [
        (24, 32, 8, BF16, "partition_groups"),
        (16, 16, 17, BF16, "topk_size"),
        (16, 65, 8, BF16, "operand_shapes"),
        (16, 32, 8, np.float32, "dtype"),
    ],
)
def test_rules_of_topk(partitions, n, k, dtype, expected):
    def build(count, width):
        def inner(tile):
            values, places = new((tile.shape[0], width), "bfloat16"), new((tile.shape[0], width), "uint32")
            nisa.topk(values, places, tile, count)
            return values

        return inner

    assert refused(build(n, k), floats(partitions, 4, dtype=dtype)) == expected
    run(build(32, 8), floats(16, 4, dtype=BF16))
