"""The random numbers of a seed are those one generator gives in the published order."""

import pytest
import torch

from nkismith.pipeline.config import preset
from nkismith.pipeline.errors import InputError
from nkismith.pipeline.noise import Noise
from nkismith.pipeline.schedule import windows

BLOCKS = 6


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_seed_draws_in_the_published_order(dtype):
    config = preset("tiny", dtype=dtype)
    torch.manual_seed(11)
    whole = torch.randn(1, 3 * BLOCKS, 16, 6, 10, dtype=getattr(torch, dtype))[0]
    noise = Noise(config, BLOCKS, seed=11)
    for window in windows(BLOCKS, 5):
        if window.admitted is not None:
            block = window.admitted
            assert torch.equal(noise.admit(window), whole[3 * block : 3 * block + 3])
        for block, level in zip(window.blocks, window.levels, strict=True):
            if level == 4:
                continue
            drawn = torch.randn(1, 3 * len(window.levels), 16, 6, 10, dtype=whole.dtype)[0]
            place = 3 * (block - window.first)
            assert torch.equal(noise.renoise(window, block, level + 1), drawn[place : place + 3])


def test_a_clip_without_end_has_the_same_initial_noise():
    config = preset("tiny")
    clip, endless = Noise(config, BLOCKS, seed=3), Noise(config, None, seed=3)
    for window in list(windows(BLOCKS, 5))[:5]:
        assert torch.equal(clip.admit(window), endless.admit(window))


def test_supplied_noise_comes_in_slices_and_renoising_from_the_caller():
    config = preset("tiny", dtype="bfloat16")
    supplied = torch.randn(18, 16, 6, 10)
    asked = []

    def renoise(window, block, step, shape):
        asked.append((window, block, step, shape))
        return torch.full((1, *shape), 2.0)

    noise = Noise(config, BLOCKS, 0, supplied, renoise)
    window = list(windows(BLOCKS, 5, given=2))[5]
    assert torch.equal(noise.admit(window), supplied[15:].bfloat16())
    assert torch.equal(noise.renoise(window, 4, 3), torch.full((3, 16, 6, 10), 2.0, dtype=torch.bfloat16))
    assert asked == [(5, 4, 3, (3, 16, 6, 10))]


def test_renoising_of_another_shape_is_refused():
    noise = Noise(preset("tiny"), BLOCKS, 0, None, lambda window, block, step, shape: torch.zeros(15, 16, 6, 10))
    message = r"renoise\(window=1, block=0, step=2\) gave \[15, 16, 6, 10\]; expected \[3, 16, 6, 10\], or 6 frames"
    with pytest.raises(InputError, match=message):
        noise.renoise(list(windows(BLOCKS, 5))[1], 0, 2)


def test_of_noise_for_the_whole_window_the_frames_of_the_block_are_used():
    drawn = torch.randn(1, 15, 16, 6, 10)
    noise = Noise(preset("tiny"), BLOCKS, 0, None, lambda window, block, step, shape: drawn)
    window = list(windows(BLOCKS, 5, given=2))[5]
    assert window.first == 3
    assert torch.equal(noise.renoise(window, 4, 4), drawn[0, 3:6])
