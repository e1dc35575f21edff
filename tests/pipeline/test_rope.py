"""Rotary angles against the formula, and attention's indifference to a common offset."""

import math

import pytest
import torch

from nkismith.pipeline.config import preset
from nkismith.pipeline.ops import rope_3d
from nkismith.pipeline.rope import axis_pairs, rope_table


@pytest.mark.parametrize(("head_dim", "pairs"), [(128, (22, 21, 21)), (64, (12, 10, 10)), (16, (4, 2, 2))])
def test_channels_are_shared_out_as_published(head_dim, pairs):
    assert axis_pairs(head_dim) == pairs
    assert sum(pairs) == head_dim // 2


def test_angles_are_position_times_frequency_of_the_axis():
    config = preset("wan-1.3b")
    table = rope_table(config)
    assert table.cos.shape == (21, 1560, 64)
    frame, row, column = 20, 29, 51
    token = row * 52 + column
    for pair, (position, index, channels) in {
        3: (frame, 3, 44),
        22 + 5: (row, 5, 42),
        22 + 21 + 20: (column, 20, 42),
    }.items():
        angle = position * 10000 ** (-2 * index / channels)
        assert table.cos[frame, token, pair] == pytest.approx(math.cos(angle), abs=1e-7)
        assert table.sin[frame, token, pair] == pytest.approx(math.sin(angle), abs=1e-7)


def test_scores_depend_on_differences_of_frames_only():
    config = preset("tiny")
    table = rope_table(config)
    draw = torch.Generator().manual_seed(0)
    q, k = torch.randn(2, config.frame_tokens, 3, config.head_dim, generator=draw)

    def scores(q_frame, k_frame):
        rotated = (rope_3d(x, table.cos[f], table.sin[f]) for x, f in ((q, q_frame), (k, k_frame)))
        return torch.einsum("shd,lhd->hsl", *rotated)

    torch.testing.assert_close(scores(20, 13), scores(7, 0), rtol=0, atol=1e-5)
    assert (scores(20, 13) - scores(20, 12)).abs().max() > 0.1
