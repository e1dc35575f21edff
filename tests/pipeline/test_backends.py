"""The accepted kernels, on the simulator, in a whole generation: the latents are those of PyTorch."""

import pytest
import torch

from nkismith.pipeline import BlockReady, Dit, Done, generate, preset

KERNELS = ("rope_3d", "kv_cache_update", "rolling_attention")
FRAMES = 42  # long enough that the ring replaces blocks


@pytest.mark.parametrize(("dtype", "tolerance"), [("float32", 1e-4), ("bfloat16", 2e-2)])
def test_simulated_kernels_give_the_latents_of_pytorch(dtype, tolerance):
    config = preset("tiny", dtype=dtype)
    dit = Dit.random(config, seed=2)
    embeds = torch.randn(6, config.text_dim, generator=torch.Generator().manual_seed(0))

    def run(backend):
        events = list(generate(config, dit, prompt_embeds=embeds, frames=FRAMES, backend=backend))
        assert isinstance(events[-1], Done)
        return torch.cat([event.latents for event in events if isinstance(event, BlockReady)]).double(), events[-1]

    want, _ = run("torch")
    got, done = run(dict.fromkeys(KERNELS, "sim"))
    assert {op for op, backend in done.backends.items() if backend == "sim"} == set(KERNELS)
    assert done.fallbacks == {}
    assert float((got - want).norm() / want.norm()) < tolerance
