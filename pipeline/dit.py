"""The diffusion transformer of Wan2.1 with a rolling cache, under the official parameter names.

Differences from the published Wan2.1 model: time conditioning is per frame, and self-attention sees
finished blocks through the ring. One call may hold several passes (the update pass of the block that
has just been finished, and the denoising pass of the next window): they share everything but the
keys they attend to, so the large matrix products run once over the frames of all.

Tokens are [F, n, C]: on a single rank n is all tokens of a frame in row-major order, on several it is
this rank's share of every frame (see sharding.py).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nkismith.pipeline.call import Call
from nkismith.pipeline.config import EPS, PATCH, Config
from nkismith.pipeline.ops import Ops, linear
from nkismith.pipeline.ring import Ring
from nkismith.pipeline.schedule import Pass
from nkismith.pipeline.sharding import Layout
from nkismith.pipeline.weights import check_names, official_names, read_state_dict

PromptKeys = tuple[tuple[Tensor, Tensor], ...]
"""Keys and values of the prompt for each layer's cross-attention, each [text_len, H, D]."""


@dataclass(frozen=True)
class TimeTable:
    """What the model makes of each timestep that a run uses; one row a timestep."""

    layers: tuple[Tensor, ...]  # each [timesteps, 6, C]: shift, scale, gate of attention, then of the MLP
    head: Tensor  # [timesteps, 2, C]: shift, scale


class Linear(nn.Linear):
    """A projection of tokens."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class Attention(nn.Module):
    """The parameters both kinds of attention have: four projections, and norms over all heads."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head_dim = config.head_dim
        self.q, self.k, self.v, self.o = (Linear(config.dim, config.dim) for _ in range(4))
        self.norm_q, self.norm_k = (nn.RMSNorm(config.dim, eps=EPS) for _ in range(2))

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (-1, self.head_dim))


class SelfAttention(Attention):
    def forward(self, x: Tensor, layer: int, call: Call) -> Tensor:
        """Args: x [F*n, C], the frames of all passes of the call. Returns the same shape."""
        ops, frames = call.ops, call.reads[-1].frames.stop
        q = ops.rms_norm_qk(self.q(x), self.norm_q.weight)
        k = ops.rms_norm_qk(self.k(x), self.norm_k.weight)
        per_frame = [self.heads(tensor).unflatten(0, (frames, -1)) for tensor in (q, k, self.v(x))]
        q, k, v = call.layout.to_heads(*per_frame)
        q_roped = ops.rope_3d(q.flatten(0, 1), *call.q_angles).view_as(q)
        k_roped = ops.rope_3d(k.flatten(0, 1), *call.k_angles).view_as(k)
        k_ring, v_ring = call.ring.k[layer], call.ring.v[layer]
        attended = []
        for read in call.reads:
            own = read.frames
            if read.slot is not None:
                ops.kv_cache_update(k_ring, v_ring, k[own].flatten(0, 1), v[own].flatten(0, 1), read.slot)
            y = ops.rolling_attention(
                q_roped[own].flatten(0, 1),
                k_roped[own].flatten(0, 1),
                v[own].flatten(0, 1),
                k_ring,
                v_ring,
                read.slots,
                read.n_past,
                *call.past_angles,
            )
            attended.append(y.view_as(q[own]))
        y = call.layout.to_tokens(torch.cat(attended))
        return self.o(y.flatten(2).flatten(0, 1))


class CrossAttention(Attention):
    def prompt_keys(self, context: Tensor, ops: Ops) -> tuple[Tensor, Tensor]:
        """Keys and values of a prompt, context [text_len, C]."""
        k = ops.rms_norm_qk(self.k(context), self.norm_k.weight)
        return self.heads(k), self.heads(self.v(context))

    def forward(self, x: Tensor, keys: tuple[Tensor, Tensor], ops: Ops) -> Tensor:
        q = ops.rms_norm_qk(self.q(x), self.norm_q.weight)
        return self.o(ops.cross_attention(self.heads(q), *keys).flatten(1))


