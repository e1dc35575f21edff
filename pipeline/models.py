"""The three models of a run, from a folder of published files or from a seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from nkismith.pipeline.config import Config
from nkismith.pipeline.dit import Dit, load_dit
from nkismith.pipeline.errors import WeightsError
from nkismith.pipeline.text import TextEncoder, load_text_encoder
from nkismith.pipeline.vae import Vae, load_vae
from nkismith.pipeline.weights import PUBLISHED_FILES, find_files


@dataclass(frozen=True)
class Weights:
    """The models of a run. Without a VAE it ends at latents, without a text encoder it needs embeddings."""

    dit: Dit
    vae: Vae | None = None
    text: Callable[[str], Tensor] | None = None  # a prompt to embeddings [text_len, text_dim]

    @classmethod
    def random(cls, config: Config, seed: int = 0) -> Weights:
        """Seeded random models. The text encoder is made when a prompt asks for it: it imports transformers."""
        return cls(
            Dit.random(config, seed),
            Vae.random(config, seed),
            lambda prompt: TextEncoder.random(config, seed)(prompt),
        )

    @classmethod
    def load(cls, folder: str | Path, config: Config, *, text: bool = True) -> Weights:
        """Read what a folder holds of the published files (see `weights.PUBLISHED_FILES`).

        The distilled checkpoint is preferred to the base model of the same shape. Without `text` the text
        encoder, by far the largest, is left out.

        Raises: WeightsError, once, with all that is wrong with any of the files; or if there is no DiT.
        """
        files = find_files(folder)
        dit_path = files["checkpoint"] or files["dit"]
        if dit_path is None:
            names = ", ".join((*PUBLISHED_FILES["checkpoint"], *PUBLISHED_FILES["dit"]))
            raise WeightsError(f"{folder} holds no weights of the diffusion model; expected one of {names}")
        loaders: dict[str, Callable[[], Any]] = {"dit": partial(load_dit, dit_path, config)}
        if files["vae"]:
            loaders["vae"] = partial(load_vae, files["vae"], config)
        if text and files["text_encoder"] and files["tokenizer"]:
            loaders["text"] = partial(load_text_encoder, files["text_encoder"], files["tokenizer"], config)
        loaded, problems = {}, []
        for part, load in loaders.items():
            try:
                loaded[part] = load()
            except WeightsError as error:
                problems.append(str(error))
        if problems:
            raise WeightsError("\n".join(problems))
        return cls(**loaded)

    @classmethod
    def of(cls, weights: Weights | Dit | Mapping[str, Tensor] | str | Path, config: Config) -> Weights:
        """Whatever names the weights of a run: models, a DiT or its tensors, a folder, or a DiT's file."""
        if isinstance(weights, Weights):
            return weights
        if isinstance(weights, Dit):
            return cls(weights)
        if isinstance(weights, Mapping) or not Path(weights).is_dir():
            return cls(load_dit(weights, config))
        return cls.load(weights, config)
