"""What a run reports while it goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class WindowStarted:
    """A denoising call begins."""

    window: int
    blocks: range  # absolute numbers of the blocks in flight
    phase: str  # fill, steady or drain
    total: int | None  # windows of the whole clip; None without end


@dataclass(frozen=True)
class BlockReady:
    """A block of latents is final."""

    block: int  # absolute number; a continued clip starts after its given blocks
    latents: Tensor  # [3, channels, height, width] in the config's dtype


@dataclass(frozen=True)
class FramesReady:
    """The next frames of the video are decoded."""

    first: int  # number of the first of these frames in the video
    pixels: Tensor  # [frames, 3, rows, columns] in -1..1; `to_uint8` makes images of them


@dataclass(frozen=True)
class StageTimed:
    """One stage of one window took so long."""

    stage: str  # prompt, switch, dit or vae
    window: int
    seconds: float


@dataclass(frozen=True)
class Done:
    """The run is over."""

    blocks: int  # that became final in this run
    frames: int  # video frames decoded; 0 without a VAE
    seconds: float  # from the start, with what the consumer did between events
    first_block_seconds: float | None  # from the start until the first generated block was final
    first_frames_seconds: float | None  # from the start until it was decoded
    cancelled: bool
    cache_bytes: int  # of keys and values that this rank wrote to its ring, over all layers
    backends: Mapping[str, str]  # where each op ran
    fallbacks: Mapping[str, str]  # ops that ran on PyTorch although another backend was wanted, and why

    @property
    def fps(self) -> float:
        """Video frames a second of run time."""
        return self.frames / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Failed:
    """The run cannot go on; the iterator raises `error` next."""

    window: int | None
    error: Exception


Event = WindowStarted | BlockReady | FramesReady | StageTimed | Done | Failed