class Block(nn.Module):
    def __init__(self, config: Config) -> None:
        super().__init__()
        self.modulation = nn.Parameter(torch.empty(1, 6, config.dim))
        self.self_attn = SelfAttention(config)
        self.norm3 = nn.LayerNorm(config.dim, eps=EPS)
        self.cross_attn = CrossAttention(config)
        self.ffn = nn.Sequential(
            nn.Linear(config.dim, config.ffn_dim), nn.GELU("tanh"), nn.Linear(config.ffn_dim, config.dim)
        )

    def forward(self, x: Tensor, layer: int, modulation: Tensor, keys: tuple[Tensor, Tensor], call: Call) -> Tensor:
        """Args: x [F*n, C]; modulation [F, 6, C], of the timestep of each frame; keys of the prompt."""
        ops = call.ops
        shift, scale, gate, mlp_shift, mlp_scale, mlp_gate = modulation.unbind(1)
        y = self.self_attn(ops.layer_norm_modulate(x, shift, scale), layer, call)
        x = _add_gated(x, y, gate)
        x = x + self.cross_attn(self.norm3(x), keys, ops)
        up, down = cast(list[nn.Linear], [self.ffn[0], self.ffn[2]])
        y = ops.layer_norm_modulate(x, mlp_shift, mlp_scale)
        y = ops.gelu_mlp(y, up.weight.t(), up.bias, down.weight.t(), down.bias)
        return _add_gated(x, y, mlp_gate)


class Head(nn.Module):
    """Tokens to patches of flow, conditioned on time as the blocks are."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.head = nn.Linear(config.dim, config.channels * PATCH * PATCH)
        self.modulation = nn.Parameter(torch.empty(1, 2, config.dim))

    def forward(self, x: Tensor, modulation: Tensor, ops: Ops) -> Tensor:
        return self.head(ops.layer_norm_modulate(x, *modulation.unbind(1)))


class Dit(nn.Module):
    """The denoiser. Make one with `load_dit` or `Dit.random`."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        dim = config.dim
        self.patch_embedding = nn.Conv3d(config.channels, dim, (1, PATCH, PATCH), (1, PATCH, PATCH))
        self.text_embedding = nn.Sequential(nn.Linear(config.text_dim, dim), nn.GELU("tanh"), nn.Linear(dim, dim))
        self.time_embedding = nn.Sequential(nn.Linear(config.freq_dim, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.time_projection = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.num_layers))
        self.head = Head(config)

    @classmethod
    def random(cls, config: Config, seed: int = 0) -> Dit:
        """Seeded random weights of the sizes of `config`, drawn in float32 whatever the dtype.

        Scaled so that activations keep their size through the layers, and the output depends visibly on
        every input.
        """
        generator = torch.Generator().manual_seed(seed)
        tensors = {}
        for name, shape in parameter_shapes(config).items():
            fan_in = math.prod(shape[1:]) if len(shape) > 1 else config.dim
            tensors[name] = torch.randn(shape, generator=generator) / math.sqrt(fan_in)
            if name.endswith("modulation"):
                tensors[name] *= math.sqrt(fan_in / config.dim)
            if "norm" in name and name.endswith("weight"):
                tensors[name] += 1
        return load_dit(tensors, config)

    @property
    def dtype(self) -> torch.dtype:
        return self.head.modulation.dtype

    @property
    def layers(self) -> Iterable[Block]:
        return cast(Iterable[Block], self.blocks)

    @torch.no_grad()
    def prompt_keys(self, embeds: Tensor, ops: Ops) -> PromptKeys:
        """Project prompt embeddings [text_len, text_dim] for the cross-attention of every layer.

        Rows beyond the prompt are zeros and become keys like any other: the model was trained so.
        """
        last = int(embeds.any(dim=1).nonzero().flatten()[-1:].sum()) + 1
        # One row of padding stands for all, so that their keys are equal to the bit: see `ops.cross_attention`.
        rows = torch.arange(len(embeds)).clamp(max=last)
        context = self.text_embedding(embeds[: last + 1].to(self.dtype))
        keys = (block.cross_attn.prompt_keys(context, ops) for block in self.layers)
        return tuple((k[rows], v[rows]) for k, v in keys)

    @torch.no_grad()
    def time_table(self, timesteps: Sequence[float]) -> TimeTable:
        """Project the timesteps of a run for every layer; angles in float64, the rest in the model's dtype."""
        half = self.config.freq_dim // 2
        frequency = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.outer(torch.tensor(timesteps, dtype=torch.float64), frequency)
        sinusoid = torch.cat((angles.cos(), angles.sin()), dim=1).to(self.dtype)
        e = self.time_embedding(sinusoid)
        e6 = self.time_projection(e).unflatten(1, (6, -1))
        return TimeTable(tuple(block.modulation + e6 for block in self.layers), self.head.modulation + e.unsqueeze(1))

    @torch.no_grad()
    def forward(
        self,
        x: Tensor,
        timesteps: Sequence[int],
        passes: Sequence[Pass],
        *,
        time: TimeTable,
        prompt: PromptKeys,
        ring: Ring,
        ops: Ops,
        layout: Layout,
    ) -> Tensor:
        """The flow, noise - x0, that the model sees in x.

        Args:
            x: [F, channels, height, width], the frames of all passes in their order.
            timesteps: row of `time` for each frame.
            passes: which blocks the frames are; update passes first, since later passes read what they write.

        Returns: [F, channels, height, width], on every rank.
        Raises: KeyError if a pass reads a block that is not in the ring.
        """
        call = Call.of(self.config, passes, ring, ops, layout)
        frames = x.shape[0]
        patches = layout.own_tokens(_patches(x.to(self.dtype)))
        embedding = self.patch_embedding
        tokens = F.linear(patches, embedding.weight.flatten(1), embedding.bias).flatten(0, 1)
        rows = list(timesteps)
        for layer, block in enumerate(self.layers):
            tokens = block(tokens, layer, time.layers[layer][rows], prompt[layer], call)
        flow = self.head(tokens, time.head[rows], ops).unflatten(0, (frames, -1))
        return self._frames(layout.gather_tokens(flow))

    def _frames(self, tokens: Tensor) -> Tensor:
        """Output tokens [F, rows*cols, 4*channels] to latents; a token holds (row, column, channel)."""
        config = self.config
        y = tokens.unflatten(2, (PATCH, PATCH, config.channels)).unflatten(1, (config.rows, config.cols))
        return y.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)


