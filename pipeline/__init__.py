"""Where the kernels run: Rolling Forcing on Wan2.1.

The public names are imported when they are asked for, so that `nkismith.pipeline.config` stays cheap.
"""

from importlib import import_module
from typing import Any

_HOME = {
    "BlockReady": "events",
    "Config": "config",
    "Dit": "dit",
    "Done": "events",
    "Event": "events",
    "Failed": "events",
    "FramesReady": "events",
    "Generation": "generation",
    "InputError": "errors",
    "KernelFailed": "errors",
    "KernelMissing": "errors",
    "PipelineError": "errors",
    "RankFailed": "errors",
    "StageTimed": "events",
    "TextEncoder": "text",
    "Vae": "vae",
    "Weights": "models",
    "WeightsError": "errors",
    "WindowStarted": "events",
    "generate": "generation",
    "load_dit": "dit",
    "load_text_encoder": "text",
    "load_vae": "vae",
    "preset": "config",
    "to_uint8": "video",
    "write_mp4": "video",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
