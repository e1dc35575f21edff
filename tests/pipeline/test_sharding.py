"""Runs over several ranks: equal to one rank, frugal with traffic, and clear when something goes wrong."""

import os
import signal
import socket
import subprocess
import sys
import time

import pytest
import torch
import torch.multiprocessing as mp

from nkismith.pipeline import Dit, generate, preset
from nkismith.pipeline.config import Config
from nkismith.pipeline.errors import InputError
from nkismith.pipeline.events import BlockReady, Done, WindowStarted
from nkismith.pipeline.ranks import joined
from nkismith.pipeline.sharding import RankLayout, head_ranks
from nkismith.pipeline.video import load_latents

CONFIG = preset("tiny8")
MINUTE = 60
STEADY = 10  # a window in which five blocks are denoised and one is updated


def rank_variables(ranks):
    """What torchrun tells every rank."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}


def embeds():
    return torch.randn(6, CONFIG.text_dim, generator=torch.Generator().manual_seed(3))


def run(config, layout=None):
    """The latents of thirteen blocks, and the traffic of one steady window."""
    # The prompt of the ranks after the first is another one: what counts is that of the first.
    given = embeds() if layout is None or layout.rank == 0 else torch.zeros(1, config.text_dim)
    events = generate(config, Dit.random(config), prompt_embeds=given, frames=42, layout=layout)
    latents, marks = [], {}
    for event in events:
        if isinstance(event, WindowStarted) and layout:
            marks[event.window] = dict(vars(layout.traffic))
        if isinstance(event, BlockReady):
            latents.append(event.latents)
            if event.block == 4 and (layout is None or layout.rank == 0):
                events.switch_prompt(-embeds())
            if event.block == 2 and layout and layout.rank == 1:
                events.switch_prompt(embeds() + 1)  # not of the first rank, so of no effect
            if event.block == 12 and layout and layout.rank == 0:
                events.cancel()
        if isinstance(event, Done) and layout:
            assert event.cancelled  # asked for by the first rank alone
    steady = {name: marks[STEADY + 1][name] - count for name, count in marks[STEADY].items()} if layout else {}
    return torch.cat(latents[:13]), steady


def worker(rank, variables, folder, config):
    os.environ.update(variables, RANK=str(rank))
    torch.set_num_threads(1)
    with joined():
        result = run(config, RankLayout(config))
        torch.save(result, folder / f"{rank}.pt")


@pytest.mark.parametrize("ranks", [2, 4, pytest.param(8, marks=pytest.mark.acceptance)])
def test_ranks_together_equal_one(ranks, tmp_path):
    want, _ = run(CONFIG)
    mp.spawn(worker, (rank_variables(ranks), tmp_path, CONFIG), nprocs=ranks)
    for rank in range(ranks):
        got, traffic = torch.load(tmp_path / f"{rank}.pt")
        assert float((got - want).norm() / want.norm()) < 1e-5
        # Update and denoise of a steady window: 18 frames of 32 tokens, 192 channels, float32, in each layer.
        own = 18 * 32 // ranks * 192 * 4
        assert traffic["heads"] == CONFIG.num_layers * 3 * own
        assert traffic["partner"] == CONFIG.num_layers * (2 * own if ranks == 8 else 0)
        assert traffic["tokens"] == CONFIG.num_layers * own
        assert traffic["flow"] == 18 * 32 * 64 * 4
        assert traffic["copied"] <= CONFIG.num_layers * (3 + 3 + 3 + 2 + 2 + 1 + 1) * own * 2


def test_traffic_of_the_full_size_is_that_of_the_design():
    """53.9 MB a layer, rank and steady window in place of 258.8 MB of gathers, on eight ranks in bfloat16."""
    config = preset("wan-1.3b")
    own = 18 * config.frame_tokens // 8 * config.dim * 2
    assert round(own / 1e6, 1) == 10.8
    assert round((3 + 2) * own / 1e6, 1) == 53.9


@pytest.mark.parametrize(
    ("preset_name", "ranks", "heads"),
    [
        ("wan-1.3b", 1, 1),
        ("wan-1.3b", 2, 2),
        ("wan-1.3b", 4, 4),
        ("wan-1.3b", 8, 4),
        ("wan-1.3b", 24, 12),
        ("tiny8", 8, 4),
    ],
)
def test_heads_are_split_as_far_as_they_divide(preset_name, ranks, heads):
    assert head_ranks(preset(preset_name), ranks) == heads


@pytest.mark.parametrize(
    ("config", "ranks", "message"),
    [
        (preset("wan-1.3b"), 16, "16 ranks do not fit wan-1.3b: its 12 heads"),
        (preset("wan-1.3b"), 5, "Possible: 1, 2, 3, 4, 6, 8, 12, 24"),
        (preset("tiny"), 2, "the 15 tokens of a frame over all ranks. Possible: 1, 3"),
        (preset("tiny8"), 32, "Possible: 1, 2, 4, 8"),
    ],
)
def test_refuses_more_ranks_than_heads_and_tokens_allow(config: Config, ranks, message):
    with pytest.raises(InputError, match=message):
        head_ranks(config, ranks)


def start(ranks, *arguments):
    variables = rank_variables(ranks)
    return [
        subprocess.Popen(
            [sys.executable, "-m", "nkismith.pipeline", *map(str, arguments)],
            env={**os.environ, **variables, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(ranks)
    ]


def finish(processes):
    """(exit code, stderr) of every rank."""
    try:
        errors = [process.communicate(timeout=MINUTE)[1] for process in processes]
        return [(process.returncode, error) for process, error in zip(processes, errors, strict=True)]
    finally:
        for process in processes:
            process.kill()


@pytest.mark.parametrize("ranks", [2, pytest.param(4, marks=pytest.mark.acceptance)])
def test_a_rank_that_dies_stops_the_others_with_a_message(ranks, tmp_path):
    out = tmp_path / "video.mp4"
    processes = start(ranks, "--frames", 3000, "--out", out)
    for line in processes[0].stdout:
        if line.startswith("window 6/"):
            break
    processes[1].send_signal(signal.SIGKILL)
    began = time.monotonic()
    results = finish(processes)
    assert time.monotonic() - began < MINUTE / 2
    assert results.pop(1)[0] == -signal.SIGKILL
    for code, error in results:
        assert code == 2
        assert "because another rank stopped or does not answer" in error
        assert "Traceback" not in error
    assert list(tmp_path.iterdir()) == []


def test_every_rank_names_the_reason_of_the_one_that_failed(tmp_path):
    results = finish(start(2, "--frames", 15, "--out", tmp_path / "missing" / "video.mp4"))
    assert [code for code, _ in results] == [2, 2]
    for _, error in results:
        assert "missing does not exist" in error
        assert "Traceback" not in error


@pytest.mark.acceptance
def test_torchrun_with_eight_ranks_writes_the_video_of_one(tmp_path):
    arguments = ["-m", "nkismith.pipeline", "--preset", "tiny8", "--frames", "42", "--latents"]
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "8"]
    subprocess.run(
        [*torchrun, *arguments, tmp_path / "8.safetensors", "--out", tmp_path / "8.mp4"], check=True, timeout=5 * MINUTE
    )
    subprocess.run([sys.executable, *arguments, tmp_path / "1.safetensors"], check=True, timeout=5 * MINUTE)

    got, want = load_latents(tmp_path / "8.safetensors"), load_latents(tmp_path / "1.safetensors")
    assert float((got - want).norm() / want.norm()) < 1e-5
    assert (tmp_path / "8.mp4").stat().st_size > 0
