"""The seam between the model and the kernels: each op once, on the backend the run chose for it.

The functions of this module are the PyTorch backend. `Ops` binds every op of a run to one of them or to
an accepted kernel. Shapes: S tokens, F frames, C channels, H heads of this rank, D head size, T tokens
of a block, L prompt positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from nkismith import verify
from nkismith.kernels.registry import NoKernel, RegistryError
from nkismith.kernels.spec import UnknownOp
from nkismith.pipeline.config import EPS
from nkismith.pipeline.errors import InputError, KernelFailed, KernelMissing
from nkismith.verify.sandbox import SandboxError
from nkismith.verify.simulator.errors import NkiValidationError

BACKENDS = ("torch", "sim")


def onednn_dtypes() -> frozenset[torch.dtype]:
    """What this CPU multiplies well with oneDNN, as far as this PyTorch has it and offers what follows a product."""
    onednn = torch.ops.mkldnn
    if not torch.backends.mkldnn.is_available() or not hasattr(onednn, "_linear_pointwise"):
        return frozenset()
    return frozenset((torch.float32, torch.bfloat16) if onednn._is_mkldnn_bf16_supported() else (torch.float32,))


ONEDNN = onednn_dtypes()

TILE = 1 << 22
"""Logits that attention in bfloat16 holds at once, 8 MB: what a CPU's last cache has room for."""


