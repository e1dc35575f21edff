"""nki.language: every function against NumPy or PyTorch, and what must be refused with what to write instead."""

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
import torch

from nkismith.verify.simulator import install
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.language.promotion import promoted

from .one import floats, in_psum, refused, run, warned

BF16 = ml_dtypes.bfloat16


def ones_and_zeros(*shape, dtype=np.float32):
    return np.random.default_rng(5).integers(0, 2, shape).astype(dtype)


# -- element by element -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    [
        "add",
        "subtract",
        "multiply",
        "maximum",
        "minimum",
        "equal",
        "not_equal",
        "less",
        "less_equal",
        "greater",
        "greater_equal",
    ],
)
def test_binary_functions_of_tiles_numbers_and_columns(name):
    call, want = getattr(nl, name), getattr(np, name)
    x, y = np.round(floats(6, 10) * 2), np.round(floats(6, 10, seed=1) * 2)
    column = np.round(floats(6, 1, seed=2) * 2)
    np.testing.assert_array_equal(run(lambda a, b: call(a, b), x, y), want(x, y).astype(np.float32))
    np.testing.assert_array_equal(run(lambda a: call(a, 1.0), x), want(x, np.float32(1)).astype(np.float32))
    np.testing.assert_array_equal(run(lambda a: call(1.0, a), x), want(np.float32(1), x).astype(np.float32))
    np.testing.assert_array_equal(run(lambda a, c: call(a, c), x, column), want(x, column).astype(np.float32))
    np.testing.assert_array_equal(run(lambda a, c: call(c, a), x, column), want(column, x).astype(np.float32))


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor"])
def test_bitwise_functions(name):
    x, y = (np.random.default_rng(s).integers(-1000, 1000, (4, 6)).astype(np.int32) for s in (0, 1))
    np.testing.assert_array_equal(run(lambda a, b: getattr(nl, name)(a, b), x, y), getattr(np, name)(x, y))
    np.testing.assert_array_equal(run(lambda a: getattr(nl, name)(a, 12), x), getattr(np, name)(x, 12))
    assert refused(lambda a: getattr(nl, name)(a, 12), floats(4, 6)) == "dtype"


def test_shifts_and_inversion():
    x = np.random.default_rng(0).integers(0, 1 << 20, (4, 6)).astype(np.uint32)
    np.testing.assert_array_equal(run(lambda a: nl.left_shift(a, 3), x), x << 3)
    np.testing.assert_array_equal(run(lambda a: nl.right_shift(a, 3), x), x >> 3)
    np.testing.assert_array_equal(run(lambda a: nl.invert(a), x), ~x)


@pytest.mark.parametrize(
    ("name", "want"), [("logical_and", np.logical_and), ("logical_or", np.logical_or), ("logical_xor", np.logical_xor)]
)
def test_logical_functions(name, want):
    x, y = ones_and_zeros(4, 9), ones_and_zeros(4, 9)[::-1].copy()
    np.testing.assert_array_equal(run(lambda a, b: getattr(nl, name)(a, b), x, y), want(x, y).astype(np.float32))
    np.testing.assert_array_equal(run(lambda a: nl.logical_not(a), x), 1 - x)


UNARY = {
    "exp": torch.exp, "log": torch.log, "sqrt": torch.sqrt, "rsqrt": torch.rsqrt, "tanh": torch.tanh,
    "sigmoid": torch.sigmoid, "relu": torch.relu, "gelu": torch.nn.functional.gelu, "silu": torch.nn.functional.silu,
    "softplus": torch.nn.functional.softplus, "mish": torch.nn.functional.mish, "erf": torch.erf, "abs": torch.abs,
    "square": torch.square, "sign": torch.sign, "reciprocal": torch.reciprocal, "negative": torch.neg,
    "floor": torch.floor, "ceil": torch.ceil, "trunc": torch.trunc, "sin": torch.sin, "cos": torch.cos,
    "tan": torch.tan, "arctan": torch.atan,
    "gelu_apprx_tanh": lambda t: torch.nn.functional.gelu(t, approximate="tanh"),
    "gelu_apprx_sigmoid": lambda t: t * torch.sigmoid(1.702 * t),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(UNARY))
def test_unary_functions(name):
    x = floats(5, 12) * 1.4
    if name in ("log", "sqrt", "rsqrt"):
        x = np.abs(x) + 0.1
    got = run(lambda a: getattr(nl, name)(a), x)
    np.testing.assert_allclose(got, UNARY[name](torch.from_numpy(x)).numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["gelu_dx", "silu_dx", "gelu_apprx_sigmoid_dx", "erf_dx"])
