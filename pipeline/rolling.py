"""The rolling algorithm: five blocks in flight, each one denoising step ahead of the next.

A window denoises all of them together by one step, finishes the oldest, re-noises the others to the next
level and admits one block of noise. What the finished block leaves for later blocks, its clean keys and
values, is written by an update pass that shares the next window's call; a finished clip needs none.
State is bounded: the blocks in flight, eight cached blocks, and their latents for a change of prompt.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from nkismith.pipeline.config import BLOCK_FRAMES
from nkismith.pipeline.dit import Dit, PromptKeys
from nkismith.pipeline.noise import Noise
from nkismith.pipeline.ops import Ops
from nkismith.pipeline.ring import Ring
from nkismith.pipeline.schedule import (
    Pass,
    Window,
    denoise_pass,
    noise_levels,
    update_matters,
    update_pass,
    windows,
)
from nkismith.pipeline.sharding import Layout


class Rolling:
    """The denoising of one clip: `step` through `windows`, in order."""

    def __init__(self, dit: Dit, prompt: Tensor, *, blocks: int | None, noise: Noise, ops: Ops, layout: Layout) -> None:
        """Args: prompt [text_len, text_dim]; blocks to generate, None for a clip without end."""
        self._dit, self._noise, self._ops, self._layout = dit, noise, ops, layout
        self._blocks = blocks
        self._given = 0
        self._levels = noise_levels(dit.config)
        self._clean_row = len(self._levels)  # the row of timestep 0 in the time table
        self._time = dit.time_table((*self._levels.timesteps, 0.0))
        self._prompt: PromptKeys = dit.prompt_keys(prompt, ops)
        self.ring = Ring(dit.config, dit.config.num_heads // layout.head_ranks)
        self._in_flight: dict[int, Tensor] = {}
        self._clean: dict[int, Tensor] = {}  # latents of the blocks in the ring
        self._unwritten: tuple[int, Tensor] | None = None  # finished, its update pass still to come

    def windows(self) -> Iterator[Window]:
        return windows(self._blocks, len(self._levels), self._given)

    def continue_from(self, latents: Tensor) -> None:
        """Before the first window: begin after finished blocks, [3*n, channels, height, width]."""
        for block, clean in enumerate(latents.split(BLOCK_FRAMES)):
            self._write(update_pass(block), clean)
            self._keep(block, clean)
            self._given += 1

    def switch_prompt(self, prompt: Tensor) -> None:
        """Use another prompt, [text_len, text_dim], from the next window on.

        What finished blocks left in the ring was made under the former prompt, and is made again, oldest
        block first. Blocks whose own past has left the ring attend to what is left of it. The blocks in
        flight change prompt midway, so the switch is complete after five windows.
        """
        self._prompt = self._dit.prompt_keys(prompt, self._ops)
        held = self.ring.held
        # As long as nothing has been evicted, block 0 is an ordinary part of the past.
        oldest = held[1] if len(held) > 1 and held[1] > 1 else 0
        for block in held:
            self._write(update_pass(block, oldest), self._clean[block])

    def step(self, window: Window) -> Tensor | None:
        """Denoise the blocks of a window by one level; the latents of the oldest if it is final with that."""
        if window.admitted is not None:
            self._in_flight[window.admitted] = self._noise.admit(window)
        noisy = torch.cat([self._in_flight[block] for block in window.blocks])
        x0 = self._without_noise(window, noisy, self._flow(window, noisy))
        for block, level in zip(window.blocks, window.levels, strict=True):
            if level + 1 < len(self._levels):
                self._in_flight[block] = self._renoise(window, block, level + 1, x0[block])
        if window.levels[0] + 1 < len(self._levels):
            return None
        del self._in_flight[window.first]
        # Copies: a view would keep the latents of the whole window alive, and what is returned is the caller's.
        if update_matters(window, len(self._levels), self._blocks, self._given):
            self._unwritten = (window.first, x0[window.first].clone())
        return x0[window.first].clone()

    def _flow(self, window: Window, noisy: Tensor) -> Tensor:
        """The model's flow for a window, in one call with the update pass that is due."""
        rows = [level for level in window.levels for _ in range(BLOCK_FRAMES)]
        if self._unwritten is None:
            return self._forward(noisy, rows, [denoise_pass(window)])
        block, clean = self._unwritten
        self._unwritten = None
        flow = self._forward(
            torch.cat((clean, noisy)),
            [self._clean_row] * BLOCK_FRAMES + rows,
            [update_pass(block), denoise_pass(window)],
        )
        self._keep(block, clean)
        return flow[BLOCK_FRAMES:]

    def _without_noise(self, window: Window, noisy: Tensor, flow: Tensor) -> dict[int, Tensor]:
        """x0 = x - sigma * flow by block; in float64, rounded to the dtype of the latents."""
        sigmas = torch.tensor([self._levels.sigmas[level] for level in window.levels], dtype=torch.float64)
        x0 = noisy.double() - sigmas.repeat_interleave(BLOCK_FRAMES).view(-1, 1, 1, 1) * flow.double()
        return dict(zip(window.blocks, x0.to(noisy.dtype).split(BLOCK_FRAMES), strict=True))

    def _renoise(self, window: Window, block: int, step: int, x0: Tensor) -> Tensor:
        """(1 - sigma) x0 + sigma noise; in float32, rounded to the dtype of the noise."""
        sigma = self._levels.sigmas[step]
        noise = self._noise.renoise(window, block, step)
        return ((1 - sigma) * x0.float() + sigma * noise.float()).to(noise.dtype)

    def _write(self, update: Pass, clean: Tensor) -> None:
        """Run an update pass by itself, for what it leaves in the ring."""
        self._forward(clean, [self._clean_row] * BLOCK_FRAMES, [update])

    def _keep(self, block: int, clean: Tensor) -> None:
        self._clean[block] = clean
        self._clean = {held: self._clean[held] for held in self.ring.held}

    def _forward(self, x: Tensor, rows: list[int], passes: list[Pass]) -> Tensor:
        return self._dit(
            x,
            rows,
            passes,
            time=self._time,
            prompt=self._prompt,
            ring=self.ring,
            ops=self._ops,
            layout=self._layout,
        )
