"""The PyTorch functions against the formulas in float64, and how a run chooses its backends."""

import math

import pytest
import torch

from nkismith import verify
from nkismith.kernels.registry import NoKernel, StaleKernel
from nkismith.pipeline import ops
from nkismith.pipeline.errors import InputError, KernelFailed, KernelMissing
from nkismith.verify.accepted import WrongHere
from nkismith.verify.sandbox import SandboxError
from nkismith.verify.simulator.errors import LegalityError

DRAW = torch.Generator().manual_seed(0)
TOLERANCE = {torch.float32: 2e-6, torch.bfloat16: 1e-2}
both_dtypes = pytest.mark.parametrize("dtype", list(TOLERANCE))


def randn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=DRAW).to(dtype)


def close(got, want):
    assert got.dtype in TOLERANCE
    error = (got.double() - want).norm() / want.norm()
    assert error < TOLERANCE[got.dtype], float(error)


def attention(q, k, v):
    scores = torch.einsum("shd,lhd->hsl", q.double(), k.double()) / math.sqrt(q.shape[-1])
    return torch.einsum("hsl,lhd->shd", scores.softmax(-1), v.double())


def rotated(x, cos, sin):
    a, b = x.double()[..., 0::2], x.double()[..., 1::2]
    c, s = cos.double().unsqueeze(1), sin.double().unsqueeze(1)
    return torch.stack((a * c - b * s, a * s + b * c), dim=-1).flatten(-2)


@both_dtypes
def test_rope_rotates_adjacent_pairs(dtype):
    x, angle = randn(7, 2, 16, dtype=dtype), randn(7, 8)
    close(ops.rope_3d(x, angle.cos(), angle.sin()), rotated(x, angle.cos(), angle.sin()))


@both_dtypes
def test_rms_norm_takes_all_heads_together(dtype):
    x, weight = randn(9, 48, dtype=dtype) * 3, randn(48, dtype=dtype)
    want = x.double() / (x.double().square().mean(-1, keepdim=True) + 1e-6).sqrt() * weight.double()
    close(ops.rms_norm_qk(x, weight), want)


@both_dtypes
def test_modulation_is_that_of_the_frame(dtype):
    x, shift, scale = randn(6, 32, dtype=dtype), randn(3, 32, dtype=dtype), randn(3, 32, dtype=dtype)
    rows = [0, 0, 1, 1, 2, 2]
    y = x.double()
    normed = (y - y.mean(-1, keepdim=True)) / (y.var(-1, unbiased=False, keepdim=True) + 1e-6).sqrt()
    close(ops.layer_norm_modulate(x, shift, scale), normed * (1 + scale[rows].double()) + shift[rows].double())


@both_dtypes
def test_mlp_uses_the_tanh_gelu(dtype):
    x, w1, b1 = randn(5, 24, dtype=dtype), randn(24, 40, dtype=dtype), randn(40, dtype=dtype)
    w2, b2 = randn(40, 24, dtype=dtype), randn(24, dtype=dtype)
    h = x.double() @ w1.double() + b1.double()
    h = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
    close(ops.gelu_mlp(x, w1, b1, w2, b2), h @ w2.double() + b2.double())


@both_dtypes
def test_cross_attention_has_no_mask(dtype):
    q, k, v = randn(9, 3, 16, dtype=dtype), randn(5, 3, 16, dtype=dtype), randn(5, 3, 16, dtype=dtype)
    close(ops.cross_attention(q, k, v), attention(q, k, v))


@both_dtypes
@pytest.mark.parametrize("padding", [1, 2, 40])
def test_cross_attention_attends_to_every_row_of_padding(dtype, padding):
    q, k, v = randn(9, 3, 16, dtype=dtype), randn(41, 3, 16, dtype=dtype), randn(41, 3, 16, dtype=dtype)
    k[-padding:], v[-padding:] = k[-1].clone(), v[-1].clone()
    k[0], v[0] = k[-1].clone(), v[-1].clone()  # equal, but no padding
    close(ops.cross_attention(q, k, v), attention(q, k, v))
    v[-1] += 1
    close(ops.cross_attention(q, k, v), attention(q, k, v))


def test_attention_in_tiles_is_that_of_the_whole(monkeypatch):
    """A tile that does not divide the queries, one row at a time, and the fused kernel of other CPUs."""
    q, k, v = (randn(13, 3, 16, dtype=torch.bfloat16) for _ in range(3))
    arguments = (torch.zeros(8, 3, 16, 1), torch.zeros(8, 3, 1, 16), torch.zeros(1), torch.zeros(1, dtype=torch.int32))
    for tile, onednn in ((5 * 13, ops.ONEDNN), (1, ops.ONEDNN), (1, frozenset())):
        monkeypatch.setattr(ops, "TILE", tile)
        monkeypatch.setattr(ops, "ONEDNN", onednn)
        close(ops.rolling_attention(q, k, v, *arguments, torch.zeros(1, 8), torch.zeros(1, 8)), attention(q, k, v))


@pytest.mark.parametrize("onednn", [ops.ONEDNN, frozenset()])
@both_dtypes
def test_products_are_the_same_without_onednn(dtype, onednn, monkeypatch):
    monkeypatch.setattr(ops, "ONEDNN", onednn)
    x, w, b = randn(5, 24, dtype=dtype), randn(40, 24, dtype=dtype), randn(40, dtype=dtype)
    h = x.double() @ w.double().t() + b.double()
    close(ops.linear(x, w, b), h)
    gelu = 0.5 * h * (1 + torch.tanh(math.sqrt(2 / math.pi) * (h + 0.044715 * h**3)))
    close(ops.linear(x, w, b, "gelu"), gelu)


