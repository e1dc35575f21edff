"""The whole generation against the published algorithm, long enough that the cache evicts."""

import pytest
import torch
from torch import Tensor

from nkismith.pipeline import schedule
from nkismith.pipeline.config import Config, preset
from nkismith.pipeline.dit import Dit
from nkismith.pipeline.events import BlockReady
from nkismith.pipeline.generation import generate
from tests.pipeline.original import Original

FRAMES = 42
WINDOWS = FRAMES // 3 + 4


class Clip:
    """One set of weights and random numbers, for both implementations."""

    def __init__(self, config: Config, given: int = 0) -> None:
        self.config = config
        self.dit = Dit.random(config, seed=3)
        dtype = getattr(torch, config.dtype)
        draw = torch.Generator().manual_seed(7)
        self.embeds = torch.randn(config.text_len, config.text_dim, generator=draw).to(dtype)
        self.embeds[5:] = 0
        self.noise = torch.randn(FRAMES, *config.block_shape[1:], generator=draw).to(dtype)
        self.renoising = torch.randn(WINDOWS, *self.noise.shape, generator=draw).to(dtype)
        self.given = torch.randn(3 * given, *config.block_shape[1:], generator=draw).to(dtype) if given else None
        self.ahead = given

    def window_noise(self, window: int, block: int, shape: tuple[int, ...]) -> Tensor:
        first = max(0, window - 4)
        return self.renoising[window, 3 * first : 3 * first + shape[0]]

    def block_noise(self, window: int, block: int, step: int, shape: tuple[int, ...]) -> Tensor:
        block -= self.ahead
        assert step == window - block + 1
        return self.renoising[window, 3 * block : 3 * block + 3].reshape(shape)

    def ours(self) -> Tensor:
        events = generate(
            self.config,
            self.dit,
            prompt_embeds=self.embeds,
            noise=self.noise,
            renoise=self.block_noise,
            given=self.given,
        )
        return torch.cat([event.latents for event in events if isinstance(event, BlockReady)])

    def originals(self) -> Tensor:
        config = self.config
        original = Original(
            dict(self.dit.state_dict()),
            heads=config.num_heads,
            rows=config.rows,
            cols=config.cols,
            freq_dim=config.freq_dim,
        )
        return original.generate(self.noise, self.embeds, self.window_noise, self.given)


def relative_l2(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want.double()).norm() / want.double().norm())


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2)])
def test_latents_equal_the_originals(dtype, tolerance):
    clip = Clip(preset("tiny", dtype=dtype))
    assert relative_l2(clip.ours(), clip.originals()) < tolerance


@pytest.mark.parametrize("given", [1, 9])
def test_a_continued_clip_equals_the_originals_after_update_passes(given):
    clip = Clip(preset("tiny"), given)
    assert relative_l2(clip.ours(), clip.originals()) < 1e-5


def test_other_attention_spans_would_be_noticed(monkeypatch):
    """Taking the update's keys after eviction, as a known port does, or keeping the sink in update passes."""
    clip = Clip(preset("tiny"))
    want = clip.ours()

    def evicted(block: int, oldest: int = 0) -> schedule.Pass:
        return schedule.Pass(block, 1, tuple(range(max(oldest, block - 5), block)), writes=True)

    def with_sink(block: int, oldest: int = 0) -> schedule.Pass:
        past = tuple(range(max(oldest, block - 6), block))
        return schedule.Pass(block, 1, past if block < 7 else (0, *past[1:]), writes=True)

    for wrong in (evicted, with_sink):
        monkeypatch.setattr("nkismith.pipeline.rolling.update_pass", wrong)
        assert relative_l2(clip.ours(), want) > 1e-4
