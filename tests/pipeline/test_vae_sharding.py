"""The VAE split by width over real processes, against one process."""

import os
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from nkismith.pipeline.config import Config
from nkismith.pipeline.errors import InputError, RankFailed
from nkismith.pipeline.vae import Vae
from nkismith.pipeline.vae_sharding import ShardedVae, split_width

LATENTS = (5, 16, 4)
CUT = (3, 1, 1)

# What crosses an edge, from the published list of layers: 30 three-dimensional convolutions and 3
# upsamplings, each with its channels and rows (in units of vae_dim and of latent rows) and the frames
# that a latent frame after the first has there. decoder.conv1, with 16 channels at any size, is apart.
EDGES = [
    *([(4, 1, 1)] * 10),  # middle.0, middle.2, upsamples.0-2
    (4, 1, 2),  # upsamples.3, before it doubles the rows
    (2, 2, 2),  # upsamples.4, first convolution
    *([(4, 2, 2)] * 5),  # the other five of upsamples.4-6
    (4, 2, 4),  # upsamples.7
    *([(2, 4, 4)] * 6),  # upsamples.8-10
    (2, 4, 4),  # upsamples.11
    *([(1, 8, 4)] * 6),  # upsamples.12-14
    (1, 8, 4),  # head
]


def edge_values(dim, rows):
    """Values of one edge for a latent frame after the first."""
    return 16 * rows + sum(channels * dim * height * rows * frames for channels, height, frames in EDGES)


def first_edge_values(dim, rows):
    """The same for the first latent frame, which stays one frame throughout."""
    return 16 * rows + sum(channels * dim * height * rows for channels, height, _ in EDGES)


def connect(rank, ranks, store):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"file://{store}", rank=rank, world_size=ranks, timeout=timedelta(seconds=60)
    )


def worker(rank, ranks, store, width):
    connect(rank, ranks, store)
    config = Config.preset("tiny")
    vae = Vae.random(config, seed=7)
    latents = torch.randn(*LATENTS, width, generator=torch.Generator().manual_seed(8))
    want = vae.decode(latents)

    sent = []
    for point_to_point in (True, False):
        sharded = ShardedVae(vae, point_to_point=point_to_point)
        state = sharded.new_state()
        got = torch.cat([sharded.decode(piece, state) for piece in latents.split(CUT)])
        assert got.shape == want.shape
        assert (got - want).norm() / want.norm() < 1e-5
        sent.append(sharded.traffic)

    rows = LATENTS[2]
    edge = 4 * (first_edge_values(config.vae_dim, rows) + (LATENTS[0] - 1) * edge_values(config.vae_dim, rows))
    neighbours = (rank > 0) + (rank < ranks - 1)
    assert sent[0].halo == neighbours * edge
    assert sent[1].halo == 2 * (ranks - 1) * edge
    assert sent[0].exchanges == 33 * LATENTS[0]
    assert sent[0].largest_edge == 4 * config.vae_dim * 8 * rows * 4
    widest = -(-width // ranks)
    assert sent[0].attention == 4 * (ranks - 1) * LATENTS[0] * 4 * config.vae_dim * rows * widest
    assert sent[0].pixels == 4 * (ranks - 1) * len(want) * 3 * 8 * rows * 8 * widest

    widths = split_width(width, ranks)
    own = slice(8 * sum(widths[:rank]), 8 * sum(widths[: rank + 1]))
    got = ShardedVae(vae).decode_columns(latents, together=3)
    assert (got - want[..., own]).norm() / want.norm() < 1e-5

    half = Vae.random(config.changed(dtype="bfloat16"), seed=7)
    assert (ShardedVae(half).decode(latents) - want).norm() / want.norm() < 3e-2

    try:
        ShardedVae(vae).decode(latents[..., : ranks - 1])
    except InputError as error:
        assert f"at most {ranks - 1}" in str(error)
    else:
        raise AssertionError("a rank without columns was accepted")
    dist.destroy_process_group()


def survivor(rank, ranks, store):
    """The last rank leaves in the middle of a stream; the others must say so, and soon."""
    connect(rank, ranks, store)
    sharded = ShardedVae(Vae.random(Config.preset("tiny")))
    state = sharded.new_state()
    latents = torch.zeros(1, 16, 2, 4)
    sharded.decode(latents, state)
    if rank == ranks - 1:
        os._exit(0)
    try:
        sharded.decode(latents, state)
    except RankFailed as error:
        assert "another rank" in str(error)
        os._exit(0)  # the group cannot be taken down in order any more
    raise AssertionError("decoding went on without a rank")


@pytest.mark.parametrize(
    ("ranks", "width"), [(2, 10), (4, 10), pytest.param(8, 16, marks=pytest.mark.acceptance)], ids=str
)
def test_split_over_processes_equals_one_process(tmp_path, ranks, width):
    mp.spawn(worker, (ranks, str(tmp_path / "store"), width), nprocs=ranks)


def test_a_rank_that_dies_is_reported_by_the_others(tmp_path):
    mp.spawn(survivor, (2, str(tmp_path / "store")), nprocs=2)


def test_widths_are_as_even_as_they_can_be():
    assert split_width(104, 8) == (13,) * 8
    assert split_width(10, 4) == (3, 3, 2, 2)
    assert split_width(3, 3) == (1, 1, 1)
    with pytest.raises(InputError, match="at most 3 ranks"):
        split_width(3, 4)
