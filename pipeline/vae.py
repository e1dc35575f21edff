"""The Wan2.1 video VAE: latents to pixels and back, as a stream, with the official 194 tensors.

    latents [frames, 16, h, w]  <->  pixels [1 + 4 (frames - 1), 3, 8h, 8w] in -1..1

A video may be decoded in pieces: the state carries what the causal convolutions need of the past,
and any cut gives the same pixels, because latent frames go through one at a time. Latents are
normalised, as the diffusion model has them; pixels are a height before a width.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nkismith.pipeline.config import Config
from nkismith.pipeline.errors import InputError
from nkismith.pipeline.vae_layers import (
    AllColumns,
    CausalConv,
    ChannelNorm,
    Columns,
    Downsample,
    FrameAttention,
    Residual,
    Upsample,
    VaeState,
)
from nkismith.pipeline.weights import check_names, official_names, read_state_dict

LATENT_MEAN = (
    *(-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508),
    *(0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921),
)
LATENT_STD = (
    *(2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743),
    *(3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160),
)
"""Of each latent channel over the training set; published with Wan2.1."""

LATENT_CHANNELS = len(LATENT_MEAN)
WIDTHS = (1, 2, 4, 4)
"""Channels at each resolution, finest first, in units of `Config.vae_dim`."""

SPACE_FACTOR = 8
"""Pixels a latent position is wide and high."""

TIME_FACTOR = 4
"""Pixel frames of a latent frame; the first latent frame of a stream is one."""


class Vae(nn.Module):
    """The VAE of a config's `vae_dim`; 96 is Wan2.1's. Make one with `load_vae` or `Vae.random`.

    Without `encoder` it has only what text to video needs: `decoder` and `conv2`.
    """

    def __init__(self, config: Config, *, encoder: bool = True):
        super().__init__()
        if config.channels != LATENT_CHANNELS:
            raise InputError(f"channels is {config.channels}; the VAE of Wan2.1 has latents of {LATENT_CHANNELS}")
        self.decoder = _Decoder(config.vae_dim)
        self.conv2 = CausalConv(LATENT_CHANNELS, LATENT_CHANNELS, (1, 1, 1))
        self.encoder = _Encoder(config.vae_dim) if encoder else None
        self.conv1 = CausalConv(2 * LATENT_CHANNELS, 2 * LATENT_CHANNELS, (1, 1, 1)) if encoder else None
        for name, module in self.named_modules():
            if isinstance(module, CausalConv):
                module.name = name

    @classmethod
    def random(cls, config: Config, seed: int = 0) -> Vae:
        """A VAE with reproducible random weights in the config's dtype, whose pixels fill -1..1."""
        vae = cls(config)
        draw = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for name, parameter in vae.named_parameters():
                values = torch.randn(parameter.shape, generator=draw)
                if name.endswith("gamma"):
                    parameter.copy_(1 + 0.1 * values)
                elif name.endswith("bias"):
                    parameter.copy_(0.1 * values)
                else:
                    parameter.copy_(values / math.sqrt(parameter[0].numel()))
        return vae.to(getattr(torch, config.dtype)).requires_grad_(False)

    @property
    def dtype(self) -> torch.dtype:
        return self.conv2.weight.dtype

    def new_state(self) -> VaeState:
        """The state of a stream that has not begun."""
        return VaeState()

    @torch.no_grad()
    def decode(
        self, latents: Tensor, state: VaeState | None = None, *, columns: Columns | None = None, together: int = 1
    ) -> Tensor:
        """Decode the next latent frames of a stream.

        Args: latents [frames, 16, h, w], normalised; state of the stream, updated (without one, a whole video);
            columns if the width is split over ranks; together, how many latent frames go through at once after
            the first: more means fewer and larger operations, and pixels that differ by rounding (1e-6).
        Returns: pixels [4 * frames, 3, 8h, 8w] in -1..1, three frames fewer when the stream begins.
        Raises: InputError for another shape, or another size than the stream began with.
        """
        if latents.ndim != 4 or latents.shape[1] != LATENT_CHANNELS or 0 in latents.shape:
            raise InputError(
                f"latents are {list(latents.shape)}; expected [frames, {LATENT_CHANNELS}, height, width], none 0"
            )
        if together < 1:
            raise InputError(f"together is {together}; at least one latent frame must go through at once")
        state = self.new_state() if state is None else state
        columns = AllColumns() if columns is None else columns
        mean, inverse_std = self._statistics()
        # The original divides by 1/std; in bfloat16 that is not the same as multiplying by std.
        z = latents.to(mean) / inverse_std + mean
        z = self.conv2(z.contiguous(memory_format=torch.channels_last), state, columns)
        pixels = []
        for piece in _pieces(z, state, together):
            pixels.append(self.decoder(piece, state, columns).clamp_(-1, 1))
            state.first = False
        return torch.cat(pixels)

    @torch.no_grad()
    def encode(self, pixels: Tensor) -> Tensor:
        """Encode a whole video, or one image, to normalised latents: the mean of the latent distribution.

        Args: pixels [1 + 4n, 3, height, width] in -1..1; height and width are multiples of 8.
        Returns: latents [1 + n, 16, height / 8, width / 8].
        Raises: InputError for other sizes, or if the weights hold no encoder.
        """
        if self.encoder is None or self.conv1 is None:
            raise InputError("these VAE weights hold no encoder; load the whole VAE to begin from an image or a video")
        if pixels.ndim != 4 or pixels.shape[1] != 3 or 0 in pixels.shape:
            raise InputError(f"pixels are {list(pixels.shape)}; expected [frames, 3, height, width], none of them 0")
        if pixels.shape[0] % TIME_FACTOR != 1:
            raise InputError(f"a video of {pixels.shape[0]} frames cannot be encoded; it must have 1 + 4n frames")
        if pixels.shape[2] % SPACE_FACTOR or pixels.shape[3] % SPACE_FACTOR:
            raise InputError(
                f"frames of {pixels.shape[2]}x{pixels.shape[3]} do not divide by {SPACE_FACTOR}; crop or scale them"
            )
        state, columns = self.new_state(), AllColumns()
        mean, inverse_std = self._statistics()
        x = pixels.to(mean).contiguous(memory_format=torch.channels_last)
        latents = []
        for piece in _pieces(x, state, TIME_FACTOR):
            latents.append(self.conv1(self.encoder(piece, state, columns), state, columns)[:, :LATENT_CHANNELS])
            state.first = False
        return ((torch.cat(latents) - mean) * inverse_std).contiguous()

    def _statistics(self) -> tuple[Tensor, Tensor]:
        """Mean and 1/std of the latents [16, 1, 1], rounded to the model's dtype as the original does."""
        mean, std = (torch.tensor(values).view(-1, 1, 1) for values in (LATENT_MEAN, LATENT_STD))
        return mean.to(self.conv2.weight), (1 / std).to(self.conv2.weight)


