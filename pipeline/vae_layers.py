"""Layers of the Wan2.1 VAE, under the official parameter names.

Video is a tensor [frames, channels, height, width] in channels-last memory, so that a frame is a
batch element of the 2-D convolutions, and the channel norm and the attention read it in order.

Every layer takes the stream's `VaeState` and a `Columns`. The state is what makes a video that
arrives in pieces equal to one that arrives whole; the columns are what makes a video that is split
by width over ranks equal to one that is not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nkismith.pipeline.errors import InputError


@dataclass
class VaeState:
    """What one stream remembers between calls: of every causal layer, by name, its last input frames.

    `first` holds until the first latent frame (or, encoding, the first pixel frame) has gone through.
    """

    frames: dict[str, Tensor] = field(default_factory=dict)
    first: bool = True

    def extend(self, name: str, x: Tensor, *, keep: int) -> Tensor:
        """The last `keep` frames this layer saw (zeros before the stream), then `x`; remembers the newest."""
        past = self.frames.get(name)
        if past is None:
            past = torch.zeros_like(x[:1]).repeat(keep, 1, 1, 1)
        elif past.shape[1:] != x.shape[1:]:
            raise InputError(
                f"the stream began with frames of another size ({list(past.shape[2:])} in {name}, now "
                f"{list(x.shape[2:])}); begin a new stream with new_state()"
            )
        x = torch.cat([past.contiguous(memory_format=torch.channels_last), x])
        self.frames[name] = x[-keep:].clone()  # a clone, or the state would hold all of x
        return x

    @property
    def bytes(self) -> int:
        return sum(past.nbytes for past in self.frames.values())


class Columns(Protocol):
    """The columns of the video that this process computes."""

    padding: int
    """Columns of zeros a convolution of width 3 must still add on each side."""

    def with_halo(self, x: Tensor) -> Tensor:
        """`x` with the neighbours' adjoining columns, or zeros at the edge of the video, where `padding` is 0."""

    def whole(self, x: Tensor) -> Tensor:
        """`x` of all columns of the video, from all processes."""


class AllColumns:
    """One process has the whole width: nothing to exchange, and convolutions pad themselves."""

    padding = 1

    def with_halo(self, x: Tensor) -> Tensor:
        return x

    def whole(self, x: Tensor) -> Tensor:
        return x


