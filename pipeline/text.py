"""Prompts to embeddings: the UMT5 encoder of Wan2.1, run by transformers.

The original's 242 tensors are renamed to transformers' layout, and that layout is read as well. Only
the prompt's own tokens are encoded: padding to 512 and masking it, as the original does, gives the
same rows, since a masked key has weight 0 exactly. Rows beyond the prompt are zeros, and they matter:
the diffusion model attends to all of them.
"""

from __future__ import annotations

import html
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nkismith.pipeline.config import Config
from nkismith.pipeline.errors import InputError, WeightsError
from nkismith.pipeline.weights import check_names, official_names, read_state_dict

BUCKETS = 32
"""Distances the relative position bias tells apart, in both directions together."""

FARTHEST = 128
"""Tokens apart from which on all distances share the last bucket."""

INSTALL = "pip install 'ftfy>=6.2' 'transformers>=5'"

Tokenizer = Callable[..., Mapping[str, Any]]
"""A tokenizer of transformers: a text and options to, among others, `input_ids`."""


@dataclass(frozen=True)
class TextSizes:
    """Sizes of a UMT5 encoder. The defaults are UMT5-XXL, the one Wan2.1 uses."""

    vocab: int = 256384
    dim: int = 4096
    layers: int = 24
    heads: int = 64
    ffn: int = 10240
    head_dim: int = 64

    @classmethod
    def of(cls, config: Config) -> TextSizes:
        """Raises: InputError if the width does not divide into the heads; runs without text encoder need not care."""
        if config.text_dim % config.text_heads:
            raise InputError(f"text_dim {config.text_dim} does not divide into text_heads {config.text_heads} heads")
        return cls(
            vocab=config.text_vocab,
            dim=config.text_dim,
            layers=config.text_layers,
            heads=config.text_heads,
            ffn=config.text_ffn_dim,
            head_dim=config.text_dim // config.text_heads,
        )

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shape of every tensor, by the original's name: 242 for UMT5-XXL."""
        inner = self.heads * self.head_dim
        shapes: dict[str, tuple[int, ...]] = {"token_embedding.weight": (self.vocab, self.dim)}
        for layer in range(self.layers):
            block = f"blocks.{layer}."
            shapes |= {
                block + "norm1.weight": (self.dim,),
                block + "attn.q.weight": (inner, self.dim),
                block + "attn.k.weight": (inner, self.dim),
                block + "attn.v.weight": (inner, self.dim),
                block + "attn.o.weight": (self.dim, inner),
                block + "norm2.weight": (self.dim,),
                block + "ffn.gate.0.weight": (self.ffn, self.dim),
                block + "ffn.fc1.weight": (self.ffn, self.dim),
                block + "ffn.fc2.weight": (self.dim, self.ffn),
                block + "pos_embedding.embedding.weight": (BUCKETS, self.heads),
            }
        return shapes | {"norm.weight": (self.dim,)}


_HUGGING_FACE_LAYERS = {
    "norm1": "layer.0.layer_norm",
    "attn": "layer.0.SelfAttention",
    "pos_embedding.embedding": "layer.0.SelfAttention.relative_attention_bias",
    "norm2": "layer.1.layer_norm",
    "ffn.gate.0": "layer.1.DenseReluDense.wi_0",
    "ffn.fc1": "layer.1.DenseReluDense.wi_1",
    "ffn.fc2": "layer.1.DenseReluDense.wo",
}


def hugging_face_name(name: str) -> str:
    """The name a tensor of the original has in transformers' UMT5EncoderModel."""
    if name == "token_embedding.weight":
        return "shared.weight"
    if name == "norm.weight":
        return "encoder.final_layer_norm.weight"
    name = "encoder." + name.replace("blocks.", "block.", 1)
    for official, other in _HUGGING_FACE_LAYERS.items():
        name = name.replace(f".{official}.", f".{other}.")
    return name


class TextEncoder:
    """`encoder(prompt)` -> embeddings [text_len, dim], zero beyond the prompt's tokens.

    Make one with `load_text_encoder`, or with `TextEncoder.random` where the words do not matter.
    """

    def __init__(self, model: Any, tokenizer: Tokenizer, *, text_len: int = 512):
        self.model = model
        self.tokenizer = tokenizer
        self.text_len = text_len
        self._embedding: Tensor = model.get_input_embeddings().weight

    @classmethod
    def random(cls, config: Config, seed: int = 0) -> TextEncoder:
        """A reproducible random encoder of the config's sizes and dtype that reads bytes as tokens."""
        transformers = _transformers()
        draw = torch.Generator().manual_seed(seed)
        sizes = TextSizes.of(config)
        weights = {}
        for name, shape in sizes.shapes().items():
            values = torch.randn(shape, generator=draw)
            if len(shape) == 1:
                values = 1 + 0.1 * values
            elif not name.startswith("token_embedding"):
                values = values / math.sqrt(shape[-1])
            weights[name] = values
        return load_text_encoder(weights, transformers.ByT5Tokenizer(), config)

    @torch.no_grad()
    def __call__(self, prompt: str) -> Tensor:
        """Embed one prompt, of any language or empty; what exceeds text_len tokens is cut off.

        Raises: InputError if the prompt is no text, or the tokenizer is of another vocabulary.
        """
        if not isinstance(prompt, str):
            raise InputError(f"the prompt is {type(prompt).__name__}; expected a text, which may be empty")
        encoded = self.tokenizer(clean(prompt), truncation=True, max_length=self.text_len, add_special_tokens=True)
        ids = torch.tensor(encoded["input_ids"], dtype=torch.long, device=self._embedding.device)
        embeddings = self._embedding.new_zeros(self.text_len, self._embedding.shape[1])
        if len(ids) == 0:
            return embeddings
        if ids.max() >= len(self._embedding):
            raise InputError(
                f"the tokenizer gave token {int(ids.max())}, but the text encoder knows {len(self._embedding)}; "
                "use the tokenizer that belongs to it (google/umt5-xxl for Wan2.1)"
            )
        embeddings[: len(ids)] = self.model(input_ids=ids[None]).last_hidden_state[0]
        return embeddings