def test_derivatives(name):
    function = {**UNARY}[name.removesuffix("_dx")]
    x = torch.from_numpy(floats(3, 7)).double().requires_grad_()
    function(x).sum().backward()
    got = run(lambda a: getattr(nl, name)(a), x.detach().float().numpy())
    np.testing.assert_allclose(got, x.grad.float().numpy(), rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_trigonometry_reduces_its_argument(name):
    x = np.linspace(-300, 300, 999, dtype=np.float32).reshape(1, 999)
    want = getattr(np, name)(x.astype(np.float64))
    got = run(lambda a: getattr(nl, name)(a), x)
    tolerance = 1e-4 * (1 + want**2) if name == "tan" else 4e-6
    assert (np.abs(got - want) <= tolerance).all()
    if name == "sin":
        assert warned(lambda a: nl.sin(a), x) == []


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc"])
def test_rounding_of_halves_wholes_and_large_values(name):
    x = np.array([[0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 8388607.5, 1e9, -3e12, 2.0**31, 0.0]], np.float32)
    np.testing.assert_array_equal(run(lambda a: getattr(nl, name)(a), x), getattr(np, name)(x))


def test_power_takes_two_tiles():
    x, y = np.abs(floats(4, 5)), floats(4, 5, seed=1)
    np.testing.assert_allclose(run(lambda a, b: nl.power(a, b), x, y), x**y, rtol=1e-5)
    assert refused(lambda a: nl.power(a, 2.0), x) == "operator"


def test_rsqrt_does_not_reach_psum():
    assert refused(lambda a: nl.rsqrt(in_psum(a)), np.ones((4, 4), np.float32)) == "gpsimd_psum"
    run(lambda a: nl.sqrt(in_psum(a)), np.ones((4, 4), np.float32))


@pytest.mark.parametrize(("name", "hint"), [("divide", "reciprocal"), ("mod", "floor"), ("fmod", "trunc")])
def test_division_is_refused_with_what_to_write(name, hint):
    def kernel(x):
        return getattr(nl, name)(nl.load(x), 2.0)

    with pytest.raises(LegalityError, match="no_instruction") as caught:
        nki.simulate(kernel)(floats(2, 2))
    assert hint in caught.value.fix


def test_magnitudes_compare_on_trn3_and_ties_return_the_second():
    x, y = np.array([[5, -5, 1, 0]], np.float32), np.array([[-3, 3, -1, 2]], np.float32)
    np.testing.assert_array_equal(run(lambda a, b: nl.abs_max(a, b), x, y, target="trn3"), [[5, -5, -1, 2]])
    np.testing.assert_array_equal(run(lambda a, b: nl.abs_min(a, b), x, y, target="trn3"), [[-3, 3, -1, 0]])
    assert refused(lambda a, b: nl.abs_max(a, b), x, y) == "target"


def test_tiles_combine_where_free_extents_repeat():
    x, y = floats(4, 3, 5), floats(4, 1, 5, seed=1)
    np.testing.assert_array_equal(run(lambda a, b: nl.add(a, b), x, y), x + y)
    np.testing.assert_array_equal(run(lambda a, b: nl.multiply(b, a), x, y), x * y)
    assert refused(lambda a, b: nl.add(a, b), floats(4, 6), floats(1, 6)) == "operand_shapes"
    assert refused(lambda a, b: nl.add(a, b), floats(4, 6), floats(4, 5)) == "operand_shapes"
    assert refused(lambda a: nl.add(a, "1"), floats(4, 6)) == "operand_type"


@pytest.mark.parametrize(
    ("a", "b", "want"),
    [
        ("float32", "bfloat16", "float32"), ("float16", "bfloat16", "float32"),
        ("float8_e4m3", "float8_e5m2", "bfloat16"),
        ("float8_e4m3", "float16", "float16"), ("int32", "bfloat16", "bfloat16"), ("int8", "uint8", "int16"),
        ("int8", "uint16", "int32"), ("int32", "uint32", "float32"), ("uint8", "uint16", "uint16"),
        ("int16", "int8", "int16"), ("int32", "uint16", "int32"), ("tfloat32", "float32", "float32"),
        ("bool_", "int32", "int32"),
    ],
)  # fmt: skip
def test_results_take_the_promoted_dtype(a, b, want):
    assert promoted(a, b) == promoted(b, a) == want


def test_the_dtype_of_a_result_can_be_chosen():
    x = floats(3, 4)
    assert run(lambda a: nl.exp(a, dtype=nl.bfloat16), x).dtype == BF16
    assert run(lambda a: nl.add(a, 1.0, dtype=nl.int32), x).dtype == np.int32
    assert run(lambda a: nl.add(a, 1.0), x.astype(BF16)).dtype == BF16
    assert run(lambda a: nl.greater(a, 0.0), x.astype(BF16)).dtype == BF16
    assert run(lambda a: nl.equal(a, a, dtype=nl.uint8), x).dtype == np.uint8


# -- reductions and composites ------------------------------------------------------------------------------------


@pytest.mark.parametrize(("axis", "keepdims"), [(-1, False), (2, True), ((1, 2), False), ([1, 2], True), ((2,), False)])
@pytest.mark.parametrize("name", ["sum", "max", "min", "mean", "prod"])
def test_reductions(name, axis, keepdims):
    x = floats(4, 3, 5)
    want = getattr(np, name)(x, axis=tuple(axis) if isinstance(axis, list) else axis, keepdims=keepdims)
    got = run(lambda a: getattr(nl, name)(a, axis, keepdims=keepdims), x)
    np.testing.assert_allclose(got.reshape(want.shape), want, rtol=1e-5, atol=1e-5)
    assert got.ndim >= 2


def test_variance_keeps_its_dimensions_and_all_is_a_conjunction():
    x = floats(4, 3, 5)
    np.testing.assert_allclose(run(lambda a: nl.var(a, (1, 2)), x), x.var((1, 2), keepdims=True), rtol=1e-5)
    np.testing.assert_allclose(run(lambda a: nl.var(a, -1), x), x.var(-1, keepdims=True), rtol=1e-4, atol=1e-6)
    flags = ones_and_zeros(8, 2)
    np.testing.assert_array_equal(run(lambda a: nl.all(a, 1), flags)[:, 0], flags.all(1).astype(np.float32))


@pytest.mark.parametrize("axis", [0, 1, (0, 1), (), 3])
def test_only_the_last_free_dimensions_reduce(axis):
    assert refused(lambda a: nl.sum(a, axis), floats(4, 3, 5)) == "reduce_axis"
    run(lambda a: nl.sum(a, 2), floats(4, 3, 5))


@pytest.mark.parametrize("dtype", [np.float32, BF16])
def test_softmax_and_rms_norm(dtype):
    x, w = floats(6, 40, dtype=dtype), floats(6, 40, seed=1, dtype=dtype)
    t = torch.from_numpy(x.astype(np.float32))
    tolerance = {"rtol": 1e-2, "atol": 1e-2} if dtype == BF16 else {"rtol": 1e-5, "atol": 1e-6}
    got = run(lambda a: nl.softmax(a, axis=1), x)
    assert got.dtype == dtype
    np.testing.assert_allclose(got.astype(np.float32), torch.softmax(t, 1).numpy(), **tolerance)
    want = t * torch.rsqrt((t * t).mean(1, keepdim=True) + 1e-6) * torch.from_numpy(w.astype(np.float32))
    np.testing.assert_allclose(run(lambda a, b: nl.rms_norm(a, b, 1, 40), x, w).astype(np.float32), want, **tolerance)


def test_softmax_over_two_dimensions():
    x = floats(3, 4, 5) * 20
    want = torch.softmax(torch.from_numpy(x).reshape(3, 20), 1).reshape(3, 4, 5)
    np.testing.assert_allclose(run(lambda a: nl.softmax(a, (1, 2)), x), want, rtol=1e-5, atol=1e-6)


def test_where_chooses_from_tiles_and_numbers():
    c, x, y = ones_and_zeros(4, 6), floats(4, 6), floats(4, 6, seed=1)
    np.testing.assert_array_equal(run(lambda a, b, d: nl.where(a, b, d), c, x, y), np.where(c, x, y))
    np.testing.assert_array_equal(run(lambda a, b: nl.where(a, b, 2.0), c, x), np.where(c, x, np.float32(2)))
    np.testing.assert_array_equal(run(lambda a, b: nl.where(a, -1.0, b), c, x), np.where(c, np.float32(-1), x))
    mixed = run(lambda a, b, d: nl.where(a, b, d, dtype=nl.float32), c, x.astype(BF16), y)
    np.testing.assert_array_equal(mixed, np.where(c, x.astype(BF16).astype(np.float32), y))


def test_dropout_keeps_or_zeroes():
    x = np.ones((8, 200), np.float32)
    got = run(lambda a: nl.dropout(a, 0.25), x)
    assert set(np.unique(got)) == {0.0, 1.0}
    assert 0.6 < got.mean() < 0.9
    assert not run(lambda a: nl.dropout(a, 1.0), x).any()
    assert run(lambda a: nl.dropout(a, 0.0), x).all()


# -- movement and shapes ------------------------------------------------------------------------------------------


def test_copy_is_exact_and_reaches_psum():
    x = floats(4, 6)
    np.testing.assert_array_equal(run(lambda a: nl.copy(in_psum(a)), x), x)
    np.testing.assert_array_equal(run(lambda a: nl.copy(a, dtype=nl.bfloat16), x), x.astype(BF16))


def test_loads_and_stores_of_vectors_and_casts():
    def kernel(x):
        out = nl.ndarray((6,), dtype=nl.bfloat16, buffer=nl.shared_hbm)
        tile = nl.load(x, dtype=nl.bfloat16)
        assert tile.shape == (6, 1)
        nl.store(out, tile)
        return out

    x = floats(6)
    np.testing.assert_array_equal(nki.simulate(kernel)(x), x.astype(BF16))


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x, t: nl.load(t), "buffer"),
        (lambda x, t: nl.store(t, t), "buffer"),
        (lambda x, t: nl.store(x, in_psum(t)), "buffer"),
        (lambda x, t: nl.store(x, 1.0), "operand_type"),
    ],
)
def test_loads_start_and_stores_end_in_hbm(call, expected):
    def kernel(x, do):
        do(x, nl.load(x))
        return x

    with pytest.raises(LegalityError, match=expected):
        nki.simulate(kernel)(floats(4, 4), call)
    nki.simulate(kernel)(floats(4, 4), lambda x, t: nl.store(x, t))


