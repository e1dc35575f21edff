"""Sizes of one model: a frozen Config, and presets as tables of what differs from Wan2.1-T2V-1.3B.

Importing this module does not import torch, so that the command line can list presets at once.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from types import MappingProxyType
from typing import Any

from nkismith.pipeline.errors import InputError

BLOCK_FRAMES = 3
"""Latent frames of a block, the unit of generation, caching and output."""

SPAN_BLOCKS = 7
"""Blocks a query may attend to, its own window included (21 latent frames)."""

RING_SLOTS = SPAN_BLOCKS + 1
"""Blocks whose keys and values are kept: the first one for ever, and the last SPAN_BLOCKS."""

PATCH = 2
"""Rows and columns of a patch; one latent frame deep."""

FPS = 16
"""Frames a second of the decoded video."""

EPS = 1e-6
"""Added to variances and mean squares by every norm of the model."""

DTYPES = ("float32", "bfloat16")


@dataclass(frozen=True)
class Config:
    """Sizes and numbers of one model. The defaults are Wan2.1-T2V-1.3B at 480x832.

    Fields carry the names of the official `config.json` where it has one.

    Raises: InputError on construction, naming the field, its value and the rule.
    """

    dim: int = 1536
    num_heads: int = 12
    num_layers: int = 30
    ffn_dim: int = 8960
    freq_dim: int = 256  # width of the sinusoidal time embedding
    channels: int = 16  # of a latent; `in_dim` and `out_dim` of the official file
    text_dim: int = 4096
    text_len: int = 512  # prompt positions; those beyond the prompt hold zeros and are attended to
    latent_height: int = 60  # pixels / 8
    latent_width: int = 104
    dtype: str = "bfloat16"
    steps: tuple[int, ...] = (1000, 800, 600, 400, 200)  # one denoising step a block in flight
    shift: float = 5.0  # of the flow-matching schedule
    vae_dim: int = 96  # channels of the VAE's widest resolution
    text_layers: int = 24  # the five below size the UMT5 encoder
    text_heads: int = 64
    text_ffn_dim: int = 10240
    text_vocab: int = 256384
    name: str = field(default="custom", compare=False)

    def __post_init__(self) -> None:
        for item in fields(self):
            value = getattr(self, item.name)
            if item.type == "int" and (type(value) is not int or value < 1):
                raise InputError(f"{item.name} is {value!r}; it must be a whole number of at least 1")
            if item.type == "float" and not (type(value) in (int, float) and 0 < value < math.inf):
                raise InputError(f"{item.name} is {value!r}; it must be a positive number")
        object.__setattr__(self, "steps", tuple(self.steps))
        rules = (
            (self.dim % self.num_heads == 0, f"dim {self.dim} does not divide into num_heads {self.num_heads} heads"),
            (
                self.dim // self.num_heads >= 6 and self.dim // self.num_heads % 2 == 0,
                f"the head size dim / num_heads is {self.dim / self.num_heads:g}; 3D-RoPE needs an even one from 6 on",
            ),
            (self.freq_dim % 2 == 0, f"freq_dim is {self.freq_dim}; it holds cosines and sines, so it must be even"),
            (
                self.latent_height % PATCH == 0 and self.latent_width % PATCH == 0,
                f"latents of {self.latent_height}x{self.latent_width} do not divide into {PATCH}x{PATCH} patches; "
                f"both must be even (pixels: multiples of {8 * PATCH})",
            ),
            (self.dtype in DTYPES, f"dtype is {self.dtype!r}; it must be one of {', '.join(DTYPES)}"),
            (
                len(self.steps) > 1
                and all(type(step) is int and 0 < step <= 1000 for step in self.steps)
                and list(self.steps) == sorted(set(self.steps), reverse=True),
                f"steps are {self.steps!r}; they must fall strictly and lie between 1 and 1000",
            ),
            (
                len(self.steps) < SPAN_BLOCKS,
                f"{len(self.steps)} steps put as many blocks in flight, but the span is {SPAN_BLOCKS} with the first",
            ),
        )
        for holds, message in rules:
            if not holds:
                raise InputError(message)

    @property
    def head_dim(self) -> int:
        return self.dim // self.num_heads

    @property
    def rows(self) -> int:
        """Rows of tokens in a latent frame."""
        return self.latent_height // PATCH

    @property
    def cols(self) -> int:
        """Columns of tokens in a latent frame."""
        return self.latent_width // PATCH

    @property
    def frame_tokens(self) -> int:
        return self.rows * self.cols

    @property
    def block_tokens(self) -> int:
        return BLOCK_FRAMES * self.frame_tokens

    @property
    def block_shape(self) -> tuple[int, int, int, int]:
        """Shape of one block of latents: frames, channels, height, width."""
        return (BLOCK_FRAMES, self.channels, self.latent_height, self.latent_width)

    @classmethod
    def preset(cls, name: str, **changes: Any) -> Config:
        """A named size, with the given fields changed.

        Raises: InputError for an unknown preset, naming the nearest, or an unknown field.
        """
        if name not in PRESETS:
            raise InputError(f"no preset named {name!r}{_nearest(name, PRESETS)}. Known: {', '.join(PRESETS)}")
        return cls.from_dict({"name": name, **PRESETS[name], **changes})

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Config:
        """Read a config from plain data: field names, or the official `config.json` as it is.

        A `preset` key names the preset that the other keys change. Keys of the official file that
        carry no choice here (patch size, norms) must hold the values of Wan2.1.

        Raises: InputError for an unknown key, naming the nearest, or a value that is not supported.
        """
        values = dict(values)
        if "preset" in values:
            name = values.pop("preset")
            return cls.preset(name, **values)
        known = {item.name for item in fields(cls)}
        chosen: dict[str, Any] = {}
        for key, value in values.items():
            if key in OFFICIAL_CONSTANTS:
                allowed = OFFICIAL_CONSTANTS[key]
                if (tuple(value) if isinstance(value, list) else value) not in allowed:
                    raise InputError(f"{key} is {value!r}; only {' or '.join(map(repr, allowed))} is supported")
                continue
            field = OFFICIAL_NAMES.get(key, key)
            if key.startswith("_"):
                continue  # bookkeeping of the library that wrote the file
            if field not in known:
                raise InputError(
                    f"no config field named {key!r}{_nearest(key, known)}. Known: {', '.join(sorted(known))}"
                )
            if chosen.setdefault(field, value) != value:
                raise InputError(f"{key} is {value!r}, but {field} was already given as {chosen[field]!r}")
        return cls(**chosen)

    def changed(self, **changes: Any) -> Config:
        """The same config with some fields changed, validated again."""
        return replace(self, **changes)


OFFICIAL_NAMES: Mapping[str, str] = MappingProxyType({"in_dim": "channels", "out_dim": "channels"})

OFFICIAL_CONSTANTS: Mapping[str, tuple[Any, ...]] = MappingProxyType(
    {
        "_class_name": ("WanModel", "CausalWanModel"),
        "model_type": ("t2v",),
        "eps": (EPS,),
        "patch_size": ((1, PATCH, PATCH),),
        "qk_norm": (True,),
        "cross_attn_norm": (True,),
        "window_size": ((-1, -1),),
    }
)

_SMALL_TEXT = {"text_layers": 1, "text_heads": 2, "text_ffn_dim": 64, "text_vocab": 384}

PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        # Tests, and the simulator: a second or two on PyTorch, under a minute with simulated kernels.
        "tiny": {
            "dim": 48,
            "num_heads": 3,
            "num_layers": 2,
            "ffn_dim": 96,
            "freq_dim": 32,
            "text_dim": 32,
            "text_len": 16,
            "latent_height": 6,
            "latent_width": 10,
            "dtype": "float32",
            "vae_dim": 8,
            **_SMALL_TEXT,
        },
        # Twelve heads and 32 tokens a frame: divides over 2, 4 and 8 ranks as wan-1.3b does.
        "tiny8": {
            "dim": 192,
            "num_heads": 12,
            "num_layers": 2,
            "ffn_dim": 384,
            "freq_dim": 32,
            "text_dim": 32,
            "text_len": 16,
            "latent_height": 8,
            "latent_width": 16,
            "dtype": "float32",
            "vae_dim": 8,
            **_SMALL_TEXT,
        },
        # Large enough for timing on a CPU, with the head size of wan-1.3b.
        "small": {
            "dim": 768,
            "num_heads": 6,
            "num_layers": 12,
            "ffn_dim": 4480,
            "latent_height": 16,
            "latent_width": 26,
            "vae_dim": 32,
            "text_layers": 1,
            "text_ffn_dim": 1024,
            "text_vocab": 384,
        },
        "wan-1.3b": {},
    }
)


def preset(name: str, **changes: Any) -> Config:
    """A named size, with the given fields changed; see `Config.preset`."""
    return Config.preset(name, **changes)


def _nearest(word: str, known: Any) -> str:
    near = difflib.get_close_matches(word, list(known), n=2)
    return f" (did you mean {' or '.join(near)}?)" if near else ""
