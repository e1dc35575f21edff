"""Options that several commands share, and how a command answers."""

from __future__ import annotations

import json
import math
import os
import sys
from dataclasses import asdict, is_dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from nkismith.kernels.spec import OpSpec


class WrongUse(Exception):
    """The command cannot do what was asked; the message is the one line that the user sees."""


Json = Annotated[bool, typer.Option("--json", help="Answer as JSON, with the field names of the Python API.")]
Target = Annotated[str, typer.Option(help="Trainium generation: trn2 or trn3.")]
Sdk = Annotated[str, typer.Option(help="Neuron SDK whose API the kernel must follow.")]
Lnc = Annotated[int, typer.Option(help="Physical cores that work as one (LNC), 1 or 2.", min=1, max=2)]
Op = Annotated[str | None, typer.Option("--op", help="Bundled op that the kernel is for.")]
SpecDir = Annotated[
    Path | None, typer.Option("--spec", help="Folder with spec.yaml and reference.py, for your own op.")
]


def op_spec(op: str | None, folder: Path | None) -> OpSpec:
    """The spec that --op or --spec names; with both, the folder's op must be the named one."""
    from nkismith.kernels import spec as specs

    if op is None and folder is None:
        raise WrongUse("Which op? Name a bundled one (see `nkismith kernels`) or give --spec DIR.")
    if folder is not None and folder.is_file():
        raise WrongUse(f"--spec {folder} is a file. Give the folder that holds spec.yaml and reference.py.")
    if folder is not None and not folder.exists() and str(folder) not in specs.names():
        raise WrongUse(f"--spec {folder}: no such folder. `nkismith new NAME` makes one to start from.")
    # As a path with a root, so that a folder here is never taken for the bundled op of the same name.
    named = (folder.absolute() if folder.is_dir() else folder) if folder is not None else op or ""
    spec = specs.load(named)
    if op is not None and folder is not None and op != spec.op:
        raise WrongUse(f"{folder} is the spec of {spec.op}, not of {op}. Leave one of the two out.")
    return spec


def check_machine(target: str, sdk: str, lnc: int = 1) -> None:
    """Refuse a target, an SDK or an LNC degree that this version does not know."""
    from nkismith.verify.simulator.hardware import TARGETS
    from nkismith.verify.simulator.sdk import RELEASES

    if target not in TARGETS:
        raise WrongUse(f"Unknown target {target!r}. Targets: {', '.join(TARGETS)}.")
    if sdk not in RELEASES:
        raise WrongUse(f"Unknown Neuron SDK {sdk!r}. Known: {', '.join(RELEASES)}.")
    if lnc not in (1, 2):
        raise WrongUse(f"Unknown LNC degree {lnc}. A logical core is 1 or 2 physical cores.")


def source_of(path: Path) -> str:
    """The text of a kernel file."""
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise WrongUse(f"{path} is not a text file, so it is no Python kernel. Give the kernel's .py file.") from None
    except IsADirectoryError:
        raise WrongUse(f"{path} is a folder. Give the kernel's .py file.") from None
    except OSError as error:
        raise WrongUse(f"{path}: {error.strerror}. Give the path of the kernel's .py file.") from None


def check_folder(option: str, folder: Path | None) -> None:
    """Refuse a folder that could not be made or written, before work is done whose results are to go there."""
    if folder is None:
        return
    home = next(path for path in (folder.absolute(), *folder.absolute().parents) if path.exists())
    if not home.is_dir() or not os.access(home, os.W_OK):
        raise WrongUse(f"{option} {folder}: {home} is no folder that can be written. Name another.")


def plain(value: Any) -> Any:
    """Dataclasses, enumerations, paths and arrays as what JSON knows; None for a number that is infinite or none."""
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, Path):
        return str(value)
    if hasattr(value, "item") and not isinstance(value, str):
        return plain(value.item())
    return None if isinstance(value, float) and not math.isfinite(value) else value


def emit(value: Any) -> None:
    """One JSON document on stdout."""
    json.dump(plain(value), sys.stdout, indent=1, ensure_ascii=False, allow_nan=False)
    sys.stdout.write("\n")
