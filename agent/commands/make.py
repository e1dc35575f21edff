"""Commands that make something: quickstart, new. The clip of a prompt has `clip.py`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nkismith.agent.commands.options import Json, emit
from nkismith.agent.commands.progress import Progress


def register(app: typer.Typer) -> None:
    app.command()(quickstart)
    app.command()(new)


def quickstart(
    out: Annotated[
        Path | None, typer.Option(help="Folder to write to (default: a new one in the data folder).")
    ] = None,
    frames: Annotated[int, typer.Option(help="Latent frames of the video, a multiple of 3 from 15 on.")] = 27,
    json: Json = False,
) -> int:
    """From spec to video on this machine, without a key and without a device.

    \b
    nkismith quickstart
    nkismith quickstart --out first-look --json
    """
    from functools import partial

    from rich.console import Console

    from nkismith.agent import quickstart as tour

    console = Console(stderr=json)
    result = tour.run(out, film=partial(_film, frames, console), console=console)
    if json:
        emit(result)
    return 0 if result.passed else 1


def _film(frames: int, console: Any, kernels: Path, video: Path) -> Any:
    """The tour's clips: preset tiny with seeded random weights, simulated kernels against PyTorch."""
    from nkismith.agent.commands.clip import stand_in_embeds
    from nkismith.agent.quickstart import OPS, Clips
    from nkismith.pipeline import Config, Weights
    from nkismith.pipeline import generate as start
    from nkismith.pipeline.events import BlockReady, FramesReady, WindowStarted
    from nkismith.pipeline.video import Mp4Writer

    config = Config.preset("tiny")
    weights, embeds = Weights.random(config), stand_in_embeds(config, 0)

    def latents(bar: Progress, **how: Any) -> Any:
        import torch

        blocks = []
        for event in start(config, weights, prompt_embeds=embeds, frames=frames, **how):
            if isinstance(event, WindowStarted):
                bar.at(f"{event.phase}, window", event.window, event.total)
            elif isinstance(event, BlockReady):
                blocks.append(event.latents.float())
            elif isinstance(event, FramesReady):
                writer.add(event.pixels)
        return torch.cat(blocks)

    with Progress("on simulated kernels", console) as bar, Mp4Writer(video) as writer:
        simulated = latents(bar, backend=dict.fromkeys(OPS, "sim"), kernel_root=kernels)
    with Progress("on PyTorch", console) as bar:
        plain = latents(bar, decode=False)
    distance = float((simulated - plain).norm() / plain.norm())
    # What PyTorch itself may differ by between two orders of the same sums, with room: see docs of the pipeline.
    limit = {"float32": 1e-4, "bfloat16": 2e-2}[config.dtype]
    return Clips(video, writer.frames, config.dtype, distance, limit)


def new(
    name: Annotated[str, typer.Argument(help="Name of the op: a lower-case Python name.")],
    into: Annotated[Path, typer.Option(help="Folder in which the op's folder is made.")] = Path(),
    json: Json = False,
) -> int:
    """Scaffold an op: a spec and a reference that verify as they are, to be edited.

    \b
    nkismith new my_op
    nkismith new my_op --into my_ops
    """
    from nkismith.kernels import scaffold

    folder = scaffold.new(name, into)
    if json:
        emit({"op": name, "path": folder})
    else:
        print(f"{folder}: edit spec.yaml and reference.py, then `nkismith draft --spec {folder}`")
    return 0
