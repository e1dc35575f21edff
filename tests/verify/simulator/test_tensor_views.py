"""Views of tensors: every method against NumPy's strides, and what must be refused."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nkismith.verify.simulator.dtypes import DTYPES
from nkismith.verify.simulator.enums import MemoryRegion
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.tensor import NkiTensor, Storage


def tensor(shape, region="sbuf", dtype="float32"):
    """A tensor without a kernel around it."""
    return NkiTensor(shape, dtype, Storage(0, MemoryRegion[region], DTYPES[dtype], shape))


def picked(view, base):
    """What a view of `base`'s storage shows, by its own strides and offset."""
    flat = np.ascontiguousarray(base).reshape(-1)
    step = flat.itemsize
    return np.lib.stride_tricks.as_strided(flat[view.offset :], view.shape, [s * step for s in view.strides])


def numbers(shape):
    return np.arange(np.prod(shape), dtype=np.float32).reshape(shape)


def rule_of(call):
    with pytest.raises(LegalityError) as caught:
        call()
    return caught.value.rule


# -- the model ----------------------------------------------------------------------------------------------------


def test_a_fresh_tensor_is_described_as_documented():
    t = tensor((128, 64))
    assert (t.shape, t.strides, t.offset, t.ndim, t.size) == ((128, 64), (64, 1), 0, 2, 8192)
    assert t.dtype == "float32"
    assert t.dtype == np.float32
    assert t.buffer == nl.sbuf
    assert t.is_contiguous()
    assert not t.is_indirect()
    assert t.get_pattern() == [[64, 128], [1, 64]]
    assert t.address is None


def test_slices_and_ap_give_the_same_pattern():
    t = tensor((128, 64))
    u = t.slice(dim=1, start=8, end=24)
    v = t.ap(pattern=[[64, 128], [1, 16]], offset=8)
    assert u.get_pattern() == v.get_pattern() == [[64, 128], [1, 16]]
    assert u.offset == v.offset == 8


@pytest.mark.parametrize(
    ("key", "shape"),
    [
        ((0, slice(None), slice(None)), (1, 64, 32)),
        ((slice(None), slice(None), 0), (128, 64)),
        ((slice(None), 0), (128, 32)),
        ((0, 0, 10), (1, 1)),
        ((slice(None), 0, 10), (128, 1)),
        ((slice(0, 64), 0, slice(0, 32)), (64, 32)),
        ((slice(None), slice(None), slice(None, None, 2)), (128, 64, 16)),
        (Ellipsis, (128, 64, 32)),
        ((0, Ellipsis, slice(None)), (1, 64, 32)),
        ((Ellipsis, -1), (128, 64)),
        ((slice(-32, None),), (32, 64, 32)),
        ((slice(None), None), (128, 64, 32)),
        ((nl.ds(32, 64), nl.ds(1, 2)), (64, 2, 32)),
        (np.int64(5), (1, 64, 32)),
    ],
)
def test_on_chip_indexing_keeps_the_partition_dimension_and_two_dimensions(key, shape):
    assert tensor((128, 64, 32))[key].shape == shape


def test_ranges_index_as_slices_do():
    def kernel(x):
        tile = nl.load(x[nl.affine_range(4), nl.affine_range(1, 8, 2)])
        out = nl.ndarray((4, 4), dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out[nl.affine_range(out.shape[0]), nl.affine_range(out.shape[1])], tile)
        return out

    x = np.arange(64, dtype=np.float32).reshape(8, 8)
    assert (nki.simulate(kernel)(x) == x[:4, 1:8:2]).all()


def test_hbm_indexing_drops_dimensions_as_numpy_does():
    t, base = tensor((4, 128, 32), "shared_hbm"), numbers((4, 128, 32))
    assert t[0, :, :].shape == (128, 32)
    assert t[1, 2, 3].shape == (1,)
    for key in [(2,), (slice(1, 3), 5), (Ellipsis, slice(3, 20, 4)), (-1, slice(None, 7))]:
        np.testing.assert_array_equal(picked(t[key], base), base[key])