def clean(prompt: str) -> str:
    """Repair broken Unicode, resolve HTML entities (twice: some are escaped twice), single the spaces."""
    try:
        import ftfy
    except ImportError as error:
        raise InputError(f"cleaning a prompt needs ftfy, which is not installed; run: {INSTALL}") from error
    text = html.unescape(html.unescape(ftfy.fix_text(prompt)))
    return re.sub(r"\s+", " ", text).strip()


def load_text_encoder(
    source: Mapping[str, Tensor] | str | Path, tokenizer: Tokenizer | str | Path, config: Config | None = None
) -> TextEncoder:
    """The text encoder from `models_t5_umt5-xxl-enc-bf16.pth`, from Hugging Face's layout, or from such tensors.

    Args: tokenizer is one of transformers or the folder of one; config gives sizes, dtype and length. Without it
        the sizes are the tensors' own (those of UMT5-XXL if they are as wide), the dtype too, and the length 512.
    Raises: WeightsError naming every missing, unexpected or misshapen tensor, or that there is no tokenizer.
    """
    if isinstance(source, Mapping):
        tensors = official_names(source, "the given text encoder")
    else:
        tensors = read_state_dict(source)
    what = "the text encoder" if isinstance(source, Mapping) else f"the text encoder in {source}"
    if isinstance(tokenizer, str | Path):
        tokenizer = _load_tokenizer(Path(tokenizer))
    hugging_face = any(name.startswith(("encoder.block.", "shared.")) for name in tensors)
    if hugging_face:
        tensors = _encoder_only(tensors)
    names = hugging_face_name if hugging_face else str
    sizes = TextSizes.of(config) if config else _sizes(tensors, names)
    stored = {name: names(name) for name in sizes.shapes()}
    check_names(tensors, {stored[name]: shape for name, shape in sizes.shapes().items()}, what)
    dtype = getattr(torch, config.dtype) if config else tensors[stored["token_embedding.weight"]].dtype
    weights = {hugging_face_name(name): tensors[stored[name]].detach().to(dtype) for name in stored}
    model = _empty_model(sizes)
    # The same embedding under both names, cast once, so that it is not held twice.
    model.load_state_dict(weights | {"encoder.embed_tokens.weight": weights["shared.weight"]}, assign=True)
    model.requires_grad_(False).eval()
    return TextEncoder(model, tokenizer, text_len=config.text_len if config else 512)


def _empty_model(sizes: TextSizes) -> Any:
    transformers = _transformers()
    config = transformers.UMT5Config(
        vocab_size=sizes.vocab,
        d_model=sizes.dim,
        d_kv=sizes.head_dim,
        d_ff=sizes.ffn,
        num_layers=sizes.layers,
        num_heads=sizes.heads,
        relative_attention_num_buckets=BUCKETS,
        relative_attention_max_distance=FARTHEST,
        feed_forward_proj="gated-gelu",
        # Scores and softmax as in the original; fused attention rounds elsewhere in bfloat16.
        attn_implementation="eager",
    )
    with torch.device("meta"):
        return transformers.UMT5EncoderModel(config)


def _encoder_only(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """A full UMT5 has a decoder, and some files name the embedding twice; neither is of use here."""
    kept = {name: value for name, value in tensors.items() if not name.startswith(("decoder.", "lm_head."))}
    tied = kept.pop("encoder.embed_tokens.weight", None)
    if tied is not None:
        kept.setdefault("shared.weight", tied)
    return kept


def _sizes(tensors: Mapping[str, Tensor], names: Callable[[str], str]) -> TextSizes:
    """The sizes that the tensors themselves show, wherever they do."""
    layer_number = re.compile(re.escape(names("blocks.0.norm1.weight")).replace("0", r"(\d+)", 1))
    layers = [int(match[1]) for name in tensors if (match := layer_number.fullmatch(name))]
    published = TextSizes()

    def size(name: str, axis: int, default: int) -> int:
        tensor = tensors.get(names(name))
        return tensor.shape[axis] if tensor is not None and tensor.ndim > axis else default

    dim = size("token_embedding.weight", 1, published.dim)
    if dim == published.dim or not layers:
        return published
    heads = size("blocks.0.pos_embedding.embedding.weight", 1, published.heads)
    return TextSizes(
        vocab=size("token_embedding.weight", 0, published.vocab),
        dim=dim,
        layers=max(layers) + 1,
        heads=heads,
        ffn=size("blocks.0.ffn.fc1.weight", 0, published.ffn),
        head_dim=max(1, size("blocks.0.attn.q.weight", 0, dim) // heads),
    )


def _load_tokenizer(folder: Path) -> Tokenizer:
    rules = folder / "tokenizer.json"
    if not rules.is_file():
        raise WeightsError(f"{rules} does not exist; name the folder of the tokenizer (Wan2.1's google/umt5-xxl)")
    try:
        # As the file says: AutoTokenizer would take T5's class, which brings normalisation of its own.
        return _transformers().PreTrainedTokenizerFast(tokenizer_file=str(rules))
    except Exception as error:  # a damaged file makes the tokenizers library raise a bare Exception
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise WeightsError(f"{rules} cannot be read as a tokenizer ({reason}); download it again") from error


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise InputError(f"the text encoder needs transformers, which is not installed; run: {INSTALL}") from error
    return transformers
