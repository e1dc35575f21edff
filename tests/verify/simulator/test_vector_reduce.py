"""Reductions, scans, statistics and the accumulator of VectorE against loops."""

import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verify.simulator.one import floats, in_psum, like, nisa, nl, refused, run, unwritten

BF16 = ml_dtypes.bfloat16
TRN3 = "trn3"


def column(rows, dtype=None):
    return nl.ndarray((rows, 1), dtype=dtype or nl.float32)


def reduced(op, axis, shape, negate=False, dtype=None, place=None):
    def build(x):
        out = nl.ndarray(shape, dtype=dtype or x.dtype)
        nisa.tensor_reduce(out, op=op, data=place(x) if place else x, axis=axis, negate=negate)
        return out

    return build


@pytest.mark.parametrize("axis,kept", [(3, (5, 2, 3)), ((2, 3), (5, 2)), ((1, 2, 3), (5, 1)), (-1, (5, 2, 3))])
@pytest.mark.parametrize("name", ["add", "multiply", "maximum", "minimum", "logical_or"])
def test_tensor_reduce_takes_the_last_free_axes(axis, kept, name):
    a = np.random.default_rng(1).integers(-2, 3, (5, 2, 3, 4)).astype(np.float32)
    fold = {"add": sum, "multiply": math.prod, "maximum": max, "minimum": min, "logical_or": lambda v: float(any(v))}[
        name
    ]
    rows = a.reshape(math.prod(kept), -1)
    want = np.array([fold(row.tolist()) for row in rows]).reshape(kept)
    for place in (None, in_psum):
        assert run(reduced(getattr(nl, name), axis, kept, place=place), a).tolist() == want.tolist()


def test_tensor_reduce_negates_and_rounds_once():
    a = floats(4, 33, dtype=BF16)
    want = -np.array([np.float32(np.sum(row.astype(np.float32))) for row in a])[:, None]
    assert run(reduced(nl.add, 1, (4, 1), negate=True), a).tobytes() == want.astype(BF16).tobytes()
    assert run(reduced(nl.maximum, 1, (4, 1), negate=True), a).tolist() == (-a.max(axis=1)[:, None]).tolist()


def test_the_short_names_of_the_documentation_are_operators_too():
    a = floats(4, 9)
    assert run(reduced(nl.max, 1, (4, 1)), a).tolist() == a.max(axis=1)[:, None].tolist()
    assert run(reduced(nl.min, 1, (4, 1)), a).tolist() == a.min(axis=1)[:, None].tolist()


def test_tensor_reduce_of_bits():
    a = np.random.default_rng(0).integers(0, 255, (3, 6)).astype(np.uint8)
    want = [[int(np.bitwise_or.reduce(row))] for row in a]
    assert run(reduced(nl.bitwise_or, 1, (3, 1)), a).tolist() == want
    assert refused(reduced(nl.bitwise_or, 1, (3, 1), negate=True), a) == "operator"
    assert refused(reduced(nl.bitwise_or, 1, (3, 1)), floats(3, 6)) == "dtype"


def test_tensor_reduce_refuses_other_axes_operators_and_shapes():
    a = floats(4, 2, 6)
    assert refused(reduced(nl.add, 1, (4, 6)), a) == "reduce_axis"
    assert refused(reduced(nl.add, (0, 1, 2), (1, 1)), a) == "reduce_axis"
    assert refused(reduced(nl.add, 3, (4, 2)), a) == "reduce_axis"
    assert refused(reduced(nl.equal, 2, (4, 2)), a) == "operator"
    assert refused(reduced(nl.add, 2, (4, 3)), a) == "operand_shapes"
    assert run(reduced(nl.add, 2, (4, 2, 1)), a).shape == (4, 2, 1)


