"""Commands that make something: quickstart, new, generate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nkismith.agent.commands.options import Json, WrongUse, emit
from nkismith.agent.commands.progress import Progress


def register(app: typer.Typer) -> None:
    app.command()(quickstart)
    app.command()(new)
    app.command()(generate)


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
    from nkismith.agent.quickstart import OPS, Clips
    from nkismith.pipeline import Config, Weights
    from nkismith.pipeline import generate as start
    from nkismith.pipeline.events import BlockReady, FramesReady, WindowStarted
    from nkismith.pipeline.video import Mp4Writer

    config = Config.preset("tiny")
    weights, embeds = Weights.random(config), _embeds(config, 0)

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


def generate(
    out: Annotated[Path, typer.Option(help="Video file to write (.mp4).")],
    preset: Annotated[str, typer.Option(help="Sizes of the model: tiny, tiny8, small or wan-1.3b.")] = "tiny",
    weights: Annotated[Path | None, typer.Option(help="Folder of published weights (default: random ones).")] = None,
    prompt: Annotated[str | None, typer.Option(help="What to show; means something with --weights only.")] = None,
    image: Annotated[Path | None, typer.Option(help="Picture that the clip begins with, scaled to its size.")] = None,
    frames: Annotated[int, typer.Option(help="Latent frames, a multiple of 3 from 15 on; 4 video frames each.")] = 42,
    seed: Annotated[int, typer.Option(help="Seed of the noise, and of random weights.", min=0, max=2**63 - 1)] = 0,
    dtype: Annotated[str | None, typer.Option(help="float32 or bfloat16 (default: the preset's).")] = None,
    backend: Annotated[str, typer.Option(help="torch, or sim: accepted kernels on the simulator.")] = "torch",
    fallback: Annotated[
        bool, typer.Option(help="With sim: ops without an accepted kernel run on PyTorch, and are named; or an error.")
    ] = True,
    kernels: Annotated[
        Path | None, typer.Option(help="Folder of accepted kernels (default: the bundled ones).")
    ] = None,
    json: Json = False,
) -> int:
    """Generate a clip with Rolling Forcing and write it as a video file.

    \b
    nkismith generate --preset tiny --frames 42 --seed 0 --out video.mp4
    nkismith generate --preset tiny --backend sim --frames 15 --out sim.mp4
    nkismith generate --preset wan-1.3b --weights DIR --prompt "a harbour at dawn" --image first.png --out harbour.mp4
    """
    from rich.console import Console

    from nkismith.pipeline import Config, Weights
    from nkismith.pipeline import generate as start
    from nkismith.pipeline.events import Done, FramesReady, WindowStarted
    from nkismith.pipeline.video import Mp4Writer, read_image

    if kernels is not None and not kernels.is_dir():
        raise WrongUse(f"--kernels {kernels} is no folder. Name one that `nkismith accept --out` wrote.")
    config = Config.preset(preset, **({"dtype": dtype} if dtype else {}))
    done: Done | None = None
    console = Console(stderr=True, quiet=json)
    with Mp4Writer(out) as video:  # first of all: a path that cannot be written must not cost the time of a clip
        generation = start(
            config,
            Weights.load(weights, config) if weights else Weights.random(config, seed),
            prompt=prompt,
            prompt_embeds=None if prompt is not None else _embeds(config, seed),
            frames=frames,
            seed=seed,
            backend=backend,
            kernel_root=kernels,
            allow_fallback=fallback,
            first_image=read_image(image, 8 * config.latent_height, 8 * config.latent_width) if image else None,
        )
        with Progress(preset, console) as progress:
            for event in generation:
                if isinstance(event, WindowStarted):
                    progress.at(f"{event.phase}, window", event.window, event.total)
                elif isinstance(event, FramesReady):
                    video.add(event.pixels)
                elif isinstance(event, Done):
                    done = event
    assert done is not None  # a failed run raises instead
    if json:
        emit({"path": out, "frames": done.frames, "seconds": done.seconds, "fps": done.fps, "seed": seed,
              "backends": dict(done.backends), "fallbacks": dict(done.fallbacks)})  # fmt: skip
    else:
        simulated = ", ".join(op for op, where in done.backends.items() if where == "sim")
        print(f"{out}: {done.frames} frames in {done.seconds:.1f} s ({done.fps:.2f} frames/s on this machine)")
        if simulated:
            print(f"on the simulator: {simulated}")
        if done.fallbacks:
            print(f"fell back to PyTorch, having no accepted kernel: {', '.join(done.fallbacks)}")
        if not weights:
            print("The weights are random, so the clip shows colours, whatever the prompt. --weights names real ones.")
    return 0


def _embeds(config: Any, seed: int) -> Any:
    """Stand-in for an encoded prompt: seeded normal numbers [text_len, text_dim]."""
    import torch

    return torch.randn(config.text_len, config.text_dim, generator=torch.Generator().manual_seed(seed))