def test_chained_indices_share_the_base_offset():
    t = tensor((128, 64))
    assert t[:, 16:32].offset == 16
    assert t[:, 16:32][:, 4:].offset == 20
    assert t[64:128][32:, 8:].offset == 96 * 64 + 8


@st.composite
def chains(draw):
    """A shape and a few slicing, permuting and reshaping steps on it, for NumPy and NkiTensor alike."""
    shape = tuple(draw(st.lists(st.integers(1, 6), min_size=2, max_size=4)))
    steps, current = [], shape
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["slice", "permute", "expand", "flatten", "split"]))
        if kind == "slice":
            dim = draw(st.integers(0, len(current) - 1))
            start = draw(st.integers(0, current[dim] - 1))
            end = draw(st.integers(start + 1, current[dim]))
            step = draw(st.integers(1, 3))
            steps.append(("slice", dim, start, end, step))
            current = (*current[:dim], -(-(end - start) // step), *current[dim + 1 :])
        elif kind == "permute":
            order = tuple(draw(st.permutations(range(len(current)))))
            steps.append(("permute", order))
            current = tuple(current[d] for d in order)
        elif kind == "expand" and len(current) < 5:
            dim = draw(st.integers(0, len(current)))
            steps.append(("expand_dim", dim))
            current = (*current[:dim], 1, *current[dim:])
        elif kind == "split":
            dim = draw(st.integers(0, len(current) - 1))
            parts = draw(st.sampled_from([n for n in range(1, current[dim] + 1) if current[dim] % n == 0]))
            steps.append(("reshape_dim", dim, (parts, -1)))
            current = (*current[:dim], parts, current[dim] // parts, *current[dim + 1 :])
    return shape, steps


@settings(max_examples=150, deadline=None)
@given(chains())
def test_chains_of_views_show_what_numpy_shows(case):
    shape, steps = case
    view, base = tensor(shape, "shared_hbm"), numbers(shape)
    want = base
    for name, *args in steps:
        if name == "slice":
            dim, start, end, step = args
            want = want[(slice(None),) * dim + (slice(start, end, step),)]
        elif name == "permute":
            want = want.transpose(args[0])
        elif name == "expand_dim":
            want = np.expand_dims(want, args[0])
        else:
            dim, parts = args
            want = want.reshape(*want.shape[:dim], parts[0], -1, *want.shape[dim + 1 :])
        view = getattr(view, name)(*args)
        np.testing.assert_array_equal(picked(view, base), want)


@settings(max_examples=100, deadline=None)
@given(st.permutations([2, 3, 4]), st.sampled_from([(24,), (6, 4), (2, 12), (4, 3, 2), (2, 3, 2, 2), (1, 24, 1)]))
def test_reshape_follows_the_rule_of_torch_view(order, wanted):
    import torch

    shape = tuple(sorted(order))
    perm = tuple(shape.index(n) for n in order)
    reference = torch.arange(24.0).reshape(shape).permute(perm)
    view = tensor(shape, "shared_hbm").permute(perm)
    try:
        strides = reference.view(wanted).stride()
    except RuntimeError:
        assert rule_of(lambda: view.reshape(wanted)) == "view_layout"
        return
    result = view.reshape(wanted)
    for extent, mine, theirs in zip(wanted, result.strides, strides, strict=True):
        assert extent == 1 or mine == theirs


def test_rearrange_splits_moves_and_merges():
    t, base = tensor((128, 24)), numbers((128, 24))
    view = t.rearrange(("b", ("h", "w")), ("b", "w", "h"), {"h": 4})
    assert view.shape == (128, 6, 4)
    np.testing.assert_array_equal(picked(view, base), base.reshape(128, 4, 6).transpose(0, 2, 1))
    back = tensor((8, 2, 3), "shared_hbm").rearrange(("a", "b", "c"), (("a", "b"), "c"))
    assert back.shape == (16, 3)


def test_broadcast_repeats_without_moving():
    t, base = tensor((128, 1, 64)), numbers((128, 1, 64))
    np.testing.assert_array_equal(picked(t.broadcast(1, 8), base), np.broadcast_to(base, (128, 8, 64)))
    h, rows = tensor((1, 64), "shared_hbm"), numbers((1, 64))
    np.testing.assert_array_equal(picked(h.broadcast(0, 128), rows), np.broadcast_to(rows, (128, 64)))


def test_squeeze_and_flatten():
    t = tensor((128, 1, 64))
    assert t.squeeze_dim(1).shape == (128, 64)
    assert tensor((128, 2, 3, 4)).flatten_dims(1, 2).shape == (128, 6, 4)
    assert tensor((2, 3, 4), "shared_hbm").flatten_dims(0, 2).shape == (24,)


def test_view_reinterprets_bits_and_scales_the_last_dimension():
    t = tensor((128, 64))
    assert t.view(nl.uint8).shape == (128, 256)
    assert t.view(nl.int32).shape == (128, 64)
    u = tensor((128, 256), dtype="uint8")
    assert u.view(nl.float32).shape == (128, 64)
    assert u[:, 8:16].view(nl.float32).offset == 2
    assert t.reinterpret_cast(nl.bfloat16).shape == (128, 128)


def test_ap_of_another_dtype_counts_in_it():
    t = tensor((128, 256), dtype="int32")
    v = t.ap([[512, 128], [1, 512]], offset=0, dtype=nl.bfloat16)
    assert v.shape == (128, 512)
    assert v.dtype == "bfloat16"
    assert t[64:].ap([[512, 64], [1, 512]], dtype=nl.bfloat16).operand().start == 64


def test_ap_offset_adds_to_the_view_and_patterns_do_not_compose():
    t = tensor((128, 256))
    assert t[:, 16:].ap([[256, 128], [1, 8]], offset=4).offset == 20
    inner = t.ap([[256, 128], [2, 128]])
    assert inner.ap([[256, 128], [1, 64]]).strides == (256, 1)


def test_views_of_one_tile_share_what_is_written():
    @nki.jit
    def kernel(x):
        out = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.shared_hbm)
        t = nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(t, x)
        nisa.memset(t.reshape((4, 2, 4))[:, 1, :], 7.0)
        nisa.dma_copy(out, t)
        return out

    x = numbers((4, 8))
    want = x.copy()
    want[:, 4:] = 7
    np.testing.assert_array_equal(nki.simulate(kernel)(x), want)


# -- what is refused ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "rule", "neighbour"),
    [
        (lambda t: t[:, 0:65], "index_bounds", lambda t: t[:, 0:64]),
        (lambda t: t[128], "index_bounds", lambda t: t[127]),
        (lambda t: t[-129], "index_bounds", lambda t: t[-128]),
        (lambda t: t[:, 5:5], "index_bounds", lambda t: t[:, 5:6]),
        (lambda t: t[:, ::-1], "index_bounds", lambda t: t[:, ::1]),
        (lambda t: t[0, 0, 0], "index_bounds", lambda t: t[0, 0]),
        (lambda t: t[[0, 1]], "index_type", lambda t: t[0:2]),
        (lambda t: t[1.0], "index_type", lambda t: t[1]),
        (lambda t: t.slice(1, 8, 65), "index_bounds", lambda t: t.slice(1, 8, 64)),
        (lambda t: t.slice(1, 8, 8), "index_bounds", lambda t: t.slice(1, 8, 9)),
        (lambda t: t.slice(1, 0, 8, 0), "index_bounds", lambda t: t.slice(1, 0, 8, 1)),
        (lambda t: t.permute((1, 0)), "view_partition", lambda t: t.permute((0, 1))),
        (lambda t: t.permute((0, 0)), "view_dim", lambda t: t.permute((0, 1))),
        (lambda t: t.reshape((64, 128)), "view_partition", lambda t: t.reshape((128, 8, 8))),
        (lambda t: t.reshape((128, 65)), "view_size", lambda t: t.reshape((128, 64))),
        (lambda t: t.reshape_dim(0, (2, 64)), "view_partition", lambda t: t.reshape_dim(0, (128,))),
        (lambda t: t.reshape_dim(1, (7, -1)), "view_size", lambda t: t.reshape_dim(1, (8, -1))),
        (lambda t: t.flatten_dims(0, 1), "view_dim", lambda t: t.flatten_dims(1, 1)),
        (lambda t: t.expand_dim(0), "view_partition", lambda t: t.expand_dim(1)),
        (lambda t: t.expand_dim(1).squeeze_dim(2), "view_dim", lambda t: t.expand_dim(1).squeeze_dim(1)),
        (lambda t: t.broadcast(1, 8), "view_broadcast", lambda t: t[:, 0:1].broadcast(1, 8)),
        (lambda t: t[0:1].broadcast(0, 8), "view_partition", lambda t: t[0:1, 0:1].broadcast(1, 8)),
        (lambda t: t[:, ::2].view(nl.uint8), "view_layout", lambda t: t[:, 0:32].view(nl.uint8)),
        (lambda t: t.view(nl.bfloat16)[:, 1:3].view(nl.float32), "view_layout", lambda t: t.view(nl.bfloat16)),
        (lambda t: t.view("float77"), "dtype", lambda t: t.view("bfloat16")),
        (lambda t: t.ap([[128, 64], [1, 64]]), "ap_partition", lambda t: t.ap([[64, 64], [1, 64]])),
        (lambda t: t.ap([[64, 128], [1, 0]]), "index_bounds", lambda t: t.ap([[64, 128], [1, 1]])),
        (
            lambda t: t.rearrange(("p", "f"), ("f", "p")),
            "view_partition",
            lambda t: t.rearrange(("p", "f"), ("p", "f")),
        ),
        (
            lambda t: t.rearrange(("p", ("a", "b")), ("p", "b", "a"), {"a": 7}),
            "view_rearrange",
            lambda t: t.rearrange(("p", ("a", "b")), ("p", "b", "a"), {"a": 8}),
        ),
        (lambda t: t[:, 0:32].reshape((128, 32)) + 1, "tensor_operator", lambda t: t[:, 0:32].reshape((128, 32))),
        (lambda t: 2.0 * t, "tensor_operator", lambda t: t),
        (lambda t: t // 2, "tensor_operator", lambda t: t),
        (lambda t: bool(t), "host_control_flow", lambda t: t.shape),
        (lambda t: int(t), "host_control_flow", lambda t: t.size),
        (lambda t: [x for x in t], "host_control_flow", lambda t: [t[i] for i in range(2)]),  # noqa: C416
        (lambda t: t.vector_select(0, t), "buffer", lambda t: t.select(1, 0)),
    ],
)
def test_illegal_views_are_refused_and_their_neighbours_are_not(call, rule, neighbour):
    assert rule_of(lambda: call(tensor((128, 64)))) == rule
    neighbour(tensor((128, 64)))


def test_reshape_of_a_transposed_view_needs_a_copy():
    t = tensor((128, 4, 6)).permute((0, 2, 1))
    assert rule_of(lambda: t.reshape((128, 24))) == "view_layout"
    assert rule_of(lambda: t.flatten_dims(1, 2)) == "view_layout"
    assert tensor((128, 4, 6)).reshape((128, 24)).shape == (128, 24)


# -- run-time addresses -------------------------------------------------------------------------------------------


def test_an_access_has_one_run_time_term():
    index = tensor((1, 1), dtype="int32")
    rows = tensor((64, 1), dtype="int32")
    t = tensor((4, 128, 8), "shared_hbm")
    once = t.select(0, index)
    assert once.shape == (128, 8)
    assert once.is_indirect()
    assert rule_of(lambda: once.select(0, index)) == "indirect_view"
    assert rule_of(lambda: once.vector_select(0, rows)) == "indirect_view"
    assert rule_of(lambda: once.view(nl.uint8)) == "indirect_view"
    assert rule_of(lambda: t.ap([[8, 128], [1, 8]], scalar_offset=index, vector_offset=rows)) == "indirect_view"
    assert once[0:64].shape == (64, 8)


def test_the_dimension_of_a_vector_select_stays_as_it_is():
    rows = tensor((64, 1), dtype="int32")
    view = tensor((16, 8, 4), "shared_hbm").vector_select(0, rows)
    assert view.shape == (64, 8, 4)
    assert rule_of(lambda: view[0:32]) == "indirect_view"
    assert rule_of(lambda: view[3]) == "indirect_view"
    assert rule_of(lambda: view.permute((1, 0, 2))) == "view_partition"
    assert rule_of(lambda: view.reshape((32, 64))) == "view_partition"
    assert view[:, 2:4].shape == (64, 2, 4)
    assert view.reshape((64, 32)).shape == (64, 32)


@pytest.mark.parametrize(
    ("call", "rule"),
    [
        (lambda hbm, sb, idx: hbm.vector_select(1, idx), "indirect_dim"),
        (lambda hbm, sb, idx: sb.vector_select(0, idx), "buffer"),
        (lambda hbm, sb, idx: sb.select(0, tensor((1, 1), dtype="int32")), "dynamic_partition"),
        (lambda hbm, sb, idx: hbm.select(0, idx), "index_tile"),
        (lambda hbm, sb, idx: hbm.select(0, tensor((1, 1), "psum", "int32")), "index_tile"),
        (lambda hbm, sb, idx: hbm.select(0, tensor((1, 1))), "index_tile"),
        (lambda hbm, sb, idx: hbm.ap([[4, 8], [1, 4]], vector_offset=idx, indirect_dim=1), "indirect_dim"),
        (lambda hbm, sb, idx: hbm.vector_select(0, tensor((8, 1))), "index_tile"),
    ],
)
def test_illegal_run_time_addresses_are_refused(call, rule):
    hbm, sb, idx = tensor((16, 4), "shared_hbm"), tensor((16, 4)), tensor((8, 1), dtype="int32")
    assert rule_of(lambda: call(hbm, sb, idx)) == rule
    hbm.vector_select(0, idx)
    sb.select(1, tensor((1, 1), dtype="int32"))


def test_an_assert_on_a_tile_is_checked_where_values_exist():
    def kernel(x, expected):
        t = nl.load(x)
        assert nl.equal(t, expected)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, t)
        return out

    ones = np.ones((4, 4), np.float32)
    nki.simulate(kernel)(ones, 1.0)
    with pytest.raises(AssertionError):
        nki.simulate(kernel)(ones, 2.0)


def test_print_shows_values_in_the_eager_simulator(capsys):
    @nki.jit
    def kernel(x):
        t = nl.load(x)
        print(t)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nl.store(out, t)
        return out

    nki.simulate(kernel)(np.full((2, 2), 3.5, np.float32))
    assert "3.5" in capsys.readouterr().out


def test_partitions_of_an_operand_are_consecutive():
    @nki.jit
    def kernel(x, step):
        out = nl.ndarray((64, 8), dtype=x.dtype, buffer=nl.shared_hbm)
        tile = nl.ndarray((128, 8), dtype=x.dtype, buffer=nl.sbuf)
        nisa.memset(tile, 1.0)
        nisa.dma_copy(dst=out, src=tile[0 : 64 * step : step])
        return out

    values = np.zeros((4, 4), np.float32)
    assert nki.simulate(kernel)(values, 1).min() == 1.0
    with pytest.raises(LegalityError) as caught:
        nki.simulate(kernel)(values, 2)
    assert caught.value.rule == "partition_stride"
