"""The command that makes a clip: generate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nkismith.agent.commands.options import Json, WrongUse, emit
from nkismith.agent.commands.progress import Progress

if TYPE_CHECKING:
    from nkismith.pipeline import Config
    from nkismith.pipeline.events import Done


def register(app: typer.Typer) -> None:
    app.command()(generate)


def generate(
    out: Annotated[Path | None, typer.Option(help="Video file to write (.mp4).")] = None,
    png: Annotated[Path | None, typer.Option(help="Folder to write each frame to, as a PNG file.")] = None,
    latents: Annotated[Path | None, typer.Option(help="File to write the latents to (.safetensors).")] = None,
    preset: Annotated[str, typer.Option(help="Sizes of the model: tiny, tiny8, small or wan-1.3b.")] = "tiny",
    weights: Annotated[Path | None, typer.Option(help="Folder of published weights (default: random ones).")] = None,
    prompt: Annotated[str | None, typer.Option(help="What to show; means something with --weights only.")] = None,
    switch: Annotated[
        list[str] | None, typer.Option(help="WINDOW:PROMPT, another prompt from a window on; may be repeated.")
    ] = None,
    image: Annotated[Path | None, typer.Option(help="Picture that the clip begins with, scaled to its size.")] = None,
    extend: Annotated[
        Path | None, typer.Option(help="Latents, as --latents writes them, that the clip continues.")
    ] = None,
    frames: Annotated[
        int | None,
        typer.Option(help="Latent frames, a multiple of 3 from 15 on, 4 video frames each; 42, or those of --noise."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the noise, and of random weights.", min=0, max=2**63 - 1)] = 0,
    noise: Annotated[
        Path | None, typer.Option(help="Initial noise in place of drawn one: .pt, .safetensors, .npy.")
    ] = None,
    embeds: Annotated[
        Path | None, typer.Option(help="Embeddings in place of --prompt: .pt, .safetensors, .npy.")
    ] = None,
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
    """Generate a clip with Rolling Forcing and write it as a video file, as pictures or as latents.

    \b
    nkismith generate --preset tiny --frames 42 --seed 0 --out video.mp4
    nkismith generate --preset tiny --backend sim --frames 15 --out sim.mp4
    nkismith generate --preset wan-1.3b --weights DIR --prompt "a harbour at dawn" --image first.png --out harbour.mp4
    nkismith generate --weights DIR --prompt "a harbour" --switch "8:the same harbour, at night" --out night.mp4
    nkismith generate --noise noise.pt --embeds embeds.pt --latents latents.safetensors
    """
    from rich.console import Console

    from nkismith.pipeline import Config, Weights
    from nkismith.pipeline import generate as start
    from nkismith.pipeline.video import Mp4Writer, load_latents, read_image, save_latents, write_png_frames
    from nkismith.pipeline.weights import read_tensor

    if not (out or png or latents):
        raise WrongUse("Nothing to write: give --out VIDEO.mp4, --png FOLDER or --latents FILE.safetensors.")
    if kernels is not None and not kernels.is_dir():
        raise WrongUse(f"--kernels {kernels} is no folder. Name one that `nkismith accept --out` wrote.")
    config = Config.preset(preset, **({"dtype": dtype} if dtype else {}))
    given = read_tensor(embeds, "prompt_embeds") if embeds else None
    if given is None and prompt is None:
        given = stand_in_embeds(config, seed)
    console = Console(stderr=True, quiet=json)
    with Mp4Writer(out) if out else nullcontext() as video:  # first: a bad path must not cost the time of a clip
        models = Weights.load(weights, config) if weights else Weights.random(config, seed)
        if models.vae is None and (out or png):
            raise WrongUse(f"{weights} holds no VAE, and frames need one. Add its file, or ask for --latents only.")
        run = start(
            config,
            models,
            prompt=prompt,
            prompt_embeds=given,
            frames=42 if frames is None and noise is None else frames,
            seed=seed,
            noise=read_tensor(noise, "noise") if noise else None,
            backend=backend,
            kernel_root=kernels,
            allow_fallback=fallback,
            switches=dict(_switched(text) for text in switch or []),
            given=load_latents(extend) if extend else None,
            first_image=read_image(image, 8 * config.latent_height, 8 * config.latent_width) if image else None,
            decode=bool(out or png),
        )
        blocks: list[Any] = []
        ends: list[Done] = []
        with Progress(preset, console) as progress:
            pictures = _frames(run, progress, video, blocks if latents else None, ends)
            if png:
                write_png_frames(pictures, png)
            else:
                for _ in pictures:
                    pass
    if latents:
        import torch

        save_latents(torch.cat(blocks), latents)
    _tell([path for path in (out, png, latents) if path], ends[0], seed, json=json)
    if not weights and not json:
        print("The weights are random, so the clip shows colours, whatever the prompt. --weights names real ones.")
    return 0


def stand_in_embeds(config: Config, seed: int) -> Any:
    """Stand-in for an encoded prompt: seeded normal numbers [text_len, text_dim]."""
    import torch

    return torch.randn(config.text_len, config.text_dim, generator=torch.Generator().manual_seed(seed))


def _switched(text: str) -> tuple[int, str]:
    """Window and prompt of one --switch. Raises WrongUse."""
    window, colon, prompt = text.partition(":")
    if not colon or not window.strip().isdecimal():
        raise WrongUse(f'--switch {text!r} is not WINDOW:PROMPT. For example: --switch "8:the same harbour, at night"')
    return int(window), prompt


def _frames(
    run: Iterable[Any], progress: Progress, video: Any, blocks: list[Any] | None, ends: list[Done]
) -> Iterator[Any]:
    """The pixels of a run as they are ready; what else it yields goes to the bar, the video, the blocks, the end."""
    from nkismith.pipeline.events import BlockReady, Done, FramesReady, WindowStarted

    for event in run:
        if isinstance(event, WindowStarted):
            progress.at(f"{event.phase}, window", event.window, event.total)
        elif isinstance(event, BlockReady) and blocks is not None:
            blocks.append(event.latents)
        elif isinstance(event, FramesReady):
            if video is not None:
                video.add(event.pixels)
            yield event.pixels
        elif isinstance(event, Done):
            ends.append(event)  # a run that failed has raised


def _tell(paths: list[Path], done: Done, seed: int, *, json: bool) -> None:
    """Print what was written and how fast."""
    if json:
        emit({"path": paths[0], "paths": paths, "frames": done.frames, "seconds": done.seconds, "fps": done.fps,
              "first_block_seconds": done.first_block_seconds, "first_frames_seconds": done.first_frames_seconds,
              "seed": seed, "backends": dict(done.backends), "fallbacks": dict(done.fallbacks)})  # fmt: skip
        return
    first = done.first_frames_seconds or done.first_block_seconds
    speed = f"{done.frames} frames in {done.seconds:.1f} s ({done.fps:.2f} frames/s" if done.frames else (
        f"{done.blocks} blocks in {done.seconds:.1f} s (latents only"
    )  # fmt: skip
    print(f"{', '.join(map(str, paths))}: {speed}, the first after {first:.1f} s, on this machine)")
    if simulated := ", ".join(op for op, where in done.backends.items() if where == "sim"):
        print(f"on the simulator: {simulated}")
    if done.fallbacks:
        print(f"fell back to PyTorch, having no accepted kernel: {', '.join(done.fallbacks)}")
