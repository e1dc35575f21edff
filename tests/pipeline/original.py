"""The published algorithm, written plainly and separately, to compare the pipeline with.

Nothing is shared with the pipeline: keys are kept rotated in a cache that shifts, with its two end
counters; positions are absolute, rotated in complex128; every window is followed by an update pass of
its own, dead or not; attention, norms and modulation are spelt out. Layouts follow the description
of the original's cache.
"""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import Tensor

STEPS = (1000, 800, 600, 400, 200)
CACHE_BLOCKS = 8
SPAN_FRAMES = 21


def schedule(shift: float = 5.0) -> tuple[Tensor, Tensor, Tensor]:
    """Timesteps of the five steps, and the tables of all 1000 timesteps and sigmas."""
    u = torch.linspace(1, 0, 1001)[:-1]
    sigmas = shift * u / (1 + (shift - 1) * u)
    table = sigmas * 1000
    warped = torch.cat((table, torch.zeros(1)))
    return torch.stack([warped[1000 - step] for step in STEPS]), table, sigmas


def sigma_of(timestep: Tensor, table: Tensor, sigmas: Tensor) -> Tensor:
    return sigmas[(table[None] - timestep[:, None]).abs().argmin(dim=1)]


class Original:
    def __init__(self, weights: dict[str, Tensor], *, heads: int, rows: int, cols: int, freq_dim: int) -> None:
        self.w = weights
        self.heads, self.rows, self.cols, self.freq_dim = heads, rows, cols, freq_dim
        self.layers = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
        self.dtype = weights["head.head.weight"].dtype
        self.dim = weights["patch_embedding.bias"].numel()
        self.frame = rows * cols
        self.block = 3 * self.frame
        head_dim = self.dim // heads
        size = (CACHE_BLOCKS * self.block, heads, head_dim)
        self.cache_k = [torch.zeros(size, dtype=self.dtype) for _ in range(self.layers)]
        self.cache_v = [torch.zeros(size, dtype=self.dtype) for _ in range(self.layers)]
        self.global_end = [0] * self.layers
        self.local_end = [0] * self.layers
        dims = (head_dim - 4 * (head_dim // 6), 2 * (head_dim // 6), 2 * (head_dim // 6))
        self.frequencies = [10000.0 ** (-torch.arange(0, n, 2, dtype=torch.float64) / n) for n in dims]

    def linear(self, x: Tensor, name: str) -> Tensor:
        return F.linear(x, self.w[name + ".weight"], self.w[name + ".bias"])

    def rms(self, x: Tensor, name: str) -> Tensor:
        y = x.float()
        y = y / torch.sqrt((y * y).mean(dim=-1, keepdim=True) + 1e-6)
        return y.to(x.dtype) * self.w[name + ".weight"]

    def norm(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (self.dim,), eps=1e-6)

    def rotate(self, x: Tensor, start_frame: int) -> Tensor:
        """x [tokens, heads, head_dim], whole frames from an absolute frame on."""
        frames = len(x) // self.frame
        parts = []
        for f in range(frames):
            for y in range(self.rows):
                for column in range(self.cols):
                    position = (start_frame + f, y, column)
                    parts.append(torch.cat([p * w for p, w in zip(position, self.frequencies, strict=True)]))
        angles = torch.stack(parts)
        turned = torch.view_as_complex(x.double().reshape(*x.shape[:2], -1, 2)) * torch.polar(
            torch.ones_like(angles), angles
        ).unsqueeze(1)
        return torch.view_as_real(turned).flatten(2).to(x.dtype)

    @staticmethod
    def attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        scores = torch.einsum("shd,lhd->hsl", q.float(), k.float()) / math.sqrt(q.shape[-1])
        return torch.einsum("hsl,lhd->shd", scores.softmax(-1), v.float()).to(q.dtype)

    def self_attention(self, x: Tensor, layer: int, start: int, update: bool) -> Tensor:
        name = f"blocks.{layer}.self_attn."
        split = (-1, self.heads, self.dim // self.heads)
        q = self.rms(self.linear(x, name + "q"), name + "norm_q").view(split)
        k = self.rms(self.linear(x, name + "k"), name + "norm_k").view(split)
        v = self.linear(x, name + "v").view(split)
        block, ck, cv = self.block, self.cache_k[layer], self.cache_v[layer]
        first_frame = start // self.frame
        q, k_roped = self.rotate(q, first_frame), self.rotate(k, first_frame)

        new = start + block - self.global_end[layer]
        if new > 0 and self.local_end[layer] + new > len(ck):
            for cache in (ck, cv):
                cache[block : len(cache) - block] = cache[2 * block :].clone()
            local_end = len(ck)
        else:
            local_end = self.local_end[layer] + new
        begin = local_end - block
        ck[begin:local_end] = k[:block] if begin == 0 else k_roped[:block]
        cv[begin:local_end] = v[:block]
        if new > 0:
            self.global_end[layer], self.local_end[layer] = start + block, local_end

        if begin == 0:
            keys, values = k_roped, v
        elif update:
            oldest = max(0, local_end - SPAN_FRAMES * self.frame)
            keys, values = ck[oldest:local_end].clone(), cv[oldest:local_end]
            if oldest == 0:
                keys[:block] = self.rotate(ck[:block], 0)
        else:
            room = SPAN_FRAMES * self.frame - len(x) - block
            oldest = max(block, begin - room)
            recent = (begin - oldest) // self.frame
            sink = self.rotate(ck[:block], first_frame - recent - 3)
            keys = torch.cat((sink, ck[oldest:begin], k_roped))
            values = torch.cat((cv[:block], cv[oldest:begin], v))
        return self.linear(self.attention(q, keys, values).flatten(1), name + "o")

    def cross_attention(self, x: Tensor, context: Tensor, layer: int) -> Tensor:
        name = f"blocks.{layer}.cross_attn."
        split = (-1, self.heads, self.dim // self.heads)
        q = self.rms(self.linear(x, name + "q"), name + "norm_q").view(split)
        k = self.rms(self.linear(context, name + "k"), name + "norm_k").view(split)
        v = self.linear(context, name + "v").view(split)
        return self.linear(self.attention(q, k, v).flatten(1), name + "o")

    def flow(self, x: Tensor, timesteps: Tensor, embeds: Tensor, first_frame: int, update: bool) -> Tensor:
        """x [F, channels, height, width], timesteps [F] float32."""
        frames, channels, height, width = x.shape
        patches = F.unfold(x.float(), kernel_size=2, stride=2).transpose(1, 2).to(self.dtype)
        h = F.linear(patches, self.w["patch_embedding.weight"].flatten(1), self.w["patch_embedding.bias"]).flatten(0, 1)

        half = self.freq_dim // 2
        angles = timesteps.double()[:, None] * 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
        e = torch.cat((torch.cos(angles), torch.sin(angles)), dim=1).to(self.dtype)
        e = self.linear(F.silu(self.linear(e, "time_embedding.0")), "time_embedding.2")
        e6 = self.linear(F.silu(e), "time_projection.1").view(frames, 6, self.dim)
        context = F.gelu(self.linear(embeds, "text_embedding.0"), approximate="tanh")
        context = self.linear(context, "text_embedding.2")

        def per_token(m: Tensor) -> Tensor:
            return m.repeat_interleave(self.frame, dim=0)

        for layer in range(self.layers):
            name = f"blocks.{layer}."
            m = [per_token(part) for part in (self.w[name + "modulation"] + e6).unbind(1)]
            y = self.self_attention(self.norm(h) * (1 + m[1]) + m[0], layer, first_frame * self.frame, update)
            h = h + y * m[2]
            normed = F.layer_norm(h, (self.dim,), self.w[name + "norm3.weight"], self.w[name + "norm3.bias"], 1e-6)
            h = h + self.cross_attention(normed, context, layer)
            y = F.gelu(self.linear(self.norm(h) * (1 + m[4]) + m[3], name + "ffn.0"), approximate="tanh")
            h = h + self.linear(y, name + "ffn.2") * m[5]
        shift, scale = (per_token(part) for part in (self.w["head.modulation"] + e[:, None]).unbind(1))
        y = self.linear(self.norm(h) * (1 + scale) + shift, "head.head")
        y = y.view(frames, self.rows, self.cols, 2, 2, channels)
        return torch.einsum("fyxabc->fcyaxb", y).reshape(frames, channels, height, width)

    def generate(
        self,
        noise: Tensor,
        embeds: Tensor,
        renoise: Callable[[int, int, tuple[int, ...]], Tensor],
        given: Tensor | None = None,
    ) -> Tensor:
        """All latents. renoise(window, block, shape of the whole window) -> noise of that shape.

        `given` latents are run through update passes first, and the clip goes on from there; the published
        code has no such thing.
        """
        timesteps, table, sigmas = schedule()
        ahead = 0 if given is None else len(given) // 3
        for block in range(ahead):
            self.flow(given[3 * block : 3 * block + 3], torch.zeros(3), embeds, 3 * block, update=True)
        blocks = len(noise) // 3
        pending = torch.zeros_like(noise)
        result = torch.zeros_like(noise)
        for window in range(blocks + 4):
            s, e = max(0, window - 4), min(blocks - 1, window)
            x = pending[3 * s : 3 * e + 3].clone()
            if window < blocks:
                x[-3:] = noise[3 * e : 3 * e + 3]
            count = e - s + 1
            indices = list(range(4, -1, -1))
            indices = indices[5 - count :] if window < blocks else indices[:count]
            t = timesteps[indices].repeat_interleave(3)
            v = self.flow(x, t, embeds, 3 * (ahead + s), update=False)
            sigma = sigma_of(t, table, sigmas).double().view(-1, 1, 1, 1)
            x0 = (x.double() - sigma * v.double()).to(self.dtype)
            result[3 * s : 3 * e + 3] = x0
            for place, index in enumerate(indices):
                if index == 4:
                    continue
                eps = renoise(window, s + place, tuple(x.shape))[3 * place : 3 * place + 3]
                level = sigma_of(timesteps[[index + 1]], table, sigmas)
                mixed = (1 - level) * x0[3 * place : 3 * place + 3].float() + level * eps.float()
                pending[3 * (s + place) : 3 * (s + place) + 3] = mixed.to(noise.dtype)
            self.flow(x0[:3], torch.zeros(3), embeds, 3 * (ahead + s), update=True)
        return result
