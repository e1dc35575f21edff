"""What `nkismith doctor` looks at: each finding says what was found and, if it matters, how to mend it."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib import metadata, util
from pathlib import Path

from nkismith.results.store import data_root

NEURON_INDEX = "https://pip.repos.neuron.amazonaws.com"


@dataclass(frozen=True)
class Finding:
    """mark: ok, missing (something optional), weak (works with less protection), broken (nothing works without it)."""

    name: str
    mark: str
    found: str
    fix: str = ""


def examine() -> list[Finding]:
    """All findings, in the order in which one would mend them."""
    return [look() for look in _LOOKS]


def _python() -> Finding:
    return Finding("python", "ok", f"{platform.python_version()} at {sys.executable}")


def _packages() -> Finding:
    needed = ("torch", "numpy", "ml_dtypes", "jinja2", "pydantic", "langgraph", "anthropic", "sqlite_utils", "msgpack")
    missing = [name for name in needed if util.find_spec(name) is None]
    if missing:
        return Finding(
            "packages", "broken", f"missing: {', '.join(missing)}", "Run `make setup`, or pip install nkismith."
        )
    return Finding("packages", "ok", f"torch {metadata.version('torch')}, numpy {metadata.version('numpy')}")


def _data_folder() -> Finding:
    root = data_root()
    try:
        root.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=root):
            pass
    except OSError as error:
        return Finding(
            "data folder", "broken", f"{root}: {error.strerror}", "Set NKISMITH_DATA to a folder you can write."
        )
    free = shutil.disk_usage(root).free / 1e9
    return Finding("data folder", "ok", f"{root}, {free:.0f} GB free")


def _isolation() -> Finding:
    from nkismith.verify import sandbox

    reports = [report for report in sandbox.levels() if report.available]
    best = reports[0]
    open_doors = "; ".join(
        f"{one.level} would let a child {', '.join(one.possible)}" for one in reports if one.possible
    )
    found = f"{best.isolation}; {open_doors or 'at no level did a probing child get away with anything'}"
    if best.level is sandbox.Level.STRONG:
        return Finding("isolation", "ok", found)
    return Finding(
        "isolation",
        "weak",
        found,
        "Allow user namespaces for this user (or run outside a container that forbids them); until then `accept` needs "
        "--allow-weak-isolation.",
    )


def _kernels() -> Finding:
    from nkismith.kernels import registry
    from nkismith.kernels import spec as specs

    stored = registry.all()
    stale = [kernel for kernel in stored if kernel.stale]
    if stale:
        return Finding("kernels", "broken", f"{len(stale)} of {len(stored)} are stale", stale[0].stale)
    have = len({kernel.op for kernel in stored})
    return Finding("kernels", "ok", f"{have} of {len(specs.names())} ops have an accepted kernel")


def _model() -> Finding:
    if os.environ.get("ANTHROPIC_API_KEY") or os.environ.get("ANTHROPIC_AUTH_TOKEN"):
        return Finding("model", "ok", "an Anthropic key is set")
    return Finding(
        "model", "missing", "no ANTHROPIC_API_KEY",
        "Set it for --provider anthropic; --provider handoff and recording need none.",
    )  # fmt: skip


def _text() -> Finding:
    if util.find_spec("transformers") is None:
        return Finding("text encoder", "missing", "transformers is not installed", _extra("text"))
    return Finding("text encoder", "ok", f"transformers {metadata.version('transformers')}")


def _video() -> Finding:
    import av

    if "libx264" not in av.codecs_available:
        return Finding("video", "missing", "PyAV has no libx264", "pip install --force-reinstall av")
    return Finding("video", "ok", f"PyAV {av.__version__} with libx264")


def _neuron() -> Finding:
    try:  # what is installed, not what can be imported: the simulator has a stand-in of that name
        return Finding("neuron", "ok", f"neuronx-cc {metadata.version('neuronx-cc')}")
    except metadata.PackageNotFoundError:
        return Finding(
            "neuron", "missing", "no Neuron compiler (needed on a Trainium only)",
            _extra("neuron", f"--extra-index-url {NEURON_INDEX} "),
        )  # fmt: skip


def _extra(name: str, options: str = "") -> str:
    """How to install an extra: from the checkout, since a package index has no nkismith of ours."""
    checkout = Path(__file__).parents[1]
    source = f"-e '{checkout}[{name}]'" if (checkout / "pyproject.toml").is_file() else f"'<this wheel>[{name}]'"
    return f"pip install {options}{source}"


_LOOKS: tuple[Callable[[], Finding], ...] = (
    _python, _packages, _data_folder, _isolation, _kernels, _model, _text, _video, _neuron,
)  # fmt: skip