def rope_3d(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate adjacent channel pairs of x [S, H, D] by the angles whose cos, sin are [S, D/2] float32."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    rotated = pairs * torch.complex(cos, sin).unsqueeze(1)
    return torch.view_as_real(rotated).flatten(-2).to(x.dtype)


def rms_norm_qk(x: Tensor, weight: Tensor) -> Tensor:
    """x [S, C] over the root of its mean square, all heads together, times weight [C].

    Statistics in float32; rounded to the dtype of x before the weight, as Wan2.1 does.
    """
    norm = torch.linalg.vector_norm(x, dim=-1, keepdim=True, dtype=torch.float32)
    return (x * torch.rsqrt(norm.square() / x.shape[-1] + EPS)).to(x.dtype) * weight


def layer_norm_modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    """LN(x) * (1 + scale) + shift of x [S, C]; row f of shift, scale [F, C] covers S/F consecutive tokens."""
    frames = F.layer_norm(x, x.shape[-1:], eps=EPS).unflatten(0, (shift.shape[0], -1))
    return torch.addcmul(shift.unsqueeze(1), frames, 1 + scale.unsqueeze(1)).flatten(0, 1)


def gelu_mlp(x: Tensor, w1: Tensor, b1: Tensor, w2: Tensor, b2: Tensor) -> Tensor:
    """gelu(x w1 + b1) w2 + b2 with the tanh form of GELU; x [S, C], w1 [C, I], w2 [I, C]."""
    return linear(linear(x, w1.t(), b1, "gelu"), w2.t(), b2)


def cross_attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """Softmax attention of q [S, H, D] to all of k, v [L, H, D], scaled by 1/sqrt(D).

    Equal positions at the end, as the padding of a prompt leaves, are attended to once with their number added
    to the logit as its logarithm: the same sum, over the prompt's own length.
    """
    last = len(k) - 1
    repeats_last = ((k == k[last]) & (v == v[last])).flatten(1).all(dim=1)
    distinct = last - int(repeats_last.flip(0).cumprod(0).sum()) + 1
    weights = torch.zeros(distinct + 1)
    weights[distinct] = math.log(len(k) - distinct)
    return _attend(q, k[: distinct + 1].transpose(0, 1), v[: distinct + 1].transpose(0, 1), weights)


def kv_cache_update(k_ring: Tensor, v_ring: Tensor, k: Tensor, v: Tensor, slot: Tensor) -> None:
    """Write one block, k and v [T, H, D], into a slot of k_ring [slots, H, D, T] and v_ring [slots, H, T, D]."""
    index = int(slot)
    k_ring[index] = k.permute(1, 2, 0)
    v_ring[index] = v.transpose(0, 1)


def rolling_attention(
    q: Tensor,
    k_own: Tensor,
    v_own: Tensor,
    k_ring: Tensor,
    v_ring: Tensor,
    slots: Tensor,
    n_past: Tensor,
    cos: Tensor,
    sin: Tensor,
) -> Tensor:
    """Attention of some queries to past blocks in the ring and to the keys of their own blocks.

    Args:
        q: [Sq, H, D] rotated; Sq = S unless the queries are split over ranks.
        k_own, v_own: [S, H, D], the keys rotated.
        k_ring, v_ring: [slots, H, D, T] and [slots, H, T, D]; keys before rotation.
        slots: int32 [n_max], the ring slot of each past block; entries from n_past on are ignored.
        n_past: int32 [1].
        cos, sin: [n_max*T, D/2] float32, the angles of the past tokens in the order of `slots`.

    Returns: [Sq, H, D].
    """
    count = int(n_past)
    if count == 0:
        return _attend(q, k_own.transpose(0, 1), v_own.transpose(0, 1))
    chosen = slots[:count].long()
    tokens = k_ring.shape[3]
    k_past = k_ring[chosen].permute(0, 3, 1, 2).contiguous().flatten(0, 1)
    k_past = rope_3d(k_past, cos[: count * tokens], sin[: count * tokens])
    v_past = v_ring[chosen].transpose(0, 1).flatten(1, 2)
    k = torch.cat((k_past, k_own)).transpose(0, 1)
    return _attend(q, k, torch.cat((v_past, v_own.transpose(0, 1)), dim=1))


def linear(x: Tensor, weight: Tensor, bias: Tensor, activation: str = "none") -> Tensor:
    """x [S, I] times weight [O, I] transposed, plus bias [O]; then GELU in its tanh form, if `activation` is "gelu".

    By oneDNN where there is it: PyTorch leaves float32 to another library, which on CPUs with AVX-512 is a tenth
    slower, and has the activation written to memory and read back, which takes a fifth of the product's time.
    """
    if x.device.type == "cpu" and x.dtype in ONEDNN:
        return torch.ops.mkldnn._linear_pointwise(x, weight, bias, activation, [], "tanh")
    y = F.linear(x, weight, bias)
    return F.gelu(y, approximate="tanh") if activation == "gelu" else y


def _attend(q: Tensor, k: Tensor, v: Tensor, added: Tensor | None = None) -> Tensor:
    """q [S, H, D] against k, v [H, L, D], with `added` [L] float32 to the logits."""
    if q.device.type == "cpu" and q.dtype == torch.bfloat16 and q.dtype in ONEDNN and added is None:
        return _attend_in_tiles(q, k, v)
    mask = None if added is None else added[None]
    # The batch axis selects PyTorch's fused CPU kernel.
    y = F.scaled_dot_product_attention(q.transpose(0, 1)[None], k[None], v[None], attn_mask=mask)
    return y[0].transpose(0, 1)


def _attend_in_tiles(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As `_attend`, a tile of logits at a time: in bfloat16 two products of oneDNN take half the time of the fused
    kernel, which on CPUs without AMX multiplies at the speed of float32. Logits are rounded; the softmax is float32.
    """
    tokens, heads, size = q.shape
    rows = min(tokens, max(1, TILE // k.shape[1]))
    logits = q.new_empty(rows, k.shape[1])
    y = q.new_empty(heads, tokens, size)
    for head in range(heads):
        for queries, attended in zip(q[:, head].split(rows), y[head].split(rows), strict=True):
            tile = logits[: len(queries)]
            torch.addmm(tile, queries, k[head].t(), beta=0, alpha=size**-0.5, out=tile)
            torch.mm(torch.softmax(tile, dim=-1, out=tile), v[head], out=attended)
    return y.transpose(0, 1)


TORCH: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        function.__name__: function
        for function in (
            rope_3d,
            rms_norm_qk,
            layer_norm_modulate,
            gelu_mlp,
            cross_attention,
            kv_cache_update,
            rolling_attention,
        )
    }
)


class Ops:
    """Every op of one run, bound to its backend; call them as methods: `ops.rope_3d(x, cos, sin)`.

    `backends` says where each op runs; `fallbacks` says, of those that the caller wanted elsewhere, why
    they run on PyTorch.
    """

    rope_3d: Callable[[Tensor, Tensor, Tensor], Tensor]
    rms_norm_qk: Callable[[Tensor, Tensor], Tensor]
    layer_norm_modulate: Callable[[Tensor, Tensor, Tensor], Tensor]
    gelu_mlp: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]
    cross_attention: Callable[[Tensor, Tensor, Tensor], Tensor]
    kv_cache_update: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor], None]
    rolling_attention: Callable[[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor], Tensor]

    def __init__(
        self,
        backend: str | Mapping[str, str] = "torch",
        *,
        dtype: str = "float32",
        target: str = "trn2",
        lnc: int = 1,
        kernel_root: Path | None = None,
        allow_fallback: bool = False,
    ) -> None:
        """Choose a backend for each op.

        Args:
            backend: `torch`, or `sim` for accepted kernels on the simulator; or a mapping from op to one of
                these, in which ops that are not named run on PyTorch.
            dtype, target, lnc: what the accepted kernels must be for.
            kernel_root: where they are kept; by default beside the bundled ops.
            allow_fallback: run ops without an accepted kernel on PyTorch, and say so in `fallbacks`.

        Raises: InputError for an unknown op or backend; KernelMissing if an op has no accepted kernel, KernelFailed if
            the one it has is stale.
        """
        wanted = backend_of_each_op(backend)
        self.backends: dict[str, str] = {}
        self.fallbacks: dict[str, str] = {}
        for op, function in TORCH.items():
            self.backends[op] = "torch"
            if wanted[op] == "sim":
                try:
                    function = simulated(op, dtype=dtype, target=target, lnc=lnc, root=kernel_root)
                    self.backends[op] = "sim"
                except KernelMissing as missing:
                    if not allow_fallback:
                        raise
                    self.fallbacks[op] = str(missing)
            setattr(self, op, function)


def backend_of_each_op(backend: str | Mapping[str, str]) -> dict[str, str]:
    """Spell a choice of backend out for every op; raises InputError as `Ops` does."""
    chosen = dict.fromkeys(TORCH, backend if isinstance(backend, str) else "torch")
    if not isinstance(backend, str):
        chosen.update(backend)
    for op, name in chosen.items():
        if op not in TORCH:
            raise InputError(f"no op named {op!r} in the pipeline. Known: {', '.join(TORCH)}")
        if name not in BACKENDS:
            raise InputError(f"no backend named {name!r} (wanted for {op}). Known: {', '.join(BACKENDS)}")
    return chosen


def simulated(op: str, *, dtype: str, target: str, lnc: int, root: Path | None) -> Callable[..., Any]:
    """An op's accepted kernel on the simulator, as a function of tensors like the one in this module.

    Raises: KernelMissing if there is none for this dtype, target and LNC; KernelFailed if one changed since, and from
        the function if the kernel was not verified for the shapes, or cannot be recorded or run at them.
    """
    try:
        kernel = verify.load(op, target=target, dtype=dtype, lnc=lnc, root=root)
    except (NoKernel, UnknownOp) as error:
        raise KernelMissing(f"{op} has no kernel to simulate: {error} Or allow the run to fall back") from error
    except RegistryError as error:
        raise KernelFailed(f"{op} cannot be simulated: {error}") from error

    def run(*arguments: Tensor) -> Any:
        try:
            return kernel(*(argument.contiguous() for argument in arguments))
        except (RegistryError, SandboxError, NkiValidationError) as error:
            shapes = ", ".join(str(list(argument.shape)) for argument in arguments)
            raise KernelFailed(
                f"the kernel of {op} cannot be run on {shapes}: {error} Run it on PyTorch, or choose another preset"
            ) from error

    return run