def test_tensor_scalar_reduce_reduces_what_it_writes():
    a, c = floats(4, 3, 5), floats(4, 1, seed=1)

    def build(x, y):
        out, total = like(x), column(4)
        nisa.tensor_scalar_reduce(out, x, op0=nl.multiply, operand0=y, reduce_op=nl.maximum, reduce_res=total)
        return out, total

    result, total = run(build, a, c)
    want = a * c[:, :, None]
    assert result.tolist() == want.tolist()
    assert total.tolist() == want.reshape(4, -1).max(axis=1)[:, None].tolist()


def chain(commands, op=nl.add, negate=False):
    """One tensor_scalar_reduce a command over the same tile; only the last one reads the accumulator."""

    def build(x):
        total = column(x.shape[0])
        for i, (command, init) in enumerate(commands):
            last = {"reduce_res": total, "reduce_res_negate": negate} if i == len(commands) - 1 else {}
            nisa.tensor_scalar_reduce(
                like(x), x, op0=nl.add, operand0=0.0, reduce_op=op, reduce_cmd=getattr(nisa.reduce_cmd, command),
                reduce_init=init, **last,
            )  # fmt: skip
        return total

    return build


def test_the_accumulator_lives_between_instructions():
    a = np.random.default_rng(0).integers(-4, 5, (3, 8)).astype(np.float32)
    total = a.sum(axis=1)[:, None]
    reset, more = ("reset_reduce", None), ("reduce", None)
    assert run(chain([reset]), a).tolist() == total.tolist()
    assert run(chain([reset, more, more]), a).tolist() == (3 * total).tolist()
    assert run(chain([reset, more, reset]), a).tolist() == total.tolist()
    assert run(chain([("load_reduce", 10.0), more]), a).tolist() == (2 * total + 10).tolist()
    assert run(chain([("load_reduce", 1.5)], op=nl.multiply), a).tolist() == (1.5 * a.prod(axis=1)[:, None]).tolist()
    assert run(chain([("load_reduce", 9.0)], op=nl.maximum), a).tolist() == [[9.0]] * 3
    assert run(chain([reset, more], negate=True), a).tolist() == (-2 * total).tolist()


def test_an_accumulator_that_nothing_reset_is_unwritten_data():
    assert unwritten(chain([("reduce", None)]), floats(3, 8)).all()
    assert not unwritten(chain([("reset_reduce", None), ("reduce", None)]), floats(3, 8)).any()


def test_tensor_scalar_reduce_refusals():
    a = floats(3, 8)
    assert refused(chain([("idle", None)]), a) == "reduce_cmd"
    assert refused(chain([("reset_reduce", 1.0)]), a) == "reduce_init"
    assert refused(chain([("load_reduce", None)]), a) == "reduce_init"
    assert refused(chain([("reset_reduce", None)], op=nl.subtract), a) == "operator"

    def reverse(x):
        nisa.tensor_scalar_reduce(like(x), x, op0=nl.subtract, operand0=1.0, reduce_op=nl.add, reverse0=True)
        return x

    assert refused(reverse, a) == "reverse"


def test_tensor_scalar_reduce_takes_at_most_four_dimensions():
    def build(shape):
        def body(x):
            out = like(x)
            nisa.tensor_scalar_reduce(out.reshape(shape), x.reshape(shape), op0=nl.add, operand0=1.0, reduce_op=nl.add)
            return out

        return body

    assert refused(build((2, 2, 2, 2, 2)), floats(2, 16)) == "operand_rank"
    assert run(build((2, 2, 2, 4)), floats(2, 16)).tolist() == (floats(2, 16) + np.float32(1)).tolist()


CUMULATIVE = {"add": 0.0, "subtract": 0.0, "multiply": 1.0, "maximum": -math.inf, "minimum": math.inf}


