"""The whole generation against the published algorithm, long enough that the cache evicts."""

import pytest
import torch
from torch import Tensor

from nkismith.pipeline.config import preset
from nkismith.pipeline.dit import Dit
from nkismith.pipeline.events import BlockReady
from nkismith.pipeline.generation import generate
from tests.pipeline.original import Original

FRAMES = 42


def relative_l2(got: Tensor, want: Tensor) -> float:
    return float((got.double() - want.double()).norm() / want.double().norm())


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-5), ("bfloat16", 2e-2)])
def test_latents_equal_the_originals(dtype, tolerance):
    config = preset("tiny", dtype=dtype)
    dit = Dit.random(config, seed=3)
    draw = torch.Generator().manual_seed(7)
    embeds = torch.randn(config.text_len, config.text_dim, generator=draw).to(getattr(torch, dtype))
    embeds[5:] = 0
    noise = torch.randn(FRAMES, *config.block_shape[1:], generator=draw).to(getattr(torch, dtype))
    renoising = torch.randn(18, *noise.shape, generator=draw).to(getattr(torch, dtype))

    def window_noise(window, block, shape):
        first = max(0, window - 4)
        return renoising[window, 3 * first : 3 * first + shape[0]]

    def block_noise(window, block, step, shape):
        assert step == window - block + 1
        return renoising[window, 3 * block : 3 * block + 3].reshape(shape)

    original = Original(
        dict(dit.state_dict()), heads=config.num_heads, rows=config.rows, cols=config.cols, freq_dim=config.freq_dim
    )
    want = original.generate(noise, embeds, window_noise)
    events = generate(config, dit, prompt_embeds=embeds, noise=noise, renoise=block_noise)
    got = torch.cat([event.latents for event in events if isinstance(event, BlockReady)])
    assert relative_l2(got, want) < tolerance
    print(dtype, relative_l2(got, want))
