"""One clip over the ranks torchrun starts, or on a single one without it.

    torchrun --nproc_per_node 8 -m nkismith.pipeline --preset tiny8 --frames 42 --out video.mp4

Every rank computes its share; the first one encodes the prompt, reports and writes the files. Tensors are read from
`.safetensors`, `.pt` or `.npy`. Exit codes: 0 done, 2 wrong use or failure, with one line on each rank saying what,
where and how to correct it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path

import torch

from nkismith.pipeline.config import PRESETS, Config
from nkismith.pipeline.errors import InputError, PipelineError
from nkismith.pipeline.events import BlockReady, Done, Event, FramesReady, WindowStarted
from nkismith.pipeline.generation import Generation, generate
from nkismith.pipeline.models import Weights
from nkismith.pipeline.ranks import joined, world
from nkismith.pipeline.sharding import Layout, RankLayout
from nkismith.pipeline.video import Mp4Writer, save_latents
from nkismith.pipeline.weights import read_tensor


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m nkismith.pipeline", description=__doc__.split("\n")[0])
    parser.add_argument("--preset", default="tiny8", help=f"sizes: {', '.join(PRESETS)}")
    parser.add_argument("--dtype", help="float32 or bfloat16; by default the preset's")
    parser.add_argument("--weights", type=Path, help="folder of published weight files; seeded random ones without")
    parser.add_argument("--prompt", help="what the video shows; empty without")
    parser.add_argument("--embeds", type=Path, help="its embeddings [text_len, text_dim], in place of --prompt")
    parser.add_argument("--frames", type=int, help="latent frames, a multiple of 3 from 15 on; 42 without --noise")
    parser.add_argument("--noise", type=Path, help="the initial noise [frames, channels, height, width]")
    parser.add_argument("--seed", type=int, default=0, help="of the noise that is not given, and of random weights")
    parser.add_argument("--backend", default="torch", help="torch, or sim: accepted kernels, on PyTorch where none is")
    parser.add_argument("--out", type=Path, help="MP4 file to write")
    parser.add_argument("--latents", type=Path, help="safetensors file to write the latents to")
    options = parser.parse_args(arguments)
    rank, ranks = world()
    try:
        with joined() if ranks > 1 else nullcontext():
            _run(options)
    except PipelineError as error:
        print(f"nkismith.pipeline, rank {rank}: {error}", file=sys.stderr, flush=True)
        return 2
    return 0


def _run(options: argparse.Namespace) -> None:
    rank, ranks = world()
    frames, prompt = options.frames, options.prompt
    if frames is None and options.noise is None:
        frames = 42
    if prompt is None and options.embeds is None:
        prompt = ""
    config = Config.preset(options.preset, **({"dtype": options.dtype} if options.dtype else {}))
    layout = RankLayout(config) if ranks > 1 else Layout()
    if options.weights:
        weights = Weights.load(options.weights, config, text=rank == 0)
    else:
        weights = Weights.random(config, options.seed)
    if options.out and weights.vae is None:
        raise InputError(f"{options.out} needs the VAE, which {options.weights} does not hold; ask for --latents only")
    run = generate(
        config,
        weights,
        prompt=prompt,
        prompt_embeds=read_tensor(options.embeds, "prompt_embeds") if options.embeds else None,
        frames=frames,
        noise=read_tensor(options.noise, "noise") if options.noise else None,
        seed=options.seed,
        backend=options.backend,
        allow_fallback=True,
        decode=options.out is not None,
        layout=layout,
    )
    if rank:
        for _ in run:
            pass
        return
    latents: list[torch.Tensor] = []
    with Mp4Writer(options.out) if options.out else nullcontext() as video:
        for event in _reported(run):
            if isinstance(event, FramesReady) and video:
                video.add(event.pixels)
            if isinstance(event, BlockReady) and options.latents:
                latents.append(event.latents)
    if options.latents:
        save_latents(torch.cat(latents), options.latents)
    if isinstance(layout, RankLayout):
        received = ", ".join(f"{name} {count / 1e6:.1f}" for name, count in vars(layout.traffic).items())
        print(f"MB this rank got from the others by content, and copied to order it: {received}")


def _reported(run: Generation) -> Iterator[Event]:
    """The events of a run, with a line printed for each window and at the end."""
    for event in run:
        if isinstance(event, WindowStarted):
            print(f"window {event.window + 1}/{event.total} ({event.phase})", flush=True)
        if isinstance(event, Done):
            print(f"{event.blocks} blocks, {event.frames} frames in {event.seconds:.1f} s, {event.fps:.2f} frames/s")
            if event.fallbacks:
                print(f"fell back to PyTorch, having no accepted kernel: {', '.join(event.fallbacks)}")
        yield event


if __name__ == "__main__":
    sys.exit(main())
