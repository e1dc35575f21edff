"""What a caller may ask of a run, checked before any work is done.

Every function raises InputError saying what is wrong, where, and how to correct it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields

import numpy as np
import torch
from torch import Tensor

from nkismith.pipeline.config import BLOCK_FRAMES, Config
from nkismith.pipeline.errors import InputError
from nkismith.pipeline.models import Weights
from nkismith.pipeline.schedule import window_count
from nkismith.pipeline.sharding import Layout

IMAGE_FRAMES = 1 + 4 * (BLOCK_FRAMES - 1)
"""Video frames of the first block, which a still first image fills."""


def check_config(config: Config, loaded: Config) -> None:
    different = [
        f"{field.name} is {getattr(config, field.name)!r}, the weights have {getattr(loaded, field.name)!r}"
        for field in fields(Config)
        if field.compare and getattr(config, field.name) != getattr(loaded, field.name)
    ]
    if different:
        raise InputError(f"the weights were loaded for another config: {'; '.join(different)}")


def clip_blocks(config: Config, frames: int | None, noise: Tensor | None) -> int | None:
    """New blocks of the clip; None for one without end."""
    if noise is not None:
        supplied = len(checked_latents(config, noise, "noise"))
        if frames not in (None, supplied):
            raise InputError(f"frames is {frames}, but noise was given for {supplied}; leave one of them out")
        frames = supplied
    if frames is None:
        return None
    least = BLOCK_FRAMES * len(config.steps)
    if type(frames) is not int or frames % BLOCK_FRAMES:
        raise InputError(
            f"frames is {frames!r}; latent frames come in blocks of {BLOCK_FRAMES}, so give a multiple of that"
        )
    if frames < least:
        raise InputError(
            f"frames is {frames}; a clip needs at least {least} latent frames ({4 * least - 3} video frames). "
            f"{len(config.steps)} blocks are in flight at once, each at its own noise level; with fewer blocks "
            "the levels would not match their noise"
        )
    return frames // BLOCK_FRAMES


def checked_latents(config: Config, given: Tensor, name: str) -> Tensor:
    """Latents supplied by the caller as [frames, channels, height, width]; a leading batch of one is dropped."""
    latents = torch.as_tensor(given)
    latents = latents[0] if latents.ndim == 5 and len(latents) == 1 else latents
    if latents.ndim != 4 or latents.shape[1:] != config.block_shape[1:]:
        raise InputError(f"{name} is {list(latents.shape)}; expected [frames, {str(config.block_shape[1:])[1:-1]}]")
    if len(latents) == 0 or len(latents) % BLOCK_FRAMES:
        raise InputError(f"{name} has {len(latents)} frames; it must hold whole blocks of {BLOCK_FRAMES}")
    if not latents.is_floating_point() or not torch.isfinite(latents).all():
        raise InputError(f"{name} must hold finite floating-point numbers")
    return latents


def checked_switches(
    config: Config, models: Weights, switches: Mapping[int, str | Tensor], blocks: int | None, layout: Layout
) -> dict[int, str | Tensor]:
    """Prompts by window, checked."""
    total = window_count(blocks, len(config.steps))
    for window in switches:
        if type(window) is not int or not 0 <= window < (total or math.inf):
            raise InputError(f"the prompt cannot switch at window {window!r}; this clip has {total} windows, from 0 on")
    return {window: checked_prompt(config, models, prompt, layout) for window, prompt in switches.items()}


def checked_prompt(config: Config, models: Weights, prompt: str | Tensor, layout: Layout) -> str | Tensor:
    """A prompt as it is, or embeddings filled up to [text_len, text_dim]."""
    if isinstance(prompt, str):
        if models.text is None and layout.rank == 0:
            raise InputError(
                "a prompt needs the text encoder and its tokenizer, which these weights do not hold; give prompt_embeds"
            )
        return prompt
    embeds = torch.as_tensor(prompt)
    embeds = embeds[0] if embeds.ndim == 3 and len(embeds) == 1 else embeds
    if embeds.ndim != 2 or embeds.shape[1] != config.text_dim or len(embeds) > config.text_len:
        raise InputError(
            f"prompt_embeds are {list(embeds.shape)}; expected at most [{config.text_len}, {config.text_dim}]"
        )
    if not embeds.is_floating_point() or not torch.isfinite(embeds).all():
        raise InputError("prompt_embeds must hold finite floating-point numbers")
    return torch.nn.functional.pad(embeds, (0, 0, 0, config.text_len - len(embeds)))


def still_block(config: Config, models: Weights, image: np.ndarray | Tensor) -> Tensor:
    """The first block of a video that stands still at an image."""
    if models.vae is None:
        raise InputError("a first image needs the VAE, which these weights do not hold")
    if not isinstance(image, np.ndarray | Tensor):
        raise InputError(
            f"the first image is a {type(image).__name__}; nkismith.pipeline.video.read_image reads a file"
        )
    pixels = torch.as_tensor(image)
    size = (8 * config.latent_height, 8 * config.latent_width, 3)
    if tuple(pixels.shape) != size or pixels.dtype != torch.uint8:
        raise InputError(
            f"the first image is {pixels.dtype} {list(pixels.shape)}; expected uint8 {list(size)} "
            "(rows, columns, colours): scale or crop it"
        )
    frame = (pixels.permute(2, 0, 1).float() / 127.5 - 1).unsqueeze(0)
    return models.vae.encode(frame.expand(IMAGE_FRAMES, -1, -1, -1))
