"""Noise levels and windows against the published tables; attention spans as pure functions of block numbers."""

from itertools import islice

import numpy as np
import pytest

from nkismith.pipeline.config import preset
from nkismith.pipeline.ring import slot_of
from nkismith.pipeline.schedule import (
    Pass,
    denoise_pass,
    noise_levels,
    update_matters,
    update_pass,
    windows,
)

LEVELS = 5


def test_noise_levels_are_the_published_ones():
    levels = noise_levels(preset("wan-1.3b"))
    want = np.float32([1000, 952.38104, 882.35291, 769.23077, 555.55560])
    assert np.float32(levels.timesteps).tolist() == want.tolist()
    assert levels.sigmas == pytest.approx([1, 0.952381, 0.882353, 0.769231, 0.555556], abs=5e-7)


def test_windows_of_a_short_clip():
    got = [(w.first, w.levels, w.phase, w.admitted) for w in windows(6, LEVELS)]
    assert got == [
        (0, (0,), "fill", 0),
        (0, (1, 0), "fill", 1),
        (0, (2, 1, 0), "fill", 2),
        (0, (3, 2, 1, 0), "fill", 3),
        (0, (4, 3, 2, 1, 0), "steady", 4),
        (1, (4, 3, 2, 1, 0), "steady", 5),
        (2, (4, 3, 2, 1), "drain", None),
        (3, (4, 3, 2), "drain", None),
        (4, (4, 3), "drain", None),
        (5, (4,), "drain", None),
    ]


@pytest.mark.parametrize("given", [0, 3])
@pytest.mark.parametrize("blocks", [5, 14, 60])
def test_every_block_goes_through_every_level_once_and_in_order(blocks, given):
    seen = {}
    for window in windows(blocks, LEVELS, given):
        for block, level in zip(window.blocks, window.levels, strict=True):
            seen.setdefault(block, []).append(level)
    assert seen == {given + block: [0, 1, 2, 3, 4] for block in range(blocks)}


def test_a_clip_without_end_stays_steady():
    window = next(islice(windows(None, LEVELS), 1000, None))
    assert (window.first, window.levels, window.phase) == (996, (4, 3, 2, 1, 0), "steady")


@pytest.mark.parametrize(
    ("window", "past"),
    [
        (0, ()),
        (4, ()),  # block 0 is in the window itself
        (5, (0,)),
        (6, (0, 1)),
        (9, (0, 4)),  # steady: the sink, one block, and five of its own
        (14, (0, 8, 9)),  # drain of 14 blocks: room for what left
        (15, (0, 8, 9, 10)),
        (16, (0, 8, 9, 10, 11)),
        (17, (0, 8, 9, 10, 11, 12)),
    ],
)
def test_denoising_attends_to_the_sink_and_the_latest_blocks(window, past):
    a_pass = denoise_pass(list(windows(14, LEVELS))[window])
    assert a_pass.past == past
    assert len(a_pass.past) + a_pass.blocks <= 7
    assert not a_pass.writes


def test_an_update_attends_to_six_blocks_and_loses_the_sink():
    assert update_pass(0) == Pass(0, 1, (), True)
    assert update_pass(6).past == (0, 1, 2, 3, 4, 5)
    assert update_pass(7).past == (1, 2, 3, 4, 5, 6)
    assert update_pass(12, oldest=9).past == (9, 10, 11)


def test_dead_updates_are_those_of_the_fill_phase_and_the_last_block():
    clip = list(windows(14, LEVELS))
    assert [w.first for w in clip if update_matters(w, LEVELS, 14)] == list(range(13))
    assert [w.index for w in clip if not update_matters(w, LEVELS, 14)] == [0, 1, 2, 3, 17]
    assert all(update_matters(w, LEVELS, None) for w in islice(windows(None, LEVELS), 4, 100))


def test_the_ring_still_holds_whatever_a_pass_reads():
    held = {}
    for window in windows(60, LEVELS):
        passes = [denoise_pass(window)]
        if window.first > 0:
            passes.insert(0, update_pass(window.first - 1))
        for a_pass in passes:
            assert all(held[slot_of(block)] == block for block in a_pass.past)
            if a_pass.writes:
                assert held.get(slot_of(a_pass.first)) in (None, a_pass.first - 7)
                held[slot_of(a_pass.first)] = a_pass.first
    assert len(held) == 8