@pytest.mark.parametrize("shape", [(128, 64), (300, 96), (5, 128)])
def test_load_transpose2d(shape):
    def kernel(x):
        out = nl.ndarray(x.shape[::-1], dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(x))
        return out

    x = floats(*shape)
    np.testing.assert_array_equal(nki.simulate(kernel)(x), x.T)


def test_items_take_tiles_and_numbers():
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        tile[:, 0:2] = x[:, 0:2]
        tile[:, 2:] = 7
        copy = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        copy[...] = tile
        out[...] = copy
        return out

    x = floats(4, 6)
    want = x.copy()
    want[:, 2:] = 7
    np.testing.assert_array_equal(nki.simulate(kernel)(x), want)


@pytest.mark.parametrize(
    ("shape", "target"),
    [((4, 1), (4, 9)), ((1, 6), (128, 6)), ((1, 1, 3), (7, 5, 3)), ((4, 6), (4, 6)), ((1, 1), (1, 8))],
)
@pytest.mark.parametrize("dtype", [np.float32, np.int32, BF16])
def test_broadcast_to_repeats_partitions_too(shape, target, dtype):
    x = (floats(*shape) * 100).astype(dtype)
    np.testing.assert_array_equal(run(lambda a: nl.broadcast_to(a, target), x), np.broadcast_to(x, target))


