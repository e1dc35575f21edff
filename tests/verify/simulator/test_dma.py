"""DMA: copies, casts, gathers, scatters, sums and transposes against NumPy; every rule with an innocent neighbour."""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkismith.verify.simulator.errors import LegalityError

from .one import floats, like, refused, run

BF16 = ml_dtypes.bfloat16


def simulated(kernel, *arrays):
    return nki.simulate(kernel)(*arrays)


def rule(kernel, *arrays):
    with pytest.raises(LegalityError) as caught:
        simulated(kernel, *arrays)
    assert caught.value.line is not None
    return caught.value.rule


def output(shape, dtype=nl.float32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


# -- dma_copy -----------------------------------------------------------------------------------------------------


def test_casts_go_through_float32_and_round_once():
    x = floats(4, 8) * 100
    for dtype, want in [("bfloat16", x.astype(BF16)), ("float16", x.astype(np.float16)), ("int32", np.rint(x))]:
        got = run(lambda t, d=dtype: copied(t, d), x)
        np.testing.assert_array_equal(got.astype(np.float64), want.astype(np.float64))


def copied(tile, dtype):
    result = like(tile, dtype)
    nisa.dma_copy(result, tile)
    return result


def test_integers_of_another_type_lose_what_float32_cannot_hold():
    x = np.array([[1, (1 << 24) + 1, -3]], np.int32)
    np.testing.assert_array_equal(run(lambda t: copied(t, "uint32"), x), [[1, 1 << 24, 0]])
    np.testing.assert_array_equal(run(lambda t: copied(t, "int32"), x), x)


def test_element_counts_must_match_and_shapes_need_not():
    def kernel(x):
        out = output((6, 4))
        tile = nl.ndarray((4, 6), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        nisa.dma_copy(out, tile)
        return out

    x = np.arange(24, dtype=np.float32).reshape(24)
    np.testing.assert_array_equal(simulated(kernel, x), x.reshape(6, 4))
    assert rule(kernel, np.zeros(25, np.float32)) == "operand_shapes"


def gather(pattern_rows=None, oob=None, mode=None):
    def kernel(data, index):
        rows, width = pattern_rows or index.shape[0], data.shape[1]
        out = output((rows, width), data.dtype)
        at = nl.load(index)
        tile = nl.ndarray((rows, width), dtype=data.dtype, buffer=nl.sbuf)
        nisa.memset(tile, -1)
        nisa.dma_copy(
            tile,
            data.ap([[width, rows], [1, width]], vector_offset=at, indirect_dim=0),
            oob_mode=oob or nisa.oob_mode.error,
            dge_mode=mode or nisa.dge_mode.unknown,
        )
        nisa.dma_copy(out, tile)
        return out

    return kernel


@pytest.mark.parametrize("dtype", [np.float32, np.int32, BF16, np.uint8])
def test_a_vector_offset_gathers_rows(dtype):
    data = (np.random.default_rng(1).standard_normal((50, 7)) * 50).astype(np.int32).astype(dtype)
    index = np.random.default_rng(2).integers(0, 50, (33, 1)).astype(np.uint32)
    if np.dtype(dtype).kind == "u":
        kernel = gather_unsigned
    else:
        kernel = gather()
    np.testing.assert_array_equal(simulated(kernel, data, index), data[index[:, 0]])


def gather_unsigned(data, index):
    out = output((index.shape[0], data.shape[1]), data.dtype)
    tile = nl.ndarray((index.shape[0], data.shape[1]), dtype=data.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, data.vector_select(0, nl.load(index)))
    nisa.dma_copy(out, tile)
    return out


def test_rows_out_of_bounds_raise_or_are_skipped():
    data = floats(10, 4)
    index = np.array([[3], [10], [0], [4000000000]], np.uint32)
    assert rule(gather(), data, index) == "dynamic_bounds"
    got = simulated(gather(oob=nisa.oob_mode.skip), data, index)
    np.testing.assert_array_equal(got, np.stack([data[3], np.full(4, -1), data[0], np.full(4, -1)]))


def test_a_gather_follows_the_view_it_starts_from():
    def kernel(data, index):
        out = output((4, 3))
        tile = nl.ndarray((4, 3), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(tile, data[2:, 1:4].vector_select(0, nl.load(index)))
        nisa.dma_copy(out, tile)
        return out

    data, index = floats(10, 6), np.array([[0], [7], [2], [2]], np.int32)
    np.testing.assert_array_equal(simulated(kernel, data, index), data[2:, 1:4][index[:, 0]])


def scatter(oob=None):
    def kernel(rows, index, table):
        width = rows.shape[1]
        tile, at = nl.load(rows), nl.load(index)
        nisa.dma_copy(
            table.ap([[width, rows.shape[0]], [1, width]], vector_offset=at, indirect_dim=0),
            tile,
            oob_mode=oob or nisa.oob_mode.error,
        )

    return kernel


def test_a_vector_offset_scatters_rows_in_place_and_the_last_of_equal_rows_stays():
    rows, table = floats(5, 4), floats(9, 4, seed=3)
    index = np.array([[8], [0], [4], [0], [2]], np.uint32)
    want = table.copy()
    for row, at in zip(rows, index[:, 0], strict=True):
        want[at] = row
    simulated(scatter(), rows, index, table)
    np.testing.assert_array_equal(table, want)


def test_scatter_skips_rows_out_of_bounds():
    rows, table = floats(3, 4), floats(4, 4, seed=3)
    index = np.array([[9], [1], [4]], np.uint32)
    want = table.copy()
    want[1] = rows[1]
    assert rule(scatter(), rows, index, table.copy()) == "dynamic_bounds"
    simulated(scatter(nisa.oob_mode.skip), rows, index, table)
    np.testing.assert_array_equal(table, want)


def test_a_scalar_offset_may_be_a_tile_a_register_or_a_scalar():
    def kernel(data, index, how):
        out = output((128, 8))
        at = nl.load(index)
        if how == "scalar":
            at = nisa.scalar_load(at)
        elif how == "register":
            register = nisa.register_alloc()
            nisa.register_load(register, at)
            at = register
        tile = nl.ndarray((128, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(tile, data.ap([[8, 128], [1, 8]], scalar_offset=at, indirect_dim=0))
        nisa.dma_copy(out, tile)
        return out

    data = floats(512, 8)
    for how in ("tile", "scalar", "register"):
        got = simulated(kernel, data, np.array([[3 * 128]], np.int32), how)
        np.testing.assert_array_equal(got, data[384:])
        with pytest.raises(LegalityError, match="dynamic_bounds"):
            simulated(kernel, data, np.array([[385]], np.int32), how)


def test_an_int64_scalar_reaches_hbm():
    def kernel(data, index):
        out = output((1, 8))
        at = nisa.scalar_load(index)
        tile = nl.ndarray((1, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(tile, data.select(0, at))
        nisa.dma_copy(out, tile)
        return out

    data = floats(5, 8)
    np.testing.assert_array_equal(simulated(kernel, data, np.array([[4]], np.int64))[0], data[4])


def test_a_skipped_scalar_offset_moves_nothing():
    def kernel(data, index):
        out = output((1, 8))
        tile = nl.zeros((1, 8), nl.float32)
        nisa.dma_copy(tile, data.select(0, nl.load(index)), oob_mode=nisa.oob_mode.skip)
        nisa.dma_copy(out, tile)
        return out

    data = floats(5, 8)
    assert not simulated(kernel, data, np.array([[5]], np.int32)).any()
    np.testing.assert_array_equal(simulated(kernel, data, np.array([[4]], np.int32))[0], data[4])


def test_an_index_that_nothing_wrote_is_refused():
    def kernel(data, index):
        out = output((4, 8))
        at = nl.ndarray((4, 1), dtype=nl.uint32, buffer=nl.sbuf)
        nisa.dma_copy(at[0:3], index[0:3])
        tile = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(tile, data.vector_select(0, at))
        nisa.dma_copy(out, tile)
        return out

    assert rule(kernel, floats(5, 8), np.zeros((4, 1), np.uint32)) == "unwritten_index"


def dma(**options):
    """A copy with options, cast to bfloat16 if asked."""
    dtype = options.pop("dtype", None)

    def build(tile):
        result = like(tile, dtype)
        nisa.dma_copy(result, tile, **options)
        return result

    return build


@pytest.mark.parametrize(
    ("offender", "expected", "neighbour"),
    [
        ({"dge_mode": nisa.dge_mode.hwdge, "dtype": "bfloat16"}, "dtype", {"dge_mode": nisa.dge_mode.hwdge}),
        ({"engine": nisa.engine.sync}, "dma_engine", {"engine": nisa.engine.sync, "dge_mode": nisa.dge_mode.hwdge}),
        (
            {"engine": nisa.engine.vector, "dge_mode": nisa.dge_mode.hwdge},
            "dma_engine",
            {"engine": nisa.engine.scalar, "dge_mode": nisa.dge_mode.hwdge},
        ),
        ({"priority": 1}, "dma_priority", {}),
        ({"dge_mode": 4}, "enum_value", {"dge_mode": 3}),
        ({"oob_mode": 1}, "enum_value", {"oob_mode": nisa.oob_mode.skip}),
    ],
)
def test_rules_of_dma_copy(offender, expected, neighbour):
    assert refused(dma(**offender), floats(4, 4)) == expected
    run(dma(**neighbour), floats(4, 4))


def test_priority_is_for_trn3():
    run(dma(priority=3), floats(4, 4), target="trn3")
    assert refused(dma(priority=4), floats(4, 4), target="trn3") == "dma_priority"


def test_psum_is_out_of_reach():
    def build(tile):
        psum = like(tile, buffer=nl.psum)
        nisa.tensor_copy(psum, tile)
        result = like(tile)
        nisa.dma_copy(result, psum)
        return result

    assert refused(build, floats(4, 4)) == "buffer"


def test_hardware_descriptors_have_no_vector_offset():
    data, index = floats(10, 4), np.zeros((4, 1), np.uint32)
    assert rule(gather(mode=nisa.dge_mode.hwdge), data, index) == "dge_mode"
    assert rule(gather(mode=nisa.dge_mode.none), data, index) == "dge_mode"
    simulated(gather(mode=nisa.dge_mode.swdge), data, index)


def test_packed_types_move_and_do_not_convert():
    x = np.arange(8, dtype=np.uint32).reshape(2, 4)
    np.testing.assert_array_equal(run(lambda t: copied(t.view(nl.float8_e4m3fn_x4), "float8_e4m3fn_x4"), x), x)
    assert refused(lambda t: copied(t.view(nl.float8_e4m3fn_x4), "uint32"), x) == "dtype"


# -- dma_transpose ------------------------------------------------------------------------------------------------


def transposed(axes=None, shape=None, dtype=None, **options):
    def kernel(x):
        order = axes or {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}[x.ndim]
        target = shape or tuple(x.shape[a] for a in order)
        out = output(target, dtype or x.dtype)
        tile = nl.ndarray(target, dtype=dtype or x.dtype, buffer=nl.sbuf)
        nisa.dma_transpose(tile, x, axes=axes, **options)
        nisa.dma_copy(out, tile)
        return out

    return kernel


@pytest.mark.parametrize(
    ("shape", "axes"),
    [
        ((200, 96), None),
        ((16, 128), (1, 0)),
        ((7, 5, 33), (2, 1, 0)),
        ((6, 3, 2, 20), (3, 1, 2, 0)),
        ((2, 3, 4, 5), None),
    ],
)
@pytest.mark.parametrize("dtype", [BF16, np.float32])
def test_direct_transposes(shape, axes, dtype):
    x = floats(*shape, dtype=dtype)
    order = axes or {2: (1, 0), 4: (3, 1, 2, 0)}[len(shape)]
    np.testing.assert_array_equal(simulated(transposed(axes), x), x.transpose(order))


def test_a_transpose_reads_sbuf_too():
    x = floats(16, 64, dtype=BF16)

    def build(tile):
        result = like(tile, shape=(64, 16))
        nisa.dma_transpose(result, tile)
        return result

    np.testing.assert_array_equal(run(build, x), x.T)


HWDGE = {"dge_mode": nisa.dge_mode.hwdge}


@pytest.mark.parametrize(
    ("options", "shape", "expected", "neighbour"),
    [
        ({"axes": (0, 1)}, (16, 16), "transpose_axes", ({"axes": (1, 0)}, (16, 16))),
        ({"axes": (0, 2, 1)}, (16, 4, 16), "transpose_axes", ({"axes": (2, 1, 0)}, (16, 4, 16))),
        ({"shape": (16, 1, 16)}, (16, 16), "operand_shapes", ({}, (16, 16))),
        ({}, (16, 129), "partition_limit", ({}, (129, 16))),
        ({"dtype": nl.float16}, (16, 16), "dtype", ({}, (16, 16))),
        (HWDGE, (32, 16), "transpose_size", (HWDGE, (16, 16))),
        (HWDGE, (3, 16, 16), "transpose_size", (HWDGE, (4, 16, 16))),
        (HWDGE, (4, 5, 16), "transpose_size", (HWDGE, (4, 4, 16))),
        (HWDGE, (4, 2, 3, 16), "transpose_size", (HWDGE, (4, 2, 4, 16))),
        ({"dge_mode": nisa.dge_mode.swdge}, (16, 16), "dge_mode", ({"dge_mode": nisa.dge_mode.unknown}, (16, 16))),
        ({"oob_mode": nisa.oob_mode.skip}, (16, 16), "oob_mode", ({"oob_mode": nisa.oob_mode.error}, (16, 16))),
    ],
)
def test_rules_of_direct_transposes(options, shape, expected, neighbour):
    x = np.ones(shape, BF16)
    assert rule(transposed(**options), x) == expected
    options, shape = neighbour
    simulated(transposed(**options), np.ones(shape, BF16))


def test_hardware_transposes_move_two_bytes():
    assert rule(transposed(**HWDGE), floats(16, 16)) == "dtype"
    simulated(transposed(**HWDGE), floats(16, 16, dtype=np.float16))


def gather_transposed(rows, skip=False):
    def kernel(data, index):
        width = data.shape[1]
        out = output((width, rows), data.dtype)
        tile = nl.zeros((width, rows), dtype=data.dtype)
        nisa.dma_transpose(
            tile,
            data.ap([[width, rows], [1, width]], vector_offset=nl.load(index), indirect_dim=0),
            axes=(1, 0),
            oob_mode=nisa.oob_mode.skip if skip else nisa.oob_mode.error,
        )
        nisa.dma_copy(out, tile)
        return out

    return kernel


@pytest.mark.parametrize(("held", "rows"), [((128, 2), 256), ((128, 2), 160), ((128, 1), 128), ((32, 1), 32)])
def test_a_gather_transpose_reads_its_index_column_by_column(held, rows):
    data = floats(300, 64, dtype=BF16)
    index = np.random.default_rng(0).integers(0, 300, held).astype(np.uint32)
    want = data[index.T.reshape(-1)[:rows]].T
    np.testing.assert_array_equal(simulated(gather_transposed(rows), data, index), want)


def test_a_gather_transpose_in_four_dimensions():
    def kernel(data, index):
        rows, (_, a, b, c) = 32, data.shape
        out = output((c, a, b, rows), data.dtype)
        tile = nl.ndarray((c, a, b, rows), dtype=data.dtype, buffer=nl.sbuf)
        pattern = [[a * b * c, rows], [b * c, a], [c, b], [1, c]]
        nisa.dma_transpose(tile, data.ap(pattern, vector_offset=nl.load(index)), axes=(3, 1, 2, 0))
        nisa.dma_copy(out, tile)
        return out

    data = floats(40, 3, 1, 16, dtype=BF16)
    index = np.random.default_rng(0).integers(0, 40, (32, 1)).astype(np.uint32)
    np.testing.assert_array_equal(simulated(kernel, data, index), data[index[:, 0]].transpose(3, 1, 2, 0))
    assert rule(kernel, floats(40, 3, 2, 16, dtype=BF16), index) == "transpose_size"


def test_groups_of_sixteen_rows_exist_or_are_skipped_together():
    data = floats(100, 8, dtype=BF16)
    index = np.arange(32, dtype=np.uint32)[:, None]
    index[16:] = 1000
    got = simulated(gather_transposed(32, skip=True), data, index)
    np.testing.assert_array_equal(got, np.concatenate([data[:16].T, np.zeros((8, 16), BF16)], axis=1))
    index[3] = 1000
    assert rule(gather_transposed(32, skip=True), data, index) == "gather_groups"


@pytest.mark.parametrize(
    ("rows", "index", "dtype", "expected"),
    [
        (24, np.zeros((32, 1), np.uint32), BF16, "transpose_size"),
        (32, np.zeros((32, 1), np.int32), BF16, "index_tile"),
        (16, np.zeros((8, 2), np.uint32), BF16, "index_tile"),
        (32, np.zeros((64, 2), np.uint32), BF16, "index_tile"),
        (48, np.zeros((32, 1), np.uint32), BF16, "index_tile"),
        (32, np.zeros((32, 1), np.uint32), np.float32, "dtype"),
    ],
)
def test_rules_of_gather_transposes(rows, index, dtype, expected):
    assert rule(gather_transposed(rows), np.ones((40, 16), dtype), index) == expected
    simulated(gather_transposed(32), np.ones((40, 16), BF16), np.zeros((32, 1), np.uint32))


# -- dma_compute --------------------------------------------------------------------------------------------------


def summed(count, **options):
    def build(tile):
        result = like(tile)
        nisa.dma_compute(result, [tile] * count, **{"reduce_op": nl.add, **options})
        return result

    return build


def test_dma_compute_adds_in_float32():
    x = floats(4, 6, dtype=BF16)
    want = (x.astype(np.float32) * 3).astype(BF16)
    np.testing.assert_array_equal(run(summed(3), x), want)


@pytest.mark.parametrize(
    ("count", "options", "expected"),
    [
        (17, {}, "operand_count"),
        (2, {"reduce_op": nl.multiply}, "operator"),
        (2, {"scales": (1.0, 2.0)}, "dma_scales"),
        (2, {"scales": (1.0,)}, "dma_scales"),
    ],
)
def test_rules_of_dma_compute(count, options, expected):
    assert refused(summed(count, **options), floats(4, 4)) == expected
    run(summed(16, scales=(1.0,) * 16), floats(4, 4))


def scatter_add(unique=True, also=False):
    def kernel(rows, index, table):
        width = rows.shape[1]
        tile, at = nl.load(rows), nl.load(index)
        view = table.ap([[width, rows.shape[0]], [1, width]], vector_offset=at, indirect_dim=0)
        nisa.dma_compute(view, [view, tile, tile] if also else [view, tile], nl.add, unique_indices=unique)

    return kernel


def test_scatter_add_reads_modifies_and_writes_rows():
    rows, table = floats(4, 6), floats(8, 6, seed=1)
    index = np.array([[7], [0], [3], [5]], np.uint32)
    want = table.copy()
    want[index[:, 0]] += rows
    simulated(scatter_add(), rows, index, table)
    np.testing.assert_allclose(table, want, rtol=1e-6)


def test_scatter_add_needs_unique_rows_and_two_sources():
    rows, table, index = floats(2, 6), floats(8, 6), np.array([[1], [1]], np.uint32)
    assert rule(scatter_add(), rows, index, table) == "duplicate_index"
    distinct = np.array([[1], [2]], np.uint32)
    assert rule(scatter_add(unique=False), rows, distinct, table) == "duplicate_index"
    assert rule(scatter_add(also=True), rows, distinct, table) == "dma_modify"
    simulated(scatter_add(), rows, distinct, table)


def test_gather_add_accumulates_rows_into_a_tile():
    def kernel(data, index, base):
        out = output(base.shape)
        tile = nl.load(base)
        view = data.vector_select(0, nl.load(index))
        nisa.dma_compute(tile, [tile, view], nl.add)
        nisa.dma_copy(out, tile)
        return out

    data, base = floats(9, 5), floats(4, 5, seed=2)
    index = np.array([[8], [0], [8], [2]], np.uint32)
    np.testing.assert_allclose(simulated(kernel, data, index, base), base + data[index[:, 0]], rtol=1e-6)


def test_dma_compute_has_static_addresses_otherwise():
    def kernel(data, index):
        out = output((1, 4))
        tile = nl.zeros((1, 4), nl.float32)
        nisa.dma_compute(tile, [tile, data.select(0, nl.load(index))], nl.add)
        nisa.dma_copy(out, tile)
        return out

    assert rule(kernel, floats(4, 4), np.zeros((1, 1), np.int32)) == "static_address"
