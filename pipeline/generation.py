"""Text, or embeddings, to video: the public front of the pipeline.

    for event in generate(config, weights, prompt="a harbour at dawn", frames=42, seed=0):
        if isinstance(event, FramesReady):
            show(to_uint8(event.pixels))

Nothing is kept of what has been yielded, so a clip may be of any length.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from nkismith.pipeline.config import BLOCK_FRAMES, Config
from nkismith.pipeline.dit import Dit
from nkismith.pipeline.errors import InputError
from nkismith.pipeline.events import BlockReady, Done, Event, Failed, FramesReady, StageTimed, WindowStarted
from nkismith.pipeline.inputs import (
    check_config,
    checked_latents,
    checked_prompt,
    checked_switches,
    clip_blocks,
    still_block,
)
from nkismith.pipeline.models import Weights
from nkismith.pipeline.noise import Noise, Renoise
from nkismith.pipeline.ops import Ops
from nkismith.pipeline.rolling import Rolling
from nkismith.pipeline.schedule import window_count
from nkismith.pipeline.sharding import Layout
from nkismith.pipeline.vae import Vae
from nkismith.pipeline.vae_sharding import ShardedVae


def generate(
    config: Config,
    weights: Weights | Dit | Mapping[str, Tensor] | str | Path,
    *,
    prompt: str | None = None,
    prompt_embeds: Tensor | None = None,
    frames: int | None = None,
    seed: int | None = 0,
    noise: Tensor | None = None,
    renoise: Renoise | None = None,
    backend: str | Mapping[str, str] = "torch",
    kernel_root: Path | None = None,
    allow_fallback: bool = False,
    switches: Mapping[int, str | Tensor] | None = None,
    given: Tensor | None = None,
    first_image: np.ndarray | Tensor | None = None,
    decode: bool = True,
    layout: Layout | None = None,
) -> Generation:
    """Generate a clip with Rolling Forcing.

    Args:
        config: the sizes, which must be those the weights were loaded for.
        weights: the models (`Weights`), a `Dit`, its tensors by official name, its file, or a folder of
            published files. Without a VAE the run yields latents only.
        prompt, prompt_embeds: one of them; embeddings are [text_len, text_dim], shorter ones are filled with zeros.
        frames: latent frames to generate, a multiple of 3 from 15 on; the video has 4 times as many, less 3 at its
            start. None goes on until cancelled, or as far as `noise` reaches.
        seed: of all random numbers that are not supplied, None for 0; see noise.py for their order.
        noise: [frames, channels, height, width], the initial noise.
        renoise: called as renoise(window, block, step, shape) for each block that goes on to a denoising step,
            windows and blocks ascending; gives noise of `shape`, [3, channels, height, width].
        backend: `torch` or `sim`, or a mapping from op to one of them (see `Ops`).
        kernel_root: where accepted kernels are kept, if not beside the bundled ops.
        allow_fallback: run ops that have no accepted kernel on PyTorch; `Done.fallbacks` names them.
        switches: prompts, or embeddings, by the window from which on they hold.
        given: finished latents [3*n, channels, height, width] that the clip continues. They count as its first
            blocks: numbering starts after them, and they are decoded at the head of the video.
        first_image: uint8 [rows, columns, 3], in place of `given`: a still of it is the first block.
        decode: False stops at latents although there is a VAE.
        layout: how the run is spread over ranks; by default it is not.

    Returns: an iterator of events that can be cancelled and given another prompt.
    Raises: InputError, WeightsError or KernelMissing at once; what goes wrong later is yielded as `Failed` and
        then raised.
    """
    layout = layout or Layout()
    models = Weights.of(weights, config)
    check_config(config, models.dit.config)
    blocks = clip_blocks(config, frames, noise)
    noise = None if noise is None else checked_latents(config, noise, "noise")
    wanted = prompt_embeds if prompt is None else prompt
    if wanted is None or (prompt is not None and prompt_embeds is not None):
        raise InputError("give either prompt or prompt_embeds, and not both")
    if given is not None and first_image is not None:
        raise InputError("give either given latents or a first image, and not both")
    if first_image is not None:
        given = still_block(config, models, first_image)
    seed = 0 if seed is None else seed
    if type(seed) is not int or not 0 <= seed < 2**63:
        raise InputError(f"seed is {seed!r}; it must be a whole number from 0 to 2^63 - 1")
    return Generation(
        config,
        models if decode else Weights(models.dit, None, models.text),
        prompt=checked_prompt(config, models, wanted, layout),
        noise=Noise(config, blocks, seed, noise, renoise),
        blocks=blocks,
        ops=Ops(backend, dtype=config.dtype, kernel_root=kernel_root, allow_fallback=allow_fallback),
        switches=checked_switches(config, models, switches or {}, blocks, layout),
        given=None if given is None else checked_latents(config, given, "given"),
        layout=layout,
    )


class Generation(Iterator[Event]):
    """A running clip: an iterator of its events. Made by `generate`."""

    def __init__(
        self,
        config: Config,
        models: Weights,
        *,
        prompt: str | Tensor,
        noise: Noise,
        blocks: int | None,
        ops: Ops,
        switches: Mapping[int, str | Tensor],
        given: Tensor | None,
        layout: Layout,
    ) -> None:
        self._config, self._models, self._noise, self._ops, self._layout = config, models, noise, ops, layout
        self._prompt, self._switches, self._given, self._blocks = prompt, switches, given, blocks
        self._cancelled = threading.Event()
        self._asked: deque[str | Tensor] = deque(maxlen=1)  # the last prompt asked for, not yet in use
        self._events = self._report_failure(self._run())

    def __next__(self) -> Event:
        return next(self._events)

    def cancel(self) -> None:
        """Stop at the next window boundary, with `Done`. From any thread; of several ranks, on the first."""
        self._cancelled.set()

    def switch_prompt(self, prompt: str | Tensor) -> None:
        """Change the prompt, or embeddings, at the next window boundary. From where `cancel` may be.

        Raises: InputError as `generate` does.
        """
        self._asked.append(checked_prompt(self._config, self._models, prompt, self._layout))

    def _report_failure(self, events: Iterator[Event]) -> Iterator[Event]:
        window = None
        try:
            for event in events:
                if isinstance(event, WindowStarted):
                    window = event.window
                yield event
        except Exception as error:
            yield Failed(window, error)
            raise

    def _run(self) -> Iterator[Event]:
        layout, ops = self._layout, self._ops
        begin = time.perf_counter()
        rolling = Rolling(
            self._models.dit,
            self._embed(self._prompt),
            blocks=self._blocks,
            noise=self._noise,
            ops=ops,
            layout=layout,
        )
        yield StageTimed("prompt", 0, time.perf_counter() - begin)
        video = _Video(self._decoder())
        if self._given is not None:
            rolling.continue_from(self._given)
            for block in self._given.split(BLOCK_FRAMES):
                yield from video.decode(block, 0)
        blocks, first_block, first_frames, cancelled = 0, None, None, False
        total = window_count(self._blocks, len(self._config.steps))
        for window in rolling.windows():
            cancelled, prompt = self._commands(window.index)
            if cancelled:
                break
            if prompt is not None:
                start = time.perf_counter()
                rolling.switch_prompt(self._embed(prompt))
                yield StageTimed("switch", window.index, time.perf_counter() - start)
            yield WindowStarted(window.index, window.blocks, window.phase, total)
            start = time.perf_counter()
            final = rolling.step(window)
            yield StageTimed("dit", window.index, time.perf_counter() - start)
            if final is not None:
                blocks += 1
                first_block = first_block or time.perf_counter() - begin
                yield BlockReady(window.first, final)
                for event in video.decode(final, window.index):
                    first_frames = first_frames or time.perf_counter() - begin
                    yield event
        seconds = time.perf_counter() - begin
        yield Done(
            blocks=blocks,
            frames=video.frames,
            seconds=seconds,
            first_block_seconds=first_block,
            first_frames_seconds=first_frames,
            cancelled=cancelled,
            cache_bytes=rolling.ring.bytes_written,
            backends=ops.backends,
            fallbacks=ops.fallbacks,
        )

    def _commands(self, window: int) -> tuple[bool, str | Tensor | None]:
        """Whether to stop before this window, and the prompt it changes to: those of the first rank, for all."""
        changed = self._asked.pop() if self._asked else self._switches.get(window)
        cancelled, switches = self._layout.agree([self._cancelled.is_set(), changed is not None])
        if not switches:
            return cancelled, None
        return cancelled, "" if changed is None else changed

    def _decoder(self) -> Vae | ShardedVae | None:
        vae = self._models.vae
        return ShardedVae(vae) if vae and self._layout.ranks > 1 else vae

    def _embed(self, prompt: str | Tensor) -> Tensor:
        """Embeddings [text_len, text_dim], made by the first rank for all."""
        config = self._config
        dtype = getattr(torch, config.dtype)
        if self._layout.rank != 0:
            embeds = torch.empty(config.text_len, config.text_dim, dtype=dtype)
        elif isinstance(prompt, str):
            assert self._models.text is not None  # checked when the prompt was given
            embeds = self._models.text(prompt).to(dtype)
        else:
            embeds = prompt.to(dtype)
        return self._layout.broadcast(embeds)


class _Video:
    """The decoded stream of one clip; without a decoder, no frames."""

    def __init__(self, vae: Vae | ShardedVae | None) -> None:
        self._vae = vae
        self._state = vae.new_state() if vae else None
        self.frames = 0

    def decode(self, latents: Tensor, window: int) -> Iterator[FramesReady | StageTimed]:
        if self._vae is None:
            return
        start = time.perf_counter()
        pixels = self._vae.decode(latents, self._state)
        yield StageTimed("vae", window, time.perf_counter() - start)
        yield FramesReady(self.frames, pixels)
        self.frames += len(pixels)