@pytest.mark.parametrize("name", CUMULATIVE)
@pytest.mark.parametrize("command", ["reset_reduce", "load_reduce", "reduce"])
def test_tensor_scalar_cumulative_runs_along_the_free_axis(name, command):
    a = np.random.default_rng(5).integers(-2, 3, (3, 2, 4)).astype(np.float32)
    apply = {
        "add": lambda x, r: x + r, "subtract": lambda x, r: x - r, "multiply": lambda x, r: x * r, "maximum": max,
        "minimum": min,
    }[name]  # fmt: skip
    want = np.zeros_like(a).reshape(3, 8)
    for p, row in enumerate(a.reshape(3, 8)):
        state = {"reset_reduce": CUMULATIVE[name], "load_reduce": 2.0, "reduce": 5.0}[command]
        for i, x in enumerate(row):
            state = want[p, i] = apply(float(x) + 0.5, state)

    def build(x):
        out = like(x)
        if command == "reduce":  # leave 5 in the accumulator
            five = nl.ndarray((3, 1), dtype=nl.float32)
            nisa.memset(five, 5.0)
            nisa.tensor_scalar_reduce(like(five), five, op0=nl.add, operand0=0.0, reduce_op=nl.add)
        nisa.tensor_scalar_cumulative(
            out, x, op0=nl.add, op1=getattr(nl, name), imm0=0.5, imm1=2.0 if command == "load_reduce" else None,
            reduce_cmd=getattr(nisa.reduce_cmd, command),
        )  # fmt: skip
        return out

    assert run(build, a).reshape(3, 8).tolist() == want.tolist()


def test_tensor_scalar_cumulative_has_no_32_bit_integers_and_few_operators():
    def build(op1):
        def body(x):
            out = like(x)
            nisa.tensor_scalar_cumulative(out, x, op0=nl.add, op1=op1, imm0=0.0)
            return out

        return body

    assert refused(build(nl.add), np.ones((2, 4), np.int32)) == "dtype"
    assert run(build(nl.add), np.ones((2, 4), np.int16)).tolist() == [[1, 2, 3, 4]] * 2
    assert refused(build(nl.logical_and), floats(2, 4)) == "operator"


SCAN_OPS = {"multiply": lambda a, b: a * b, "add": lambda a, b: a + b, "subtract": lambda a, b: a - b, "maximum": max}


@given(
    st.sampled_from(list(SCAN_OPS)), st.sampled_from(list(SCAN_OPS)), st.booleans(), st.booleans(), st.booleans(),
    st.integers(1, 3), st.integers(1, 9),
)  # fmt: skip
@settings(max_examples=30, deadline=None)
def test_tensor_tensor_scan_is_the_documented_recurrence(op0, op1, reverse0, reverse1, from_tile, rows, steps):
    rng = np.random.default_rng(rows * 31 + steps)
    a, b = (rng.integers(-2, 3, (rows, steps)).astype(np.float32) / 2 for _ in range(2))
    start = rng.integers(-2, 3, (rows, 1)).astype(np.float32)
    want = np.zeros_like(a)
    for p in range(rows):
        state = start[p, 0] if from_tile else np.float32(0.5)
        for i in range(steps):
            first = SCAN_OPS[op0](*((state, a[p, i]) if reverse0 else (a[p, i], state)))
            state = want[p, i] = SCAN_OPS[op1](*((b[p, i], first) if reverse1 else (first, b[p, i])))

    def build(x, y, z):
        out = like(x)
        nisa.tensor_tensor_scan(
            out, x, y, z if from_tile else 0.5, op0=getattr(nl, op0), op1=getattr(nl, op1), reverse0=reverse0,
            reverse1=reverse1,
        )  # fmt: skip
        return out

    assert run(build, a, b, start).tolist() == want.tolist()


def test_a_scan_carries_unwritten_data_forward_only():
    def build(x):
        gap, out = like(x), like(x)
        nisa.tensor_copy(gap[:, 0:3], x[:, 0:3])
        nisa.tensor_copy(gap[:, 4:6], x[:, 4:6])
        nisa.tensor_tensor_scan(out, gap, x, 0.0, op0=nl.multiply, op1=nl.add)
        return out

    assert unwritten(build, floats(2, 6)).tolist() == [[False, False, False, True, True, True]] * 2


