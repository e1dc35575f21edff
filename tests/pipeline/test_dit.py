"""The model: its parameters, strict loading, and passes that share a call."""

import math

import pytest
import torch

from nkismith.pipeline.config import preset
from nkismith.pipeline.dit import Dit, load_dit, parameter_shapes
from nkismith.pipeline.errors import WeightsError
from nkismith.pipeline.ops import Ops
from nkismith.pipeline.ring import Ring
from nkismith.pipeline.schedule import Pass, update_pass
from nkismith.pipeline.sharding import Layout

CONFIG = preset("tiny")


@pytest.fixture(scope="module")
def dit():
    return Dit.random(CONFIG, seed=1)


def test_parameters_are_the_published_ones():
    shapes = parameter_shapes(preset("wan-1.3b"))
    assert len(shapes) == 825
    assert sum(math.prod(shape) for shape in shapes.values()) == 1_418_996_800
    assert shapes["patch_embedding.weight"] == (1536, 16, 1, 2, 2)
    assert shapes["time_projection.1.weight"] == (9216, 1536)
    assert shapes["blocks.29.modulation"] == (1, 6, 1536)
    assert shapes["blocks.0.cross_attn.norm_k.weight"] == (1536,)
    assert shapes["blocks.7.ffn.2.weight"] == (1536, 8960)
    assert shapes["head.head.weight"] == (64, 1536)
    assert shapes["head.modulation"] == (1, 2, 1536)


def test_one_message_names_all_that_is_wrong_with_the_weights(dit):
    tensors = dict(dit.state_dict())
    del tensors["blocks.1.ffn.0.bias"], tensors["head.modulation"]
    tensors["blocks.0.self_attn.q.weight"] = torch.zeros(48, 47)
    tensors["blocks.2.modulation"] = torch.zeros(1, 6, 48)
    with pytest.raises(WeightsError) as caught:
        load_dit(tensors, CONFIG)
    for name in ("blocks.1.ffn.0.bias", "head.modulation", "blocks.0.self_attn.q.weight", "blocks.2.modulation"):
        assert name in str(caught.value)


def test_wrapper_and_fsdp_segments_are_stripped(dit):
    wrapped = {
        f"model._fsdp_wrapped_module.{n}".replace(".ffn", "._fsdp_wrapped_module.ffn"): t
        for n, t in dit.state_dict().items()
    }
    for name, tensor in load_dit(wrapped, CONFIG).state_dict().items():
        assert torch.equal(tensor, dit.state_dict()[name])


def test_random_weights_are_reproducible_and_bfloat16_rounds_them(dit):
    again, rounded = Dit.random(CONFIG, seed=1), Dit.random(preset("tiny", dtype="bfloat16"), seed=1)
    for name, tensor in dit.state_dict().items():
        assert torch.equal(again.state_dict()[name], tensor)
        assert torch.equal(rounded.state_dict()[name], tensor.bfloat16())
    assert not torch.equal(
        Dit.random(CONFIG, seed=2).state_dict()["head.modulation"], dit.state_dict()["head.modulation"]
    )


class Session:
    """What the calls of one generation share."""

    def __init__(self, dit):
        draw = torch.Generator().manual_seed(5)
        self.dit, self.ops = dit, Ops()
        self.ring = Ring(CONFIG, CONFIG.num_heads)
        self.time = dit.time_table((1000.0, 500.0, 0.0))
        self.prompt = dit.prompt_keys(torch.randn(16, 32, generator=draw), self.ops)

    def __call__(self, x, rows, *passes):
        return self.dit(
            x,
            rows,
            passes,
            time=self.time,
            prompt=self.prompt,
            ring=self.ring,
            ops=self.ops,
            layout=Layout(),
        )


def test_passes_that_share_a_call_equal_separate_calls(dit):
    draw = torch.Generator().manual_seed(9)
    clean, noisy = torch.randn(30, 16, 6, 10, generator=draw), torch.randn(6, 16, 6, 10, generator=draw)
    separate, joined = Session(dit), Session(dit)
    for session in (separate, joined):
        for block in range(9):
            session(clean[3 * block : 3 * block + 3], [2] * 3, update_pass(block))
    denoise = Pass(10, 2, (0, 8, 9), False)
    separate(clean[27:], [2] * 3, update_pass(9))
    want = separate(noisy, [0] * 3 + [1] * 3, denoise)
    got = joined(torch.cat((clean[27:], noisy)), [2] * 3 + [0] * 3 + [1] * 3, update_pass(9), denoise)
    torch.testing.assert_close(got[3:], want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(joined.ring.k, separate.ring.k, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(joined.ring.v, separate.ring.v, rtol=1e-5, atol=1e-5)


def test_the_flow_depends_on_everything_it_should(dit):
    x = torch.randn(3, 16, 6, 10, generator=torch.Generator().manual_seed(2))

    def flow(change=lambda session: None, x=x, rows=(0, 0, 0)):
        session = Session(dit)
        session(x + 1, [2] * 3, update_pass(0))
        change(session)
        return session(x, rows, Pass(1, 1, (0,), False))

    def other_prompt(session):
        session.prompt = dit.prompt_keys(torch.ones(16, 32), session.ops)

    def other_past(session):
        session.ring.k.mul_(-1)

    base = flow()
    assert torch.equal(base, flow())
    for changed in (flow(other_prompt), flow(other_past), flow(rows=(1, 1, 1)), flow(x=x.flip(-1))):
        assert (changed - base).norm() > 1e-3 * base.norm()


@pytest.mark.parametrize("tokens", [0, 1, 5, 16])
def test_every_row_of_padding_is_a_key_and_all_are_equal(dit, tokens):
    embeds = torch.randn(16, 32, generator=torch.Generator().manual_seed(4))
    embeds[tokens:] = 0
    context = dit.text_embedding(embeds)
    for block, keys in zip(dit.layers, dit.prompt_keys(embeds, Ops()), strict=True):
        for got, want in zip(keys, block.cross_attn.prompt_keys(context, Ops()), strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)
            assert all(torch.equal(row, got[-1]) for row in got[tokens:])


def test_a_block_that_was_never_written_cannot_be_read(dit):
    with pytest.raises(KeyError, match="block 0 is not in the ring"):
        Session(dit)(torch.zeros(3, 16, 6, 10), [0] * 3, Pass(5, 1, (0, 4), False))