class CausalConv(nn.Module):
    """A 3-D convolution that sees the present and the past: kernels 1x1x1, 3x1x1 and 3x3x3.

    Zero padding keeps height and width; the two frames of context come from the state.
    """

    name = ""  # its place in the model, set by the model: the state's key

    def __init__(self, inputs: int, outputs: int, kernel: tuple[int, int, int], *, time_stride: int = 1):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, *kernel))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.kernel = kernel
        self.time_stride = time_stride

    def forward(self, x: Tensor, state: VaeState, columns: Columns) -> Tensor:
        if self.kernel[2] > 1:
            # Before the state, so that cached frames keep their halo and each column travels once.
            x = columns.with_halo(x)
        if self.kernel[0] > 1:
            x = state.extend(self.name, x, keep=self.kernel[0] - self.time_stride)
        return self.convolve(x, columns)

    def convolve(self, x: Tensor, columns: Columns) -> Tensor:
        # The taps in time become channels of one 2-D convolution: on a CPU 1 to 5 times as fast as
        # conv3d in float32, and still one rounding of one sum in bfloat16.
        taps, rows, cols = self.kernel
        end = x.shape[0] - taps + 1
        stacked = x if taps == 1 else torch.cat([x[tap : tap + end : self.time_stride] for tap in range(taps)], dim=1)
        weight = self.weight.transpose(1, 2).flatten(1, 2)
        return F.conv2d(stacked, weight, self.bias, padding=(rows // 2, columns.padding if cols > 1 else 0))


class FrameConv(nn.Module):
    """A 2-D convolution of each frame, which pads as it is told."""

    def __init__(self, inputs: int, outputs: int, size: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(outputs, inputs, size, size))
        self.bias = nn.Parameter(torch.empty(outputs))

    def forward(self, x: Tensor, *, padding: tuple[int, int] = (0, 0), stride: int = 1) -> Tensor:
        return F.conv2d(x, self.weight, self.bias, padding=padding, stride=stride)


class ChannelNorm(nn.Module):
    """Scale the channels of each pixel to length sqrt(channels), then by gamma. No mean, no bias."""

    def __init__(self, channels: int, *, extra_dims: int):
        super().__init__()
        self.gamma = nn.Parameter(torch.empty(channels, *[1] * extra_dims))

    def forward(self, x: Tensor) -> Tensor:
        # One rounding after each factor, as in the original, whose results in bfloat16 this must meet.
        return F.normalize(x, dim=1, eps=1e-12) * self.gamma.shape[0] ** 0.5 * self.gamma.view(-1, 1, 1)


class Residual(nn.Module):
    """shortcut(x) + conv(SiLU(norm(conv(SiLU(norm(x)))))); the shortcut convolves if the width changes."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.residual = nn.ModuleDict(
            {
                "0": ChannelNorm(inputs, extra_dims=3),
                "2": CausalConv(inputs, outputs, (3, 3, 3)),
                "3": ChannelNorm(outputs, extra_dims=3),
                "6": CausalConv(outputs, outputs, (3, 3, 3)),
            }
        )
        self.shortcut = CausalConv(inputs, outputs, (1, 1, 1)) if inputs != outputs else None

    def forward(self, x: Tensor, state: VaeState, columns: Columns) -> Tensor:
        norm1, conv1, norm2, conv2 = self.residual.values()
        y = conv1(F.silu(norm1(x)), state, columns)
        y = conv2(F.silu(norm2(y)), state, columns)
        return y + (x if self.shortcut is None else self.shortcut(x, state, columns))


class FrameAttention(nn.Module):
    """Attention with one head over all positions of a frame, frame by frame, added to its input."""

    def __init__(self, channels: int):
        super().__init__()
        self.norm = ChannelNorm(channels, extra_dims=2)
        self.to_qkv = FrameConv(channels, 3 * channels, 1)
        self.proj = FrameConv(channels, channels, 1)

    def forward(self, x: Tensor, state: VaeState, columns: Columns) -> Tensor:
        y = self.norm(x)
        weight, bias = self.to_qkv.weight.flatten(1), self.to_qkv.bias
        channels = x.shape[1]
        # Queries of our own columns only; keys and values of all, made here from the gathered input,
        # which is half of what gathering keys and values would send.
        q = F.linear(_positions(y), weight[:channels], bias[:channels])
        k, v = F.linear(_positions(columns.whole(y)), weight[channels:], bias[channels:]).chunk(2, dim=-1)
        y = F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0]
        y = F.linear(y, self.proj.weight.flatten(1), self.proj.bias)
        return x + y.unflatten(1, x.shape[2:]).permute(0, 3, 1, 2)


def _positions(x: Tensor) -> Tensor:
    """[frames, channels, height, width] -> [frames, height * width, channels]."""
    return x.permute(0, 2, 3, 1).flatten(1, 2)


class Upsample(nn.Module):
    """Twice the height and width with half the channels, and, with `time`, twice the frames.

    The first latent frame of a stream stays one frame and leaves no trace in the state of `time_conv`.
    """

    def __init__(self, channels: int, *, time: bool):
        super().__init__()
        self.resample = nn.ModuleDict({"1": FrameConv(channels, channels // 2, 3)})
        self.time_conv = CausalConv(channels, 2 * channels, (3, 1, 1)) if time else None

    def forward(self, x: Tensor, state: VaeState, columns: Columns) -> Tensor:
        if self.time_conv is not None and not state.first:
            # The lower half of the channels is the even frame, the upper half the odd one.
            x = self.time_conv(x, state, columns).unflatten(1, (2, x.shape[1])).flatten(0, 1)
        # The halo is exchanged at the lower resolution, where it is half as tall; of the two columns
        # that one becomes, the convolution wants the inner one.
        halo = 1 - columns.padding
        x = columns.with_halo(x).contiguous(memory_format=torch.channels_last)
        x = F.interpolate(x, scale_factor=2, mode="nearest")[..., halo : 2 * x.shape[-1] - halo]
        return self.resample["1"](x, padding=(1, columns.padding))


class Downsample(nn.Module):
    """Half the height and width, and, with `time`, half the frames but for the first of the stream."""

    def __init__(self, channels: int, *, time: bool):
        super().__init__()
        self.resample = nn.ModuleDict({"1": FrameConv(channels, channels, 3)})
        self.time_conv = CausalConv(channels, channels, (3, 1, 1), time_stride=2) if time else None

    def forward(self, x: Tensor, state: VaeState, columns: Columns) -> Tensor:
        x = self.resample["1"](F.pad(x, (0, 1, 0, 1)), stride=2)
        if self.time_conv is None:
            return x
        if state.first:
            state.extend(self.time_conv.name, x, keep=1)
            return x
        return self.time_conv(x, state, columns)