def parameter_shapes(config: Config) -> dict[str, tuple[int, ...]]:
    """Shape of every parameter by its official name; 825 of them for wan-1.3b."""
    with torch.device("meta"):
        return {name: tuple(tensor.shape) for name, tensor in Dit(config).state_dict().items()}


def load_dit(state_dict_or_path: Mapping[str, Tensor] | str | Path, config: Config) -> Dit:
    """Build the model from official weights: a state dict, or a file `read_state_dict` can read.

    Every name and shape must fit, once a checkpoint's wrapper prefixes are removed; values are cast to the dtype
    of the config.

    Raises: WeightsError naming every tensor that is missing, unexpected or misshapen.
    """
    if isinstance(state_dict_or_path, Mapping):
        state_dict, what = official_names(state_dict_or_path, "the given weights"), "the given weights"
    else:
        state_dict, what = read_state_dict(state_dict_or_path), str(state_dict_or_path)
    check_names(state_dict, parameter_shapes(config), f"{what} for {config.name}")
    dtype = getattr(torch, config.dtype)
    with torch.device("meta"):
        dit = Dit(config)
    dit.load_state_dict({name: tensor.to(dtype) for name, tensor in state_dict.items()}, assign=True)
    return dit.requires_grad_(False).eval()


def _patches(x: Tensor) -> Tensor:
    """Latents [F, channels, height, width] to tokens [F, rows*cols, channels*4], each (channel, row, column)."""
    patches = x.unflatten(3, (-1, PATCH)).unflatten(2, (-1, PATCH))
    return patches.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)


def _add_gated(x: Tensor, y: Tensor, gate: Tensor) -> Tensor:
    """x + gate * y with x, y [F*n, C] and gate [F, C]."""
    frames = gate.shape[0]
    return torch.addcmul(x.unflatten(0, (frames, -1)), y.unflatten(0, (frames, -1)), gate.unsqueeze(1)).flatten(0, 1)
