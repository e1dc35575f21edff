"""Weight files: reading them lazily, and saying everything that is wrong with one in a single message.

Nothing here knows a model. `read_state_dict` gives tensors under the official names whatever wrote
the file; `check_names` compares them with what a model expects; `find_files` recognises the
published files in a folder. Files are mapped into memory, so a 17 GB checkpoint costs what is used.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from nkismith.pipeline.errors import WeightsError

PICKLE_SUFFIXES = (".pt", ".pth", ".bin")
WEIGHT_SUFFIXES = (".safetensors", *PICKLE_SUFFIXES)
INDEX_SUFFIX = ".safetensors.index.json"

CHECKPOINT_MODELS = ("generator_ema", "generator")
"""State dicts a distilled checkpoint holds that can generate, the averaged one first."""

FSDP_SEGMENT = "_fsdp_wrapped_module."
WRAPPER_PREFIXES = ("model.", "text_encoder.")
"""Attributes in which the original's wrappers keep the DiT and the VAE, and the text encoder."""

DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
"""What a weight may be stored as. Eight-bit floats are missing on purpose: they need scales."""

PUBLISHED_FILES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "checkpoint": ("rolling_forcing_dmd.pt",),
        "dit": ("diffusion_pytorch_model.safetensors", "diffusion_pytorch_model" + INDEX_SUFFIX),
        "config": ("config.json",),
        "text_encoder": (
            "models_t5_umt5-xxl-enc-bf16.pth",
            "models_t5_umt5-xxl-enc-bf16.safetensors",
            "text_encoder/model" + INDEX_SUFFIX,
            "text_encoder/model.safetensors",
        ),
        "tokenizer": ("google/umt5-xxl/tokenizer.json", "tokenizer/tokenizer.json"),
        "vae": ("Wan2.1_VAE.pth", "Wan2.1_VAE.safetensors", "vae/diffusion_pytorch_model.safetensors"),
    }
)
"""Parts of the model and the names they are published under: Wan2.1's own, then Hugging Face's."""

COMPONENT_FOLDERS = frozenset({"vae", "text_encoder", "tokenizer", "transformer", "umt5-xxl", "scheduler"})
"""Folders whose `config.json` and `diffusion_pytorch_model` are not the DiT's (`transformer` has other names)."""

SEARCH_DEPTH = 3
"""Folders below the given one in which published files are looked for."""


def read_state_dict(path: str | Path) -> dict[str, Tensor]:
    """Read the tensors of a weight file under their official names, without copying them to memory.

    Reads `.safetensors`, `.safetensors.index.json` with its shards, and `.pt` or `.pth` (tensors only:
    no code in a pickle is run). Of a distilled checkpoint the averaged generator is taken, else the
    generator. The wrapper's `model.` or `text_encoder.` and every `_fsdp_wrapped_module.` are removed from names.

    Raises: WeightsError in one line if the file is missing, truncated, no weight file, or holds something else.
    """
    path = _existing(Path(path))
    if path.name.endswith(INDEX_SUFFIX):
        return official_names(_read_shards(path), path)
    if path.suffix == ".safetensors":
        return official_names(_read_safetensors(path), path)
    if path.suffix in WEIGHT_SUFFIXES:
        return official_names(_read_pickled(path), path)
    raise WeightsError(
        f"{path} is not a weight file by its name; expected one ending in {', '.join((*WEIGHT_SUFFIXES, INDEX_SUFFIX))}"
    )


def read_tensor(path: str | Path, name: str) -> Tensor:
    """Read one tensor: an array in `.npy`, a bare tensor in `.pt`, or of several by name the one called `name`.

    Raises: WeightsError in one line if the file cannot be read or holds no such tensor.
    """
    path = _existing(Path(path))
    if path.suffix == ".npy":
        try:
            return torch.from_numpy(np.load(path, allow_pickle=False))
        except (ValueError, TypeError, EOFError, OSError) as error:
            raise WeightsError(
                f"{path} cannot be read as an array of numbers ({_first_words(error)}); save it as float32"
            ) from error
    if path.suffix in PICKLE_SUFFIXES:
        content = _unpickled(path)
        if isinstance(content, Tensor):
            return content.detach()
    tensors = read_state_dict(path)
    if name not in tensors and len(tensors) != 1:
        raise WeightsError(f"{path} holds no tensor named {name!r}, but {', '.join(sorted(tensors)[:5]) or 'nothing'}")
    return tensors.get(name, next(iter(tensors.values())))


def _existing(path: Path) -> Path:
    if path.is_dir():
        raise WeightsError(f"{path} is a folder; name a weight file in it ({', '.join(WEIGHT_SUFFIXES)})")
    if not path.is_file():
        raise WeightsError(f"{path} does not exist; check the path, or download the file again")
    if path.stat().st_size == 0:
        raise WeightsError(f"{path} is empty; download the file again")
    return path


