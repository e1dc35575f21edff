"""How fast the pipeline is on this CPU, how soon its first block is out, and whether it grows with the video.

    python benchmarks/pipeline.py                              # preset small, float32, 42 latent frames, DiT only
    python benchmarks/pipeline.py --dtype bfloat16 --threads 2
    python benchmarks/pipeline.py --original-seconds 310       # the same clip timed with the original: prints the ratio

Figures are measured on this machine's CPU, labelled with its name, threads, dtype and sizes. Weights are random, which
changes no operation. The floor is the time of the clip's matrix products alone at the speed this CPU multiplies
matrices of the model's own shape, so the distance to it is what anything else could still save. The prompt has
PROMPT_TOKENS; its padding, though attended to, costs nothing (see `ops.cross_attention`).
"""

from __future__ import annotations

import argparse
import math
import os
import platform
import time
from pathlib import Path

import torch

from nkismith.pipeline import BlockReady, Config, Dit, Done, StageTimed, generate
from nkismith.pipeline.config import BLOCK_FRAMES, SPAN_BLOCKS
from nkismith.pipeline.ops import linear
from nkismith.pipeline.schedule import denoise_pass, update_matters, update_pass, windows

MEMORY_FRAMES = (102, 402)
"""Latent frames between which memory is compared, whole blocks nearest to 100 and 400."""

PROMPT_TOKENS = 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="small", help="sizes of the timed clip")
    parser.add_argument("--dtype", default="float32", help="float32 or bfloat16")
    parser.add_argument("--frames", type=int, default=42, help="latent frames of the timed clip")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--original-seconds", type=float, help="what the original takes for the same clip")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    config = Config.preset(options.preset, dtype=options.dtype)

    growth = memory_growth()  # first, before anything large has been allocated and freed
    done, steady = timed_clip(config, options.frames)
    speed = matmul_speed(config)
    flop = clip_flop(config, options.frames)
    seconds, first = done.seconds, done.first_block_seconds or math.nan
    rows = {
        f"clip of {options.frames} latent frames": f"{seconds:.2f} s",
        "steady window": f"{steady:.2f} s",
        "first block": f"{first:.2f} s, {first / seconds:.1%} of the whole",
        "matrix products alone": f"{flop / speed:.2f} s ({flop / 1e12:.2f} TFLOP at {speed / 1e9:.0f} GFLOP/s)",
        "resident memory, tiny": growth,
    }
    if options.original_seconds:
        rows["original"] = f"{options.original_seconds:.2f} s, {options.original_seconds / seconds:.2f} times ours"
    print(f"measured on {cpu_name()}, {options.threads} threads, DiT only")
    print(f"{options.preset}: {config}")
    for name, value in rows.items():
        print(f"{name:28} {value}")


def timed_clip(config: Config, frames: int) -> tuple[Done, float]:
    """The end of a run, and the median time of its steady windows in seconds."""
    dit = Dit.random(config)
    embeds = torch.randn(PROMPT_TOKENS, config.text_dim, generator=torch.Generator().manual_seed(0))
    events = list(generate(config, dit, prompt_embeds=embeds, frames=frames))
    levels = len(config.steps)
    steady = [
        event.seconds
        for event in events
        if isinstance(event, StageTimed) and event.stage == "dit" and levels <= event.window < frames // BLOCK_FRAMES
    ]
    assert isinstance(events[-1], Done)
    return events[-1], sorted(steady)[len(steady) // 2] if steady else math.nan


def clip_flop(config: Config, frames: int) -> float:
    """Multiply-adds of a clip's matrix products, counted as two each; dead update passes left out as in the run."""
    blocks, levels = frames // BLOCK_FRAMES, len(config.steps)
    passes = []
    for window in windows(blocks, levels):
        passes.append(denoise_pass(window))
        if update_matters(window, levels, blocks):
            passes.append(update_pass(window.first))
    dim = config.dim
    prompt_keys = min(PROMPT_TOKENS + 1, config.text_len)  # one for all padding
    per_token = 2 * (6 * dim * dim + 2 * dim * config.ffn_dim) + 4 * prompt_keys * dim
    flop = 0.0
    for a_pass in passes:
        tokens = a_pass.blocks * config.block_tokens
        keys = tokens + len(a_pass.past) * config.block_tokens
        flop += tokens * (per_token + 4 * keys * dim) * config.num_layers
    return flop


def matmul_speed(config: Config) -> float:
    """FLOP/s of the MLP's first product over a steady window's tokens; the best of several."""
    tokens = (SPAN_BLOCKS - 1) * config.block_tokens
    dtype = getattr(torch, config.dtype)
    x, w = torch.randn(tokens, config.dim).to(dtype), torch.randn(config.ffn_dim, config.dim).to(dtype)
    bias = torch.zeros(config.ffn_dim, dtype=dtype)
    best = math.inf
    for _ in range(8):
        begin = time.perf_counter()
        linear(x, w, bias)
        best = min(best, time.perf_counter() - begin)
    return 2 * tokens * config.dim * config.ffn_dim / best


def memory_growth() -> str:
    """Resident memory of this process while one long clip of the preset tiny passes each of MEMORY_FRAMES."""
    config = Config.preset("tiny")
    run = generate(config, Dit.random(config), prompt_embeds=torch.zeros(1, config.text_dim), frames=MEMORY_FRAMES[-1])
    seen = []
    for event in run:
        if isinstance(event, BlockReady) and BLOCK_FRAMES * (event.block + 1) in MEMORY_FRAMES:
            pages = int(Path("/proc/self/statm").read_text().split()[1])
            seen.append(pages * os.sysconf("SC_PAGE_SIZE"))
    before, after = seen
    first, last = MEMORY_FRAMES
    growth = after / before - 1
    return f"{before / 1e6:.1f} MB after {first} latent frames, {after / 1e6:.1f} MB after {last}: {growth:+.2%}"


def cpu_name() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


if __name__ == "__main__":
    main()