def test_broadcast_to_keeps_the_rank():
    assert refused(lambda a: nl.broadcast_to(a, (4, 3, 6)), floats(4, 6)) == "operand_shapes"
    assert refused(lambda a: nl.broadcast_to(a, (8, 6)), floats(4, 6)) == "operand_shapes"


def test_expand_dims():
    x = floats(4, 6)
    assert run(lambda a: nl.expand_dims(a, 1), x).shape == (4, 1, 6)
    assert run(lambda a: nl.expand_dims(a, -1), x).shape == (4, 6, 1)
    assert refused(lambda a: nl.expand_dims(a, 0), x) == "view_partition"


def test_transposes_land_in_psum():
    x = floats(100, 60)

    def build(tile):
        turned = nl.transpose(tile)
        assert turned.buffer == nl.psum
        return turned

    np.testing.assert_array_equal(run(build, x), x.T)
    np.testing.assert_array_equal(run(lambda a: nl.transpose(a, dtype=nl.bfloat16), x), x.T.astype(BF16))


@pytest.mark.parametrize("transposed", [True, False])
def test_matmul(transposed):
    x, y = floats(64, 100), floats(64 if transposed else 100, 300, seed=1)
    want = (x.T if transposed else x).astype(np.float64) @ y
    np.testing.assert_allclose(
        run(lambda a, b: nl.matmul(a, b, transpose_x=transposed), x, y), want, rtol=1e-4, atol=1e-4
    )


