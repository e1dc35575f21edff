"""Where the random numbers of a run come from, a block at a time.

A seed gives the numbers that the original draws from it on a CPU in the dtype of the config: first the
noise of the whole clip, [frames, channels, height, width], then for each window and each of its blocks
that goes on, oldest first, a draw of the size of the whole window of which only that block's frames
are used. Drawn here block by block, they take constant memory. A clip without end has no end of its
initial noise after which re-noising could be drawn, so there that comes from a second sequence, seeded
with seed + 1. Where the caller supplies the initial noise, re-noising is drawn from the seed at once.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nkismith.pipeline.config import BLOCK_FRAMES, Config
from nkismith.pipeline.errors import InputError
from nkismith.pipeline.schedule import Window

Renoise = Callable[[int, int, int, tuple[int, int, int, int]], Tensor]
"""(window, block, step, shape) -> noise: `block` is the absolute number of the block, `step` the index of the
denoising step it is brought back to, 1 to 4, `shape` [3 frames, channels, height, width]. Noise of the whole window,
as the original draws it, will do: the block's own frames of it are used."""


class Noise:
    """The random numbers of one run, to be asked for in order: windows ascending, and in each the block it
    admits, then the re-noising of its blocks ascending."""

    def __init__(
        self,
        config: Config,
        blocks: int | None,
        seed: int,
        noise: Tensor | None = None,
        renoise: Renoise | None = None,
    ) -> None:
        """Args:
        blocks: new blocks of the clip; None for one without end.
        noise: [3*blocks, channels, height, width], in place of the seed's initial noise.
        renoise: in place of the seed's re-noising.
        """
        self._shape = config.block_shape
        self._dtype = getattr(torch, config.dtype)
        self._noise, self._renoise = noise, renoise
        self._initial = torch.Generator().manual_seed(seed)
        self._later = torch.Generator().manual_seed(seed if blocks is not None else seed + 1)
        if blocks is not None and noise is None and renoise is None:
            for _ in range(blocks):
                self._draw(self._later)

    def admit(self, window: Window) -> Tensor:
        """The block of pure noise that enters with this window."""
        if self._noise is None:
            return self._draw(self._initial)
        begin = window.index * BLOCK_FRAMES
        return self._noise[begin : begin + BLOCK_FRAMES].to(self._dtype)

    def renoise(self, window: Window, block: int, step: int) -> Tensor:
        """The noise that brings a block of this window back to a denoising step.

        Raises: InputError if the caller's function gives another shape.
        """
        begin = (block - window.first) * BLOCK_FRAMES
        frames = BLOCK_FRAMES * len(window.levels)
        if self._renoise is None:
            return self._draw(self._later, len(window.levels))[begin : begin + BLOCK_FRAMES]
        given = torch.as_tensor(self._renoise(window.index, block, step, self._shape))
        given = given[0] if given.ndim == 5 and len(given) == 1 else given
        if tuple(given.shape) == (frames, *self._shape[1:]):
            given = given[begin : begin + BLOCK_FRAMES]
        if tuple(given.shape) != self._shape:
            raise InputError(
                f"renoise(window={window.index}, block={block}, step={step}) gave {list(given.shape)}; "
                f"expected {list(self._shape)}, or {frames} frames: those of the window"
            )
        return given.to(self._dtype)

    def _draw(self, generator: torch.Generator, blocks: int = 1) -> Tensor:
        frames, *rest = self._shape
        return torch.randn(blocks * frames, *rest, generator=generator, dtype=self._dtype)