def _pieces(x: Tensor, state: VaeState, size: int) -> Iterator[Tensor]:
    """The first frame of a stream by itself, since time is not resampled there; then `size` frames at a time."""
    if state.first:
        yield x[:1]
        x = x[1:]
    if len(x):
        yield from x.split(size)


class _Decoder(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        coarse = WIDTHS[-1] * dim
        self.conv1 = CausalConv(LATENT_CHANNELS, coarse, (3, 3, 3))
        self.middle = nn.ModuleList([Residual(coarse, coarse), FrameAttention(coarse), Residual(coarse, coarse)])
        self.upsamples = nn.ModuleList()
        inputs = coarse
        for stage, width in enumerate(reversed(WIDTHS)):
            outputs = width * dim
            self.upsamples.extend([Residual(inputs, outputs), Residual(outputs, outputs), Residual(outputs, outputs)])
            if stage < len(WIDTHS) - 1:
                self.upsamples.append(Upsample(outputs, time=stage < 2))
                inputs = outputs // 2
        self.head = nn.ModuleDict({"0": ChannelNorm(dim, extra_dims=3), "2": CausalConv(dim, 3, (3, 3, 3))})

    def forward(self, x: Tensor, state: VaeState, columns: Columns) -> Tensor:
        x = self.conv1(x, state, columns)
        for layer in (*self.middle, *self.upsamples):
            x = layer(x, state, columns)
        return self.head["2"](F.silu(self.head["0"](x)), state, columns)


class _Encoder(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.conv1 = CausalConv(3, dim, (3, 3, 3))
        self.downsamples = nn.ModuleList()
        inputs = dim
        for stage, width in enumerate(WIDTHS):
            outputs = width * dim
            self.downsamples.extend([Residual(inputs, outputs), Residual(outputs, outputs)])
            if stage < len(WIDTHS) - 1:
                self.downsamples.append(Downsample(outputs, time=stage > 0))
            inputs = outputs
        self.middle = nn.ModuleList([Residual(inputs, inputs), FrameAttention(inputs), Residual(inputs, inputs)])
        self.head = nn.ModuleDict(
            {"0": ChannelNorm(inputs, extra_dims=3), "2": CausalConv(inputs, 2 * LATENT_CHANNELS, (3, 3, 3))}
        )

    def forward(self, x: Tensor, state: VaeState, columns: Columns) -> Tensor:
        x = self.conv1(x, state, columns)
        for layer in (*self.downsamples, *self.middle):
            x = layer(x, state, columns)
        return self.head["2"](F.silu(self.head["0"](x)), state, columns)


def load_vae(source: Mapping[str, Tensor] | str | Path, config: Config) -> Vae:
    """A VAE in the config's dtype from `Wan2.1_VAE.pth`, from Hugging Face's layout, or from such tensors.

    Tensors that need no cast are used where they are, mapped from the file. A file without any encoder
    tensor gives a VAE that can only decode.

    Raises: WeightsError naming every missing, unexpected or misshapen tensor.
    """
    tensors = official_names(source, "the given VAE") if isinstance(source, Mapping) else read_state_dict(source)
    what = "the VAE" if isinstance(source, Mapping) else f"the VAE in {source}"
    translate = diffusers_name if any(name.startswith("post_quant_conv.") for name in tensors) else str
    with torch.device("meta"):
        vae = Vae(config, encoder=not _decoder_only(tensors))
    names = {name: translate(name) for name in vae.state_dict()}
    check_names(tensors, {names[name]: tensor.shape for name, tensor in vae.state_dict().items()}, what)
    vae.load_state_dict({name: tensors[stored] for name, stored in names.items()}, assign=True)
    return vae.to(getattr(torch, config.dtype)).requires_grad_(False)


def _decoder_only(tensors: Mapping[str, Any]) -> bool:
    return any(name.startswith("decoder.") for name in tensors) and not any(
        name.startswith(("encoder.", "conv1.", "quant_conv.")) for name in tensors
    )


_DIFFUSERS_LAYERS = {
    "residual.0": "norm1",
    "residual.2": "conv1",
    "residual.3": "norm2",
    "residual.6": "conv2",
    "shortcut": "conv_shortcut",
}


def diffusers_name(name: str) -> str:
    """The name a VAE tensor has in Hugging Face's layout (diffusers' AutoencoderKLWan).

    Stages are grouped there: three residual blocks and an upsampler of the decoder make one `up_blocks`.
    """
    name = re.sub(r"^conv1\.", "quant_conv.", name)
    name = re.sub(r"^conv2\.", "post_quant_conv.", name)
    name = re.sub(r"^((?:en|de)coder)\.conv1\.", r"\1.conv_in.", name)
    name = re.sub(r"\.head\.0\.", ".norm_out.", name)
    name = re.sub(r"\.head\.2\.", ".conv_out.", name)
    name = re.sub(r"\.middle\.1\.", ".mid_block.attentions.0.", name)
    name = re.sub(r"\.middle\.([02])\.", lambda match: f".mid_block.resnets.{int(match[1]) // 2}.", name)
    name = name.replace(".downsamples.", ".down_blocks.")
    name = re.sub(r"\.upsamples\.(\d+)\.", lambda match: _up_block(int(match[1])), name)
    for official, other in _DIFFUSERS_LAYERS.items():
        name = name.replace(f".{official}.", f".{other}.")
    return name


def _up_block(layer: int) -> str:
    block, place = divmod(layer, 4)
    return f".up_blocks.{block}.upsamplers.0." if place == 3 else f".up_blocks.{block}.resnets.{place}."