def test_gather_flattened():
    x, index = floats(5, 3, 4), np.random.default_rng(0).integers(0, 12, (5, 2, 9)).astype(np.uint32)
    want = np.take_along_axis(x.reshape(5, 12), index.reshape(5, 18).astype(np.int64), 1).reshape(5, 2, 9)
    np.testing.assert_array_equal(run(lambda a, b: nl.gather_flattened(a, b), x, index), want)
    np.testing.assert_array_equal(run(lambda a, b: nl.gather_flattened(a, b), x, index.astype(np.int32)), want)


# -- creation -----------------------------------------------------------------------------------------------------


def test_filled_tensors_on_chip_and_in_hbm():
    def kernel(x):
        results = []
        for make in (
            lambda b: nl.zeros((3, 4), nl.float32, buffer=b),
            lambda b: nl.ones((3, 4), nl.bfloat16, buffer=b),
            lambda b: nl.full((3, 4), 2.5, nl.float32, buffer=b),
            lambda b: nl.full((3, 4), 3.0, nl.int32, buffer=b),
            lambda b: nl.zeros_like(x, buffer=b),
        ):
            results.append(make(nl.shared_hbm))
            out = nl.ndarray(results[-1].shape, results[-1].dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(out, make(nl.sbuf))
            results.append(out)
        return tuple(results)

    got = nki.simulate(kernel)(floats(2, 5))
    for value, pair in zip((0, 1, 2.5, 3, 0), zip(got[::2], got[1::2], strict=True), strict=True):
        for tensor in pair:
            assert (tensor.astype(np.float32) == value).all()


def test_a_float_does_not_fill_integers():
    assert refused(lambda a: nl.full(a.shape, 2.5, nl.int32), floats(2, 2)) == "memset_value"
    run(lambda a: nl.full(a.shape, 2, nl.int32), floats(2, 2))


def test_constants_and_identities(tmp_path):
    values = floats(3, 4, dtype=BF16)
    np.save(tmp_path / "c.npy", floats(2, 2))

    def kernel(x, path):
        a = nl.shared_constant(values)
        b = nl.shared_constant(path)
        out = nl.ndarray((3, 4), nl.bfloat16, buffer=nl.shared_hbm)
        other = nl.ndarray((2, 2), nl.float32, buffer=nl.shared_hbm)
        identity = nl.ndarray((5, 5), nl.uint8, buffer=nl.shared_hbm)
        nl.store(out, nl.load(a))
        nl.store(other, nl.load(b))
        given = nl.ndarray((5, 5), nl.uint8, buffer=nl.sbuf)
        nl.shared_identity_matrix(5, dst=given)
        nl.store(identity, given)
        assert nl.shared_identity_matrix(5).dtype == nl.uint8
        return out, other, identity

    got = nki.simulate(kernel)(floats(1, 1), str(tmp_path / "c.npy"))
    np.testing.assert_array_equal(got[0], values)
    np.testing.assert_array_equal(got[1], floats(2, 2))
    np.testing.assert_array_equal(got[2], np.eye(5))


@pytest.mark.parametrize("target", ["trn2", "trn3"])
def test_random_numbers_are_uniform(target):
    got = run(lambda a: nl.rand((64, 500), nl.float32), floats(1, 1), target=target)
    assert 0 <= got.min() < 0.01
    assert 0.99 < got.max() <= 1
    assert abs(got.mean() - 0.5) < 0.01
    assert len(np.unique(got)) > 30000


def test_a_seed_repeats_random_numbers_on_trn2():
    def build(seed):
        nl.random_seed(seed)
        first = nl.rand((4, 8), nl.float32)
        nl.random_seed(seed)
        return first, nl.rand((4, 8), nl.float32), nl.rand((4, 8), nl.float32)

    a, b, c = run(build, np.array([[42]], np.int32))
    np.testing.assert_array_equal(a, b)
    assert (a != c).any()


def test_empty_like_can_prepare_a_transpose():
    def kernel(x):
        tile = nl.empty_like(x, buffer=nl.sbuf, transpose_axes=(1, 0))
        assert tile.shape == (8, 4)
        assert nl.empty_like(tile).shape == (8, 4)
        nisa.dma_transpose(tile, x, axes=(1, 0))
        out = nl.ndarray((8, 4), x.dtype, buffer=nl.shared_hbm)
        nl.store(out, tile)
        return out

    x = floats(4, 8)
    np.testing.assert_array_equal(nki.simulate(kernel)(x), x.T)


# -- control, constants, printing ---------------------------------------------------------------------------------


def test_ranges_are_python_s():
    assert list(nl.affine_range(4)) == list(nl.sequential_range(0, 4)) == list(nl.static_range(0, 4, 1)) == [0, 1, 2, 3]
    assert nl.range is range


def test_dynamic_range_is_gone_with_what_to_write():
    with pytest.raises(AttributeError, match="fori_loop"):
        _ = nl.dynamic_range


def test_dynamic_range_loops_on_the_device_before():
    install("2.32")
    try:
        import nki.language as old

        def kernel(x, count):
            out = old.ndarray((1, 1), old.float32, buffer=old.shared_hbm)
            total = old.zeros((1, 1), old.float32)
            register = nisa.register_alloc()
            nisa.register_load(register, count)
            for _ in old.dynamic_range(register):
                nisa.tensor_scalar(total, total, op0=old.add, operand0=2.0)
            nisa.dma_copy(out, total)
            return out

        assert nki.simulate(kernel)(floats(1, 1), np.array([[5]], np.int32))[0, 0] == 10
    finally:
        install()


@pytest.mark.parametrize(("target", "usable", "total"), [("trn2", 212984, 28), ("trn3", 245752, 32)])
def test_tile_sizes_follow_the_target(target, usable, total):
    def build(tile):
        size = nl.tile_size
        assert (size.pmax, size.psum_bank_fmax, size.psum_bank_fmax_bytes, size.psum_fmax) == (128, 512, 2048, 512)
        assert (size.gemm_stationary_fmax, size.gemm_moving_fmax, size.bn_stats_fmax) == (128, 512, 512)
        assert (size.psum_min_align, size.sbuf_min_align, size.psum_num_banks) == (4, 1, 8)
        assert size.sbuf_fmax_bytes == size.total_available_sbuf_size == usable
        assert size.sbuf_fmax == usable // 4
        assert size.sbuf_size_bytes == total << 20
        return tile

    run(build, floats(1, 1), target=target)


def test_one_bank_goes_to_replaced_transposes(monkeypatch):
    monkeypatch.setenv("NKI_DMA_TRANSPOSE_AS_PE_TRANSPOSE", "true")
    assert nl.tile_size.psum_num_banks == 7


def test_tile_sizes_outside_a_kernel_are_those_of_the_installed_target():
    install(target="trn3")
    try:
        assert nl.tile_size.sbuf_fmax_bytes == 245752
    finally:
        install()
    assert nl.tile_size.sbuf_fmax_bytes == 212984


def test_program_identity_of_one_core():
    def build(tile):
        assert (nl.program_id(), nl.program_id(0), nl.num_programs(), nl.program_ndim()) == (0, 0, 1, 0)
        return tile

    run(build, floats(1, 1))
    assert refused(lambda a: nl.program_id(1), floats(1, 1)) == "launch"


def test_memory_regions_answer():
    assert nl.is_hbm(nl.shared_hbm)
    assert nl.is_hbm(nl.hbm)
    assert not nl.is_hbm(nl.sbuf)
    assert nl.is_sbuf(nl.sbuf)
    assert nl.is_psum(nl.psum)
    assert nl.is_on_chip(nl.psum)
    assert not nl.is_on_chip(nl.private_hbm)
    assert nl.hbm is nl.private_hbm is nl.MemoryRegion.private_hbm


def test_device_print_shows_prefix_and_values(capsys):
    def kernel(x):
        tile = nl.load(x)
        nl.device_print("my tile", tile)
        nl.fori_loop(0, 2, lambda i: nl.device_print("again", tile))
        return x

    nki.simulate(kernel)(np.full((2, 2), 1.25, np.float32))
    printed = capsys.readouterr().out
    assert printed.index("my tile") < printed.index("1.25") < printed.index("again")
    assert printed.count("again") == 2


def test_device_print_does_not_reach_psum():
    assert refused(lambda a: nl.device_print("p", in_psum(a)) or a, floats(2, 2)) == "buffer"
    assert refused(lambda a: nl.device_print(3, a) or a, floats(2, 2)) == "operand_type"


def test_calls_outside_a_kernel_say_so():
    with pytest.raises(Exception, match="inside a kernel"):
        nl.zeros((2, 2), nl.float32)