def _read_safetensors(path: Path) -> dict[str, Tensor]:
    try:
        with safe_open(path, framework="pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a mapping)
    except SafetensorError as error:
        raise WeightsError(f"{path} cannot be read as safetensors ({error}); {_again(path)}") from error
    except OSError as error:
        raise WeightsError(f"{path} cannot be opened ({error.strerror or error})") from error


def _read_shards(index: Path) -> dict[str, Tensor]:
    try:
        shard_of = json.loads(index.read_bytes())["weight_map"]
        names = sorted(set(shard_of.values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise WeightsError(f"{index} is not an index of safetensors shards ({error}); download it again") from error
    missing = [name for name in names if not (index.parent / name).is_file()]
    if missing:
        raise WeightsError(f"{index} names shards that are not beside it: {', '.join(missing)}; download them")
    tensors: dict[str, Tensor] = {}
    for name in names:
        tensors.update(_read_safetensors(index.parent / name))
    absent = sorted(set(shard_of) - set(tensors))
    if absent:
        raise WeightsError(f"{index} promises tensors that its shards do not hold: {', '.join(absent)}")
    return tensors


def _unpickled(path: Path) -> Any:
    try:
        # Files from before PyTorch 1.6 are not zip archives and cannot be mapped.
        return torch.load(path, map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))
    except pickle.UnpicklingError as error:
        # The cause advises to switch weights_only off, which would run whatever the file says.
        raise WeightsError(
            f"{path} is not a file of tensors: it is damaged, no weight file, or a pickle that would run code, "
            "which is refused. Download it again, or save a plain dict of tensors"
        ) from error
    except (RuntimeError, EOFError, ValueError, KeyError, OSError) as error:
        raise WeightsError(f"{path} cannot be read by torch.load ({_first_words(error)}); {_again(path)}") from error


def _read_pickled(path: Path) -> dict[str, Tensor]:
    content = _unpickled(path)
    if isinstance(content, Mapping):
        for model in CHECKPOINT_MODELS:
            if isinstance(content.get(model), Mapping):
                content = content[model]
                break
    if not isinstance(content, Mapping) or not content:
        raise WeightsError(f"{path} holds {_kind(content)}; expected a dict of tensors by name")
    strangers = [str(name) for name, value in content.items() if not isinstance(value, Tensor)]
    if strangers:
        raise WeightsError(
            f"{path} holds more than tensors by name: {', '.join(strangers[:5])}"
            f"{' and more' if len(strangers) > 5 else ''}. Expected a plain state dict, "
            f"or a checkpoint with {' or '.join(CHECKPOINT_MODELS)}"
        )
    return {str(name): value.detach() for name, value in content.items()}


def official_names(tensors: Mapping[str, Tensor], path: Path | str) -> dict[str, Tensor]:
    """Tensors without the prefixes that wrappers gave their names; path names their source in the message.

    Raises: WeightsError if two tensors would have the same name.
    """
    renamed: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        official = name.replace(FSDP_SEGMENT, "")
        for prefix in WRAPPER_PREFIXES:
            official = official.removeprefix(prefix)
        if official in renamed:
            raise WeightsError(f"{path} holds {official} twice, with and without its wrapper; keep one of them")
        renamed[official] = tensor
    return renamed


def _again(path: Path) -> str:
    return f"it has {path.stat().st_size:,} bytes: probably truncated or another kind of file. Download it again"


def _first_words(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0].split(". ")[0]


def _kind(content: Any) -> str:
    return "an empty dict" if isinstance(content, Mapping) else f"one {type(content).__name__}"


def check_names(state_dict: Mapping[str, Tensor], expected: Mapping[str, Sequence[int]], what: str) -> None:
    """Compare tensors with what a model expects, names and shapes.

    Args: expected gives the shape of every tensor by name; what names model and file in the message.
    Raises: WeightsError, once, naming every missing, unexpected and misshapen tensor, and every one that
        is not a 16-, 32- or 64-bit float.
    """
    missing = [f"{name} {list(shape)}" for name, shape in expected.items() if name not in state_dict]
    unexpected = [f"{name} {list(tensor.shape)}" for name, tensor in state_dict.items() if name not in expected]
    misshapen = [
        f"{name} is {list(state_dict[name].shape)}, expected {list(shape)}"
        for name, shape in expected.items()
        if name in state_dict and tuple(state_dict[name].shape) != tuple(shape)
    ]
    mistyped = [
        f"{name} is {str(state_dict[name].dtype).removeprefix('torch.')}"
        for name in expected
        if name in state_dict and state_dict[name].dtype not in DTYPES
    ]
    wrong = {"missing": missing, "unexpected": unexpected, "misshapen": misshapen, "not 16 to 64-bit floats": mistyped}
    if not any(wrong.values()):
        return
    raise WeightsError(
        f"{what}: the tensors are not those of this model "
        f"({', '.join(f'{len(names)} {kind}' for kind, names in wrong.items() if names)}; {len(expected)} expected). "
        "Choose the preset that fits the file, or the file that fits the preset.\n"
        + "\n".join(f"  {kind}: {'; '.join(names)}" for kind, names in wrong.items() if names)
    )


def find_files(folder: str | Path) -> dict[str, Path | None]:
    """Which of the published files a folder holds, itself or up to three folders deeper.

    Returns: a path for each of PUBLISHED_FILES, None where nothing was found; the tokenizer's is its folder.
        `checkpoint` is the distilled model, `dit` the base model of the same shape.
    Raises: WeightsError if the folder does not exist.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise WeightsError(f"{folder} is not a folder; name the one that holds the weight files")
    return {part: _find(folder, part, names) for part, names in PUBLISHED_FILES.items()}


def _find(folder: Path, part: str, names: Iterable[str]) -> Path | None:
    for depth in range(SEARCH_DEPTH + 1):
        for name in names:
            for path in sorted(folder.glob("*/" * depth + name)):
                if part in ("dit", "config") and path.parent.name in COMPONENT_FOLDERS:
                    continue
                if path.is_file():
                    return path.parent if part == "tokenizer" else path
    return None
