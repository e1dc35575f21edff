"""VectorE arithmetic and moves against element-by-element meanings."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verify.simulator.one import floats, in_psum, like, nisa, nl, refused, run, unwritten, warned

BF16 = ml_dtypes.bfloat16
BINARY = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "maximum": lambda a, b: a if a > b else b,
    "minimum": lambda a, b: a if a < b else b,
    "equal": lambda a, b: float(a == b),
    "not_equal": lambda a, b: float(a != b),
    "greater": lambda a, b: float(a > b),
    "greater_equal": lambda a, b: float(a >= b),
    "less": lambda a, b: float(a < b),
    "less_equal": lambda a, b: float(a <= b),
    "logical_and": lambda a, b: float(a != 0 and b != 0),
    "logical_or": lambda a, b: float(a != 0 or b != 0),
    "logical_xor": lambda a, b: float((a != 0) != (b != 0)),
    "abs_max": lambda a, b: a if abs(a) > abs(b) else b,
    "abs_min": lambda a, b: a if abs(a) < abs(b) else b,
}


def elementwise(function, *arrays):
    """One element at a time in float32, rounded once to the dtype of the first array."""
    flat = [np.broadcast_to(a, arrays[0].shape).astype(np.float32).reshape(-1) for a in arrays]
    values = [np.float32(function(*(np.float32(f[i]) for f in flat))) for i in range(flat[0].size)]
    return np.array(values, np.float32).reshape(arrays[0].shape).astype(arrays[0].dtype)


def small_whole(*shape, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(dtype)


@pytest.mark.parametrize("name", BINARY)
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.float16])
def test_tensor_tensor_is_each_operator_element_by_element(name, dtype):
    target = "trn3" if name.startswith("abs_") else "trn2"
    a, b = small_whole(5, 3, 4, dtype=dtype), small_whole(5, 3, 4, seed=1, dtype=dtype)

    def build(x, y):
        out = like(x)
        nisa.tensor_tensor(out, x, y, op=getattr(nl, name))
        return out

    assert run(build, a, b, target=target).tobytes() == elementwise(BINARY[name], a, b).tobytes()


@given(
    st.sampled_from([np.float32, BF16, np.float16, np.int8, np.uint8, np.int16]),
    st.sampled_from([np.float32, BF16, np.float16, np.int16, np.int32]),
    st.sampled_from(["add", "subtract", "multiply", "maximum"]),
    st.integers(0, 1000),
)
@settings(max_examples=25, deadline=None)
def test_results_are_rounded_once_and_integers_saturate(source, result, name, seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.uniform(-90, 90, (3, 5)).astype(source) for _ in range(2))

    def build(x, y):
        out = like(x, dtype=np.dtype(result))
        nisa.tensor_tensor(out, x, y, op=getattr(nl, name))
        return out

    exact = [
        [BINARY[name](np.float32(p), np.float32(q)) for p, q in zip(*r, strict=True)] for r in zip(a, b, strict=True)
    ]
    got = run(build, a, b)
    if np.dtype(result).kind in "iu":
        info = np.iinfo(result)
        want = [[min(max(round(float(v)), info.min), info.max) for v in row] for row in exact]  # round is half to even
        assert got.tolist() == want
    else:
        assert got.tobytes() == np.array(exact, np.float32).astype(result).tobytes()


def test_32_bit_integers_are_exact_on_gpsimd_and_float32_on_vector():
    a = np.array([[2**30 + 1, -(2**31), 7]], np.int32)
    b = np.array([[2**30 + 1, -1, -9]], np.int32)

    def build(engine):
        def body(x, y):
            out = like(x)
            nisa.tensor_tensor(out, x, y, op=nl.add, **engine)
            return out

        return body

    wrapped = ((a.astype(np.int64) + b + 2**31) % 2**32 - 2**31).astype(np.int32)
    assert run(build({}), a, b).tolist() == wrapped.tolist()
    assert run(build({"engine": nisa.engine.vector}), a, b).tolist() == [[2**31 - 1, -(2**31), -2]]


def test_32_bit_integers_in_psum_fall_back_to_float32():
    a = np.array([[2**24 + 1]], np.int32)

    def build(x, y):
        out = like(x)
        nisa.tensor_tensor(out, in_psum(x), y, op=nl.add)
        return out

    assert run(build, a, np.zeros_like(a)).tolist() == [[2**24]]


def test_power_runs_on_gpsimd_and_so_not_from_psum():
    a, b = np.abs(floats(4, 6)) + 0.5, floats(4, 6, seed=1)

    def build(place):
        def body(x, y):
            out = like(x)
            nisa.tensor_tensor(out, place(x), y, op=nl.power)
            return out

        return body

    np.testing.assert_allclose(run(build(lambda x: x), a, b), elementwise(lambda p, q: math.pow(p, q), a, b), rtol=1e-6)
    assert refused(build(in_psum), a, b) == "gpsimd_psum"


@pytest.mark.parametrize("name", ["bitwise_and", "bitwise_or", "bitwise_xor", "left_shift", "right_shift"])
@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int32, np.uint32])
def test_bit_operators_see_patterns(name, dtype):
    rng = np.random.default_rng(3)
    info = np.iinfo(dtype)
    a = rng.integers(info.min, int(info.max) + 1, (4, 9)).astype(dtype)
    b = rng.integers(0, info.bits + 3, (4, 9)).astype(dtype)
    mask = (1 << info.bits) - 1

    def meaning(p, q):
        p, q = int(p) & mask, int(q) & mask
        value = {
            "bitwise_and": p & q, "bitwise_or": p | q, "bitwise_xor": p ^ q,
            "left_shift": (p << q) & mask if q < info.bits else 0, "right_shift": p >> q if q < info.bits else 0,
        }[name]  # fmt: skip
        return value - (1 << info.bits) if info.min < 0 and value > info.max else value

    def build(x, y):
        out = like(x)
        nisa.tensor_tensor(out, x, y, op=getattr(nl, name))
        return out

    want = [[meaning(p, q) for p, q in zip(*r, strict=True)] for r in zip(a, b, strict=True)]
    assert run(build, a, b).tolist() == want


def test_bit_operators_refuse_floats_and_mixed_sizes():
    def build(x, y):
        out = like(x)
        nisa.tensor_tensor(out, x, y, op=nl.bitwise_and)
        return out

    ints = np.ones((2, 4), np.int32)
    assert refused(build, floats(2, 4), floats(2, 4)) == "dtype"
    assert refused(build, ints, np.ones((2, 4), np.int8)) == "dtype"
    assert run(build, ints, np.ones((2, 4), np.uint32)).tolist() == ints.tolist()


def test_two_inputs_of_psum_are_refused_one_is_not():
    def build(first, second):
        def body(x, y):
            out = like(x)
            nisa.tensor_tensor(out, first(x), second(y), op=nl.add)
            return out

        return body

    a = floats(4, 8)
    assert refused(build(in_psum, in_psum), a, a) == "two_psum_inputs"
    assert run(build(in_psum, lambda t: t), a, a).tolist() == (a + a).tolist()


def test_shapes_may_differ_when_elements_match_but_not_otherwise():
    def build(x, y):
        out = like(x)
        nisa.tensor_tensor(out, x, y, op=nl.add)
        return out

    a = floats(4, 2, 6)
    assert run(build, a, a.reshape(4, 12)).tolist() == (a + a).tolist()
    assert refused(build, a, floats(4, 6)) == "operand_shapes"
    assert refused(build, a, floats(3, 12)) == "operand_shapes"


@pytest.mark.parametrize("target", ["trn2", "trn3"])
@pytest.mark.parametrize("first,second", [("add", "multiply"), ("subtract", "maximum"), ("multiply", "subtract")])
@pytest.mark.parametrize("reverse0,reverse1", [(False, False), (True, False), (False, True)])
def test_tensor_scalar_applies_two_operators_with_numbers_and_columns(target, first, second, reverse0, reverse1):
    data, column = floats(6, 2, 5), floats(6, 1, seed=2)

    def swap(op, reverse):
        return (lambda p, q: BINARY[op](q, p)) if reverse else BINARY[op]

    def meaning(x, c):
        return np.float32(swap(second, reverse1)(np.float32(swap(first, reverse0)(x, np.float32(1.25))), c))

    def build(x, c):
        out = like(x)
        nisa.tensor_scalar(
            out, x, op0=getattr(nl, first), operand0=1.25, reverse0=reverse0, op1=getattr(nl, second), operand1=c,
            reverse1=reverse1,
        )  # fmt: skip
        return out

    want = elementwise(meaning, data, column.reshape(6, 1, 1))
    assert run(build, data, column, target=target).tobytes() == want.tobytes()


def scalar_op(op0, operand0=2.0, op1=None, operand1=None, engine=None, dtype=None):
    def build(x):
        out = like(x, dtype=dtype)
        chosen = {} if engine is None else {"engine": engine}
        nisa.tensor_scalar(out, x, op0=op0, operand0=operand0, op1=op1, operand1=operand1, **chosen)
        return out

    return build


def test_scalar_engine_of_trn2_has_three_operator_combinations():
    a, scalar = floats(4, 8), nisa.engine.scalar
    assert run(scalar_op(nl.multiply, 2.0, nl.add, 1.0, scalar), a).tolist() == (a * 2 + 1).tolist()
    assert run(scalar_op(nl.multiply, engine=scalar), a).tolist() == (a * 2).tolist()
    assert run(scalar_op(nl.add, engine=scalar), a).tolist() == (a + 2).tolist()
    assert refused(scalar_op(nl.subtract, engine=scalar), a) == "engine_operator"
    assert refused(scalar_op(nl.add, 2.0, nl.multiply, 2.0, scalar), a) == "engine_operator"
    assert run(scalar_op(nl.subtract, engine=scalar), a, target="trn3").tolist() == (a - 2).tolist()


def test_gpsimd_runs_rsqrt_only():
    a = np.abs(floats(4, 8)) + 0.1
    np.testing.assert_allclose(run(scalar_op(nl.rsqrt, 0.0), a), 1 / np.sqrt(a), rtol=1e-6)
    assert refused(scalar_op(nl.add, engine=nisa.engine.gpsimd), a) == "engine_operator"
    assert refused(scalar_op(nl.rsqrt, 0.0, engine=nisa.engine.vector), a) == "engine_operator"
    assert refused(scalar_op(nl.power, 2.0), a) == "engine_operator"


def test_unary_operators_take_no_operand():
    a = floats(3, 4)
    assert run(scalar_op(nl.abs, 0.0), a).tolist() == np.abs(a).tolist()
    assert run(scalar_op(nl.abs, None, nl.multiply, 3.0), a).tolist() == (np.abs(a) * 3).tolist()
    assert refused(scalar_op(nl.abs, 1.0), a) == "unary_operand"
    assert refused(scalar_op(nl.add, None), a) == "operand_missing"


def test_square_and_relu_exist_on_trn3():
    a = floats(3, 4)
    assert refused(scalar_op(nl.square, 0.0), a) == "target"
    assert run(scalar_op(nl.square, 0.0), a, target="trn3").tolist() == (a * a).tolist()
    assert run(scalar_op(nl.relu, 0.0), a, target="trn3").tolist() == np.where(a > 0, a, 0).tolist()


def test_bit_operators_of_tensor_scalar_run_on_vector_and_do_not_mix():
    a = np.arange(-4, 4, dtype=np.int32).reshape(2, 4)
    assert run(scalar_op(nl.bitwise_and, 0xFFFFFFFF, nl.left_shift, 1), a).tolist() == (a * 2).tolist()
    assert run(scalar_op(nl.right_shift, 28), a).tolist() == ((a.astype(np.int64) % 2**32) >> 28).tolist()
    assert run(scalar_op(nl.invert, None), a).tolist() == (~a).tolist()
    assert refused(scalar_op(nl.bitwise_and, 1, nl.add, 1.0), a) == "operator_mix"
    assert refused(scalar_op(nl.bitwise_and, 1, engine=nisa.engine.gpsimd), a) == "engine_operator"
    assert refused(scalar_op(nl.bitwise_and, 1.5), a) == "dtype"


def test_operand_columns_match_the_partitions_and_ought_to_be_float32():
    def build(x, c):
        out = like(x)
        nisa.tensor_scalar(out, x, op0=nl.add, operand0=c)
        return out

    a = floats(4, 6)
    assert refused(build, a, floats(3, 1)) == "vector_shape"
    assert refused(build, a, floats(4, 2)) == "vector_shape"
    narrow = floats(4, 1, dtype=BF16)
    assert any("operand0 is bfloat16" in text for text in warned(build, a, narrow))
    assert run(build, a, narrow).tolist() == (a + narrow.astype(np.float32)).tolist()


def test_scalar_tensor_tensor_and_its_fused_reduction():
    a, b, c = floats(5, 8), floats(5, 8, seed=1), floats(5, 1, seed=2)

    def build(x, y, z):
        out, total = like(x), nl.ndarray((5, 1), dtype=nl.float32)
        nisa.scalar_tensor_tensor(
            out, x, op0=nl.subtract, operand0=z, op1=nl.multiply, operand1=y, reduce_op=nl.add, reduce_res=total
        )
        return out, total

    result, total = run(build, a, b, c)
    want = (a - c) * b
    assert result.tolist() == want.tolist()
    np.testing.assert_allclose(total[:, 0], [math.fsum(row) for row in want.tolist()], rtol=1e-5)


def test_scalar_tensor_tensor_refuses_bit_operators_and_two_psum_tiles():
    def build(op, place):
        def body(x, y):
            out = like(x)
            nisa.scalar_tensor_tensor(out, place(x), op0=nl.add, operand0=1.0, op1=op, operand1=place(y))
            return out

        return body

    ints = np.ones((2, 4), np.int32)
    assert refused(build(nl.bitwise_or, lambda t: t), ints, ints) == "operator"
    assert refused(build(nl.add, in_psum), floats(2, 4), floats(2, 4)) == "two_psum_inputs"
    assert run(build(nl.add, lambda t: t), floats(2, 4), floats(2, 4)).shape == (2, 4)


@pytest.mark.parametrize("engine", ["vector", "scalar", "gpsimd"])
def test_copies_between_equal_dtypes_keep_every_bit(engine):
    bits = np.array([[0x7FC1, 0xFF81, 0x7F80, 0x0001, 0x8000, 0x3F80]], np.uint16).view(BF16)
    ints = np.array([[2**31 - 1, -(2**31), 2**24 + 1]], np.int32)

    def build(x):
        out = like(x)
        nisa.tensor_copy(out, x, engine=getattr(nisa.engine, engine))
        return out

    assert run(build, bits).tobytes() == bits.tobytes()
    assert run(build, ints).tolist() == ints.tolist()


def test_copies_between_dtypes_go_through_float32():
    ints = np.array([[2**24 + 1, -(2**24) - 3, 300]], np.int32)

    def build(dtype):
        def body(x):
            out = like(x, dtype=dtype)
            nisa.tensor_copy(out, x)
            return out

        return body

    assert run(build(nl.uint32), ints).tolist() == [[2**24, 0, 300]]
    assert run(build(nl.int8), ints).tolist() == [[127, -128, 127]]
    assert run(build(nl.int16), np.array([[0.5, 1.5, -2.5, 40000.0]], np.float32)).tolist() == [[0, 2, -2, 32767]]


def test_gpsimd_copies_no_psum():
    def build(x):
        out = like(x)
        nisa.tensor_copy(out, in_psum(x), engine=nisa.engine.gpsimd)
        return out

    assert refused(build, floats(2, 4)) == "gpsimd_psum"


def filled(dtype, value, shape=(3, 5)):
    def build():
        out = nl.ndarray(shape, dtype=dtype)
        nisa.memset(out, value)
        return out

    return build


def test_memset_fills_with_a_number_of_the_tiles_kind():
    assert (run(filled(nl.bfloat16, 1.0 / 3)) == np.float32(1.0 / 3).astype(BF16)).all()
    assert (run(filled(nl.int8, -7)) == -7).all()
    assert (run(filled(nl.float32, 3)) == 3.0).all()
    assert refused(filled(nl.int32, 2.0)) == "memset_value"
    assert refused(filled(nl.uint8, 300)) == "memset_value"
    assert refused(filled(nl.float32, 0.0, (2, 1, 1, 1, 1, 2))) == "operand_rank"


def test_packed_tiles_take_zeros_only():
    def build(value):
        def body():
            packed = nl.ndarray((4, 8), dtype=nl.float8_e4m3fn_x4)
            nisa.memset(packed, value)
            return packed.view(nl.uint32)

        return body

    assert (run(build(0), target="trn3") == 0).all()
    assert refused(build(1), target="trn3") == "memset_value"


def test_reciprocal_divides_in_float32():
    a = floats(4, 7, dtype=BF16)

    def build(x):
        out = like(x)
        nisa.reciprocal(out, x)
        return out

    assert run(build, a).tobytes() == (np.float32(1) / a.astype(np.float32)).astype(BF16).tobytes()


def test_strided_and_overlapping_views_of_one_tile():
    a = floats(4, 12)

    def build(x):
        nisa.tensor_tensor(x[:, 1:12], x[:, 0:11], x[:, 1:12], op=nl.add)  # reads before it writes
        out = nl.ndarray((4, 2, 6), dtype=nl.float32)
        nisa.tensor_scalar(out.permute((0, 2, 1)), x, op0=nl.multiply, operand0=2.0)
        return out

    shifted = a.copy()
    shifted[:, 1:] = a[:, :-1] + a[:, 1:]
    assert run(build, a).tolist() == (shifted * 2).reshape(4, 6, 2).transpose(0, 2, 1).tolist()


@pytest.mark.parametrize(("op", "apply"), [(nl.bitwise_and, np.bitwise_and), (nl.add, np.add)])
def test_an_operand_may_be_a_run_time_scalar(op, apply):
    a, word = np.arange(-4, 4, dtype=np.int32).reshape(2, 4), np.array([[6]], np.int32)

    def build(x, number):
        nisa.tensor_scalar(x, x, op, nisa.scalar_load(number))
        return x

    assert run(build, a, word).tolist() == apply(a, 6).tolist()


def test_unwritten_elements_flow_to_the_same_elements_only():
    def build(x):
        part, out = like(x), like(x)
        nisa.tensor_copy(part[:, 2:5], x[:, 2:5])
        nisa.tensor_tensor(out, part, x, op=nl.add)
        return out

    assert unwritten(build, floats(3, 6)).tolist() == [[True, True, False, False, False, True]] * 3