def test_a_scan_reads_one_psum_tile_at_most():
    def build(first, second):
        def body(x):
            out = like(x)
            nisa.tensor_tensor_scan(out, first(x), second(x), 0.0, op0=nl.multiply, op1=nl.add)
            return out

        return body

    assert refused(build(in_psum, in_psum), floats(2, 4)) == "two_psum_inputs"
    assert run(build(in_psum, lambda t: t), floats(2, 4)).shape == (2, 4)


def exponentials(x, dtype=None, **options):
    out, total = like(x, dtype=dtype), column(x.shape[0])
    nisa.exponential(out, x, reduce_res=total, **options)
    return out, total


def test_exponential_subtracts_and_sums():
    a, top = floats(4, 6), floats(4, 1, seed=2)

    def build(x, m):
        return exponentials(x, max_value=m, reduce_cmd=nisa.reduce_cmd.reset_reduce)

    result, total = run(build, a, top, target=TRN3)
    want = np.array([[math.exp(np.float32(v - m[0])) for v in row] for row, m in zip(a, top, strict=True)])
    np.testing.assert_allclose(result, want, rtol=1e-6)
    np.testing.assert_allclose(total[:, 0], want.sum(axis=1), rtol=1e-6)
    assert refused(build, a, top, target="trn2") == "target"


def test_exponential_loads_an_initial_sum_only_when_told():
    a = floats(4, 6)
    load, reset = nisa.reduce_cmd.load_reduce, nisa.reduce_cmd.reset_reduce
    total = run(lambda x: exponentials(x, reduce_cmd=load, reduce_init=3.0), a, target=TRN3)[1]
    np.testing.assert_allclose(total[:, 0], 3 + np.exp(a.astype(np.float64)).sum(axis=1), rtol=1e-6)
    assert refused(lambda x: exponentials(x, reduce_cmd=reset, reduce_init=3.0), a, target=TRN3) == "reduce_init"
    assert refused(lambda x: exponentials(x, dtype=nl.uint32, reduce_cmd=reset), a, target=TRN3) == "dtype"


def test_an_idle_instruction_of_the_family_leaves_the_accumulator_undefined():
    def build(x):
        exponentials(x, reduce_cmd=nisa.reduce_cmd.reset_reduce)
        exponentials(x)
        return exponentials(x, reduce_cmd=nisa.reduce_cmd.reduce)[1]

    assert unwritten(build, floats(4, 6), target=TRN3).all()


@pytest.mark.parametrize("size", [1, 2, 7, 512])
def test_bn_stats_and_bn_aggr_give_mean_and_population_variance(size):
    chunks = 1 if size < 512 else 3
    a = floats(4, size * chunks) * 3 + 1

    def build(x):
        stats, out = nl.ndarray((4, 6 * chunks), dtype=nl.float32), nl.ndarray((4, 2), dtype=nl.float32)
        for i in range(chunks):
            nisa.bn_stats(stats[:, 6 * i : 6 * i + 6], x[:, size * i : size * (i + 1)])
        nisa.bn_aggr(out, stats)
        return stats[:, 0:6], out

    stats, result = run(build, a)
    np.testing.assert_allclose(result[:, 0], a.mean(axis=1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(result[:, 1], a.var(axis=1), rtol=1e-4, atol=1e-5)
    even, odd = a[:, :size:2], a[:, 1:size:2]
    np.testing.assert_allclose(stats[:, :2], np.stack([np.full(4, even.shape[1]), even.mean(axis=1)], 1), rtol=1e-4)
    assert (stats[:, 3] == odd.shape[1]).all()
    if odd.shape[1]:
        np.testing.assert_allclose(stats[:, 5], odd.var(axis=1) * odd.shape[1], rtol=1e-3, atol=1e-5)


def test_statistics_come_in_threes():
    def aggregate(x):
        out = nl.ndarray((2, 2), dtype=nl.float32)
        nisa.bn_aggr(out, x)
        return out

    assert refused(aggregate, floats(2, 7)) == "free_size"
    assert run(aggregate, np.abs(floats(2, 6)) + 1).shape == (2, 2)
