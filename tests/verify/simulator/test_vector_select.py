"""Selection, search and lane moves of VectorE against loops; documented tie orders."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.verify.simulator.one import floats, in_psum, like, nisa, nl, refused, run, unwritten

BF16 = ml_dtypes.bfloat16
FP32_MIN = np.finfo(np.float32).min
CMD = nisa.reduce_cmd


def predicated(src=None, reverse=False, place=None):
    def build(dst, predicate, *tiles):
        out = like(dst)
        nisa.tensor_copy(out, dst)
        source = tiles[0] if src is None else src
        if place:
            source, predicate = place(source), place(predicate)
        nisa.tensor_copy_predicated(out, source, predicate, reverse_pred=reverse)
        return out

    return build


@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int32])
@pytest.mark.parametrize("kind", [np.uint8, np.uint16, np.uint32])
def test_a_predicated_copy_leaves_the_rest(dtype, kind):
    rng = np.random.default_rng(0)
    dst, src = rng.integers(-9, 9, (4, 6)).astype(dtype), rng.integers(-9, 9, (4, 6)).astype(dtype)
    p = rng.integers(0, 3, (4, 6)).astype(kind)
    want = [[s if q else d for d, s, q in zip(*rows, strict=True)] for rows in zip(dst, src, p, strict=True)]
    assert run(predicated(), dst, p, src).tolist() == np.array(want).tolist()


def test_predicated_numbers_and_reversed_predicates():
    dst, p = floats(2, 3), np.array([[1, 0, 2], [0, 0, 1]], np.uint8)
    assert run(predicated(src=7.0), dst, p).tolist() == np.where(p, np.float32(7), dst).tolist()
    assert run(predicated(src=7.0, reverse=True), dst, p).tolist() == np.where(p, dst, np.float32(7)).tolist()
    ints = np.ones((2, 3), np.int16)
    assert run(predicated(src=7), ints, p).tolist() == np.where(p, 7, 1).tolist()
    assert refused(predicated(src=7), dst, p) == "dtype"
    assert refused(predicated(src=7.0), ints, p) == "dtype"
    assert refused(predicated(reverse=True), dst, p, dst) == "reverse"


def test_predicated_copy_rules():
    dst, p = floats(2, 3), np.ones((2, 3), np.uint8)
    assert refused(predicated(), dst, p.astype(np.int8), dst) == "dtype"
    assert refused(predicated(), dst, p, dst.astype(BF16)) == "dtype"
    assert refused(predicated(place=in_psum), dst, p, dst) == "two_psum_inputs"


def test_only_what_a_predicate_takes_can_taint():
    p = np.array([[1, 0, 1, 0]], np.uint8)

    def build(x, q):
        source, out = like(x), like(x)
        nisa.tensor_copy(source[:, 0:2], x[:, 0:2])
        nisa.tensor_copy(out, x)
        nisa.tensor_copy_predicated(out, source, q)
        return out

    assert unwritten(build, floats(1, 4), p).tolist() == [[False, False, True, False]]


COMPARE = {"less": "<", "less_equal": "<=", "greater": ">", "greater_equal": ">=", "equal": "=="}


def ranged(first, second, dtype=None, start=0, **options):
    def build(x, low, high):
        out, top = like(x, dtype=dtype), nl.ndarray((x.shape[0], 1), dtype=nl.float32)
        nisa.range_select(
            out, x, comp_op0=getattr(nl, first), comp_op1=getattr(nl, second), bound0=low, bound1=high,
            range_start=start, reduce_res=top, **options,
        )  # fmt: skip
        return out, top

    return build


@given(st.sampled_from(list(COMPARE)), st.sampled_from(list(COMPARE)), st.integers(-3, 5), st.integers(0, 50))
@settings(max_examples=20, deadline=None)
def test_range_select_keeps_a_range_of_indices(first, second, start, seed):
    a = floats(4, 2, 5, seed=seed)
    rng = np.random.default_rng(seed)
    low, high = (rng.integers(-2, 10, (4, 1)).astype(np.float32) for _ in range(2))
    want = np.full((4, 10), FP32_MIN)
    for p in range(4):
        for i, v in enumerate(a[p].reshape(-1)):
            if eval(f"{start + i} {COMPARE[first]} {low[p, 0]} and {start + i} {COMPARE[second]} {high[p, 0]}"):
                want[p, i] = v
    out, top = run(ranged(first, second, start=start), a, low, high)
    assert out.reshape(4, 10).tolist() == want.tolist()
    assert top[:, 0].tolist() == want.max(axis=1).tolist()


def test_what_range_select_masks_may_be_unwritten():
    def build(x, low, high):
        part, out = like(x), like(x)
        nisa.tensor_copy(part[:, 0:3], x[:, 0:3])
        total = nl.ndarray((2, 1), dtype=nl.float32)
        for command in (CMD.reset_reduce, CMD.reduce):
            nisa.range_select(
                out, part, comp_op0=nl.greater_equal, comp_op1=nl.less, bound0=low, bound1=high, reduce_cmd=command,
                reduce_res=total,
            )  # fmt: skip
        return out, total

    a, zero = floats(2, 5), np.zeros((2, 1), np.float32)
    _, top = run(build, a, zero, zero + 3)
    assert top[:, 0].tolist() == a[:, :3].max(axis=1).tolist()
    assert unwritten(lambda *t: build(*t)[1], a, zero, np.array([[3], [4]], np.float32)).tolist() == [[False], [True]]


def test_range_select_in_16_bits_writes_minus_infinity_and_reduces_in_float32():
    a, bound = floats(3, 4, dtype=BF16), np.full((3, 1), 99, np.float32)
    out, top = run(ranged("greater", "greater"), a, bound, bound)
    assert (out == -np.inf).all() and (top == FP32_MIN).all()


def test_range_select_rules():
    a, bound = floats(3, 8), np.zeros((3, 1), np.float32)
    assert refused(ranged("not_equal", "less"), a, bound, bound) == "operator"
    assert refused(ranged("less", "less", reduce_op=nl.add), a, bound, bound) == "operator"
    assert refused(ranged("less", "less"), a, bound.astype(BF16), bound) == "dtype"
    assert refused(ranged("less", "less"), np.ones((3, 8), np.int32), bound, bound) == "dtype"


def selected(reverse=False, place=lambda t: t, on_false=None, **options):
    def build(x, p, *column):
        out, top = like(x), nl.ndarray((x.shape[0], 1), dtype=nl.float32)
        nisa.select_reduce(
            out, place(p), place(x), column[0] if column else on_false, reduce_res=top, reverse_pred=reverse, **options
        )
        return out, top

    return build


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, BF16, np.int8])
def test_select_reduce_selects_and_takes_the_maximum(reverse, dtype):
    rng = np.random.default_rng(1)
    a = rng.integers(-9, 9, (4, 6)).astype(dtype)
    p, other = rng.integers(0, 2, (4, 6)).astype(np.int8), rng.integers(-5, 5, (4, 1)).astype(np.float32)
    want = np.array([
        [float(o[0]) if bool(q) == reverse else float(v) for v, q in zip(*rows, strict=True)]
        for o, *rows in zip(other, a, p, strict=True)
    ])  # fmt: skip
    out, top = run(selected(reverse, reduce_cmd=CMD.reset_reduce), a, p, other)
    assert out.astype(np.float32).tolist() == want.tolist()
    assert top[:, 0].tolist() == want.max(axis=1).tolist()


def test_select_reduce_rules():
    a, p = floats(2, 4), np.ones((2, 4), np.uint8)
    reset = CMD.reset_reduce
    assert refused(selected(place=in_psum, on_false=0.0, reduce_cmd=reset), a, p) == "two_psum_inputs"
    assert refused(selected(on_false=0.0, reduce_cmd=reset), np.ones((2, 4), np.int32), p) == "dtype"
    assert refused(selected(on_false=0.0, reduce_cmd=reset), a, p.astype(np.uint32)) == "dtype"
    assert refused(selected(on_false=0.0, reduce_cmd=reset, reduce_op=nl.add), a, p) == "operator"
    assert refused(selected(on_false=0.0, reduce_cmd=CMD.load_reduce), a, p) == "reduce_cmd"
    assert refused(selected(reduce_cmd=reset), a, p) == "operand_missing"


def top8(x):
    out = nl.ndarray((x.shape[0], 8), dtype=x.dtype)
    nisa.max8(out, x)
    return out


@given(st.integers(8, 40), st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_max8_is_descending_with_repetitions(size, seed):
    a = np.random.default_rng(seed).integers(-5, 6, (3, size)).astype(np.float32)
    assert run(top8, a).tolist() == [sorted(row, reverse=True)[:8] for row in a.tolist()]


def test_an_unwritten_predicate_taints_what_it_chose():
    def build(x, p):
        gap, out = like(p), like(x)
        nisa.tensor_copy(gap[:, 0:2], p[:, 0:2])
        nisa.select_reduce(out, gap, x, 0.0)
        return out

    assert unwritten(build, floats(1, 4), np.ones((1, 4), np.uint8)).tolist() == [[False, False, True, True]]


def test_search_limits():
    assert refused(top8, floats(2, 7)) == "free_size"
    assert refused(top8, floats(1, 16385)) == "free_size"
    assert run(top8, floats(1, 16384)).shape == (1, 8)


def find(dtype=None):
    def build(x, v):
        out = nl.ndarray((x.shape[0], 8), dtype=dtype or nl.uint32)
        nisa.nc_find_index8(out, x, v)
        return out

    return build


def replace(with_index=True, imm=-99.0):
    def build(x, v):
        out, index = like(x), nl.ndarray((x.shape[0], 8), dtype=nl.uint32)
        nisa.nc_match_replace8(out, x, v, imm, dst_idx=index if with_index else None)
        return (out, index) if with_index else out

    return build


DOCUMENTED = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], np.float32), np.array([[3, 8, 8, 8, 8, 8, 8, 8]], np.float32)


def test_equal_values_are_found_in_ascending_and_replaced_in_descending_order():
    assert run(find(), *DOCUMENTED).tolist() == [[2, 4, 5, 6, 7, 8, 9, 10]]
    out, index = run(replace(), *DOCUMENTED)
    assert index.tolist() == [[2, 10, 9, 8, 7, 6, 5, 4]]
    assert out.tolist() == [[1, 2, -99, 4, -99, -99, -99, -99, -99, -99, -99]]


def test_a_value_that_is_missing_gives_all_ones():
    data, vals = np.arange(8, dtype=np.float32)[None], np.array([[0, 9, 1, 1, 2, 3, 4, 5]], np.float32)
    assert run(find(), data, vals).tolist() == [[0, 2**32 - 1, 1, 2**32 - 1, 2, 3, 4, 5]]
    assert run(find(nl.uint16), data, vals).tolist() == [[0, 2**16 - 1, 1, 2**16 - 1, 2, 3, 4, 5]]
    assert run(replace(with_index=False), data, vals).tolist() == [[-99, -99, -99, -99, -99, -99, 6, 7]]


@given(st.integers(8, 30), st.integers(0, 200))
@settings(max_examples=20, deadline=None)
def test_find_and_replace_against_a_loop(size, seed):
    rng = np.random.default_rng(seed)
    data, vals = (rng.integers(0, 6, (2, n)).astype(np.float32) for n in (size, 8))
    for order, build, pick in ((range(8), find(), None), (range(7, -1, -1), replace(), 1)):
        want = np.full((2, 8), 2**32 - 1)
        for p in range(2):
            left = list(data[p])
            for slot in order:
                if vals[p, slot] in left:
                    want[p, slot] = left.index(vals[p, slot])
                    left[int(want[p, slot])] = None
        got = run(build, data, vals)
        assert (got if pick is None else got[pick]).tolist() == want.tolist()


def test_index_tiles_are_unsigned_and_eight_wide():
    data, vals = floats(2, 9), floats(2, 8)
    assert refused(find(nl.int32), data, vals) == "dtype"
    assert refused(find(), data, floats(2, 7)) == "operand_shapes"


def shuffled(mask, dst=None):
    def build(x):
        out = like(x)
        nisa.tensor_copy(out, x)
        nisa.nc_stream_shuffle(out if dst is None else dst(out), x if dst is None else dst(x), mask)
        return out

    return build


def test_a_shuffle_moves_lanes_within_each_quadrant():
    a = floats(64, 3)
    mask = [(i + 5) % 32 for i in range(32)]
    mask[4] = 255
    want = a.copy()
    for q in (0, 32):
        for i in range(32):
            if mask[i] != 255:
                want[q + i] = a[q + mask[i]]
    assert run(shuffled(mask), a).tolist() == want.tolist()

    def in_place(x):
        nisa.nc_stream_shuffle(x, x, mask)
        return x

    assert run(in_place, a).tolist() == want.tolist()


def test_shuffle_rules():
    a, mask = floats(64, 3), list(range(32))
    assert refused(shuffled(mask[:31]), a) == "shuffle_mask"
    assert refused(shuffled([*mask[:31], 32]), a) == "shuffle_mask"
    assert refused(shuffled(mask, dst=lambda t: t[16:48, :]), a) == "start_partition"
    assert run(shuffled(mask, dst=lambda t: t[32:64, :]), a).tolist() == a.tolist()

    def short(x):
        out = nl.ndarray((32, 3), dtype=nl.float32)
        nisa.nc_stream_shuffle(out, x[0:8, :], [9] * 32)
        return out

    assert refused(short, a) == "shuffle_mask"

    def cast(x):
        out = like(x, dtype=nl.bfloat16)
        nisa.nc_stream_shuffle(out, x, mask)
        return out

    assert refused(cast, a) == "dtype"