@both_dtypes
@pytest.mark.parametrize("n_past", [0, 1, 3])
def test_rolling_attention_rotates_past_keys_on_read(dtype, n_past):
    heads, size, block = 2, 16, 6
    q, k, v = (randn(12, heads, size, dtype=dtype) for _ in range(3))
    k_ring = randn(8, heads, size, block, dtype=dtype)
    v_ring = randn(8, heads, block, size, dtype=dtype)
    slots = torch.tensor([0, 5, 2, 7], dtype=torch.int32)
    angle = randn(4 * block, size // 2)
    past_k = [k_ring[slot].permute(2, 0, 1) for slot in slots[:n_past]]
    past_v = [v_ring[slot].transpose(0, 1) for slot in slots[:n_past]]
    turned = [
        rotated(past, angle[i * block : (i + 1) * block].cos(), angle[i * block : (i + 1) * block].sin())
        for i, past in enumerate(past_k)
    ]
    want = attention(q, torch.cat((*turned, k.double())), torch.cat((*past_v, v)))
    # Whatever lies in slots that are not read must not matter.
    for slot in set(range(8)) - set(slots[:n_past].tolist()):
        k_ring[slot] = v_ring[slot] = math.nan
    n = torch.tensor([n_past], dtype=torch.int32)
    close(ops.rolling_attention(q, k, v, k_ring, v_ring, slots, n, angle.cos(), angle.sin()), want)


def test_cache_update_writes_one_slot_and_touches_nothing_else():
    k_ring, v_ring = randn(8, 2, 16, 6), randn(8, 2, 6, 16)
    before_k, before_v = k_ring.clone(), v_ring.clone()
    k, v = randn(6, 2, 16), randn(6, 2, 16)
    assert ops.kv_cache_update(k_ring, v_ring, k, v, torch.tensor([3], dtype=torch.int32)) is None
    others = [slot for slot in range(8) if slot != 3]
    assert torch.equal(k_ring[others], before_k[others])
    assert torch.equal(v_ring[others], before_v[others])
    for token in range(6):
        assert torch.equal(k_ring[3, :, :, token], k[token])
        assert torch.equal(v_ring[3, :, token], v[token])


@pytest.fixture
def one_accepted_kernel(monkeypatch):
    """Only rope_3d has a kernel; returns what it was asked for and called with."""
    seen = []

    def load(op, *, target, dtype, lnc, root):
        seen.append((op, target, dtype, lnc, root))
        if op != "rope_3d":
            raise NoKernel(f"No accepted kernel of {op}.")
        return lambda *arguments: seen.append(arguments) or arguments[0]

    monkeypatch.setitem(vars(verify), "load", load)
    return seen


def test_every_op_of_the_design_goes_through_the_seam():
    assert set(ops.Ops().backends) == {
        "rope_3d",
        "rms_norm_qk",
        "layer_norm_modulate",
        "gelu_mlp",
        "cross_attention",
        "kv_cache_update",
        "rolling_attention",
    }


def test_a_missing_kernel_stops_the_run(one_accepted_kernel):
    with pytest.raises(KernelMissing, match="rms_norm_qk has no kernel to simulate"):
        ops.Ops("sim")


def test_a_fallback_is_reported(one_accepted_kernel):
    chosen = ops.Ops("sim", dtype="bfloat16", allow_fallback=True)
    assert [op for op, backend in chosen.backends.items() if backend == "sim"] == ["rope_3d"]
    assert len(chosen.fallbacks) == 6
    assert "No accepted kernel of gelu_mlp" in chosen.fallbacks["gelu_mlp"]
    assert one_accepted_kernel[0] == ("rope_3d", "trn2", "bfloat16", 1, None)


def test_backends_can_be_mixed_and_that_is_no_fallback(one_accepted_kernel):
    chosen = ops.Ops({"rope_3d": "sim"})
    x = randn(4, 2, 16).transpose(0, 1)
    chosen.rope_3d(x, randn(2, 8), randn(2, 8))
    assert chosen.fallbacks == {}
    assert chosen.backends["rope_3d"] == "sim" and chosen.backends["gelu_mlp"] == "torch"
    assert all(argument.is_contiguous() for argument in one_accepted_kernel[-1])


@pytest.mark.parametrize("backend", ["cuda", {"rope_3d": "numpy"}, {"rope": "sim"}])
def test_refuses_unknown_backends_and_ops(backend):
    with pytest.raises(InputError, match=r"no (backend|op) named"):
        ops.Ops(backend)


@pytest.mark.parametrize(
    "error",
    [
        NoKernel("not verified for S=4"),
        WrongHere("kernel.py: [recording_limit] the child was killed"),
        SandboxError("no namespace"),
        LegalityError("bounds", "row 9 of 8"),
    ],
)
def test_a_kernel_that_cannot_be_run_is_an_error_of_the_pipeline(error, monkeypatch):
    def kernel(*_):
        raise error

    monkeypatch.setitem(vars(verify), "load", lambda *_, **__: kernel)
    with pytest.raises(KernelFailed, match=r"rope_3d cannot be run on \[4, 2, 16\], \[2, 8\], \[2, 8\]: ") as caught:
        ops.Ops("sim").rope_3d(randn(4, 2, 16), randn(2, 8), randn(2, 8))
    assert str(error) in str(caught.value)


def test_a_stale_kernel_is_refused_even_where_falling_back_is_allowed(monkeypatch):
    def load(*_, **__):
        raise StaleKernel("its source changed")

    monkeypatch.setitem(vars(verify), "load", load)
    with pytest.raises(KernelFailed, match="its source changed"):
        ops.Ops("sim", allow_fallback=True)
