"""When each block is denoised, to which level, and which blocks each pass attends to.

Pure functions of block numbers. A block enters as noise, moves one level down in each window, and is
final after as many windows as there are levels; then one update pass at timestep 0 writes its clean
keys and values, which later blocks read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import torch

from nkismith.pipeline.config import SPAN_BLOCKS, Config

TRAINING_STEPS = 1000


@dataclass(frozen=True)
class Levels:
    """Timestep and noise share of each denoising step, noisiest first; float32 values."""

    timesteps: tuple[float, ...]
    sigmas: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.timesteps)


def noise_levels(config: Config) -> Levels:
    """The steps of a config on the shifted flow-matching schedule, x_t = (1 - sigma) x0 + sigma noise.

    The training schedule has sigma_i = shift*u / (1 + (shift - 1)*u) for u = 1 - i/1000; step k stands for
    its timestep 1000*sigma at i = 1000 - k.
    """
    u = torch.linspace(1, 0, TRAINING_STEPS + 1, dtype=torch.float32)[:-1]
    sigmas = config.shift * u / (1 + (config.shift - 1) * u)
    chosen = [TRAINING_STEPS - step for step in config.steps]
    return Levels(tuple((sigmas * TRAINING_STEPS)[chosen].tolist()), tuple(sigmas[chosen].tolist()))


@dataclass(frozen=True)
class Window:
    """One denoising call: consecutive blocks, each one level further than the one after it."""

    index: int
    first: int  # absolute number of the oldest block in flight
    levels: tuple[int, ...]  # of blocks first, first + 1, ...: the windows each has been through
    phase: str  # fill, steady or drain

    @property
    def blocks(self) -> range:
        return range(self.first, self.first + len(self.levels))

    @property
    def admitted(self) -> int | None:
        """The block that enters as pure noise, if any."""
        return self.blocks[-1] if self.levels[-1] == 0 else None


def window_count(blocks: int | None, levels: int) -> int | None:
    """How many windows a clip of `blocks` new blocks takes; None for one without end."""
    return None if blocks is None else blocks + levels - 1


def windows(blocks: int | None, levels: int, given: int = 0) -> Iterator[Window]:
    """The windows of a clip of `blocks` new blocks after `given` finished ones; None never ends.

    The oldest block of window w is final after it when w >= levels - 1.
    """
    for index in count():
        first = max(0, index - levels + 1)
        last = index if blocks is None else min(index, blocks - 1)
        if first > last:
            return
        phase = "fill" if index < levels - 1 else "steady" if last == index else "drain"
        yield Window(index, given + first, tuple(index - block for block in range(first, last + 1)), phase)


@dataclass(frozen=True)
class Pass:
    """Blocks that go through the model together and the finished blocks they attend to besides themselves.

    The keys of `past`, oldest first, and then the own keys take consecutive positions.
    """

    first: int
    blocks: int
    past: tuple[int, ...]
    writes: bool  # an update pass: keeps its keys and values for later passes


def denoise_pass(window: Window) -> Pass:
    """The blocks in flight attend to block 0 and to as many of the latest as the span leaves room for.

    Block 0, the sink, is always among them, as if it came just before the others.
    """
    first, blocks = window.first, len(window.levels)
    room = SPAN_BLOCKS - blocks - 1
    past = () if first == 0 else (0, *range(max(1, first - room), first))
    return Pass(first, blocks, past, writes=False)


def update_pass(block: int, oldest: int = 0) -> Pass:
    """A finished block attends to the latest blocks at their true distance, none older than `oldest`.

    The first block is one of them only while it lies within the span: unlike in denoising passes it is
    not kept artificially near.
    """
    past = tuple(range(max(oldest, block - SPAN_BLOCKS + 1), block))
    return Pass(block, 1, past, writes=True)


def update_matters(window: Window, levels: int, blocks: int | None, given: int = 0) -> bool:
    """Whether any later pass reads what the update pass of this window's oldest block writes.

    In the fill phase it would be overwritten by the update of the same block when that is final, before
    anything reads it; after the last block nothing follows.
    """
    final = window.levels[0] == levels - 1
    return final and (blocks is None or window.first < given + blocks - 1)
