"""The public front: events and their order, steering a run, and what is refused before it starts."""

import itertools

import numpy as np
import pytest
import torch

from nkismith.pipeline import (
    BlockReady,
    Config,
    Dit,
    Done,
    Failed,
    FramesReady,
    InputError,
    StageTimed,
    Weights,
    WindowStarted,
    generate,
    preset,
)
from nkismith.pipeline.noise import Noise
from nkismith.pipeline.ops import Ops
from nkismith.pipeline.rolling import Rolling
from nkismith.pipeline.sharding import Layout

CONFIG = preset("tiny")
EMBEDS = torch.randn(4, CONFIG.text_dim, generator=torch.Generator().manual_seed(1))
OTHER = torch.randn(7, CONFIG.text_dim, generator=torch.Generator().manual_seed(2))


@pytest.fixture(scope="module")
def weights():
    return Weights.random(CONFIG)


@pytest.fixture(scope="module")
def dit(weights):
    return weights.dit


def latents(run):
    return {event.block: event.latents for event in run if isinstance(event, BlockReady)}


def clip(dit, frames=27, **options):
    return latents(generate(CONFIG, dit, **{"prompt_embeds": EMBEDS, "frames": frames, **options}))


def test_events_tell_the_whole_story(weights):
    events = list(generate(CONFIG, weights, prompt_embeds=EMBEDS, frames=18))
    started = [event for event in events if isinstance(event, WindowStarted)]
    assert [event.window for event in started] == list(range(10))
    assert {event.total for event in started} == {10}
    ready = [event for event in events if isinstance(event, BlockReady)]
    assert [event.block for event in ready] == list(range(6))
    assert all(event.latents.shape == (3, 16, 6, 10) for event in ready)
    frames = [event for event in events if isinstance(event, FramesReady)]
    assert [event.first for event in frames] == [0, 9, 21, 33, 45, 57]
    assert [tuple(event.pixels.shape) for event in frames] == [(9, 3, 48, 80)] + [(12, 3, 48, 80)] * 5
    assert {event.stage for event in events if isinstance(event, StageTimed)} == {"prompt", "dit", "vae"}
    done = events[-1]
    assert isinstance(done, Done)
    assert (done.blocks, done.frames, done.cancelled, dict(done.fallbacks)) == (6, 69, False, {})
    assert set(done.backends.values()) == {"torch"}
    assert 0 < done.first_block_seconds < done.first_frames_seconds < done.seconds
    assert done.fps == pytest.approx(69 / done.seconds)


def test_pixels_stream_as_one_decode_of_all_latents(weights):
    events = list(generate(CONFIG, weights, prompt_embeds=EMBEDS, frames=15))
    streamed = torch.cat([event.pixels for event in events if isinstance(event, FramesReady)])
    whole = torch.cat([event.latents for event in events if isinstance(event, BlockReady)])
    torch.testing.assert_close(streamed, weights.vae.decode(whole), rtol=0, atol=1e-5)


def test_the_first_block_is_ready_after_five_windows(dit):
    events = generate(CONFIG, dit, prompt_embeds=EMBEDS, frames=42)
    before = list(itertools.takewhile(lambda event: not isinstance(event, BlockReady), events))
    assert sum(isinstance(event, WindowStarted) for event in before) == 5


def test_a_seed_is_reproducible_and_seeds_differ(dit):
    first, again, other = clip(dit, seed=5), clip(dit, seed=5), clip(dit, seed=6)
    assert all(torch.equal(first[block], again[block]) for block in first)
    assert not torch.equal(first[0], other[0])


def test_a_seed_equals_its_numbers_supplied(dit):
    torch.manual_seed(5)
    noise = torch.randn(1, 27, *CONFIG.block_shape[1:])
    drawn = {}
    for window in range(13):
        s, e = max(0, window - 4), min(8, window)
        for block in range(s, e + 1):
            if window - block < 4:
                eps = torch.randn(1, 3 * (e - s + 1), *CONFIG.block_shape[1:])
                drawn[window, block] = eps[0, 3 * (block - s) : 3 * (block - s) + 3]
    supplied = clip(dit, frames=None, noise=noise, renoise=lambda window, block, step, shape: drawn[window, block])
    for block, wanted in clip(dit, seed=5).items():
        assert torch.equal(supplied[block], wanted)


def test_mutating_what_was_yielded_changes_nothing(dit):
    want = clip(dit)
    for event in generate(CONFIG, dit, prompt_embeds=EMBEDS, frames=27):
        if isinstance(event, BlockReady):
            assert torch.equal(event.latents, want[event.block])
            event.latents.zero_()


def test_short_embeddings_are_filled_with_zero_rows(dit):
    full = torch.cat((EMBEDS, torch.zeros(CONFIG.text_len - len(EMBEDS), CONFIG.text_dim)))
    short, filled = clip(dit), clip(dit, prompt_embeds=full.unsqueeze(0))
    assert torch.equal(short[8], filled[8])


def test_cancelling_stops_at_the_next_window(dit):
    run = generate(CONFIG, dit, prompt_embeds=EMBEDS, frames=None)
    events = []
    for event in run:
        events.append(event)
        if isinstance(event, BlockReady) and event.block == 2:
            run.cancel()
    assert events[-1].cancelled
    assert events[-1].blocks == 3
    assert max(event.window for event in events if isinstance(event, WindowStarted)) == 6


def test_a_clip_without_end_goes_on_past_the_originals_position_table(dit):
    run = generate(CONFIG, dit, prompt_embeds=EMBEDS, frames=None, seed=1)
    ready = (event for event in run if isinstance(event, BlockReady))
    block = next(itertools.islice(ready, 345, None))
    assert 3 * block.block > 1024
    assert torch.isfinite(block.latents).all()
    assert 0.1 < float(block.latents.std()) < 10


def test_switching_to_the_same_prompt_changes_nothing_while_all_blocks_are_cached(dit):
    want, switched = clip(dit, frames=30), clip(dit, frames=30, switches={9: EMBEDS})
    for block, value in want.items():
        torch.testing.assert_close(switched[block], value, rtol=1e-4, atol=1e-4)


def test_a_switch_changes_the_blocks_in_flight_and_no_earlier_one(dit):
    want, switched = clip(dit, frames=42), clip(dit, frames=42, switches={12: OTHER})
    assert all(torch.equal(want[block], switched[block]) for block in range(8))
    assert all(not torch.allclose(want[block], switched[block], atol=1e-3) for block in range(8, 14))


def test_a_switch_can_be_asked_for_while_running(dit):
    run = generate(CONFIG, dit, prompt_embeds=EMBEDS, frames=27)
    got = {}
    for event in run:
        if isinstance(event, BlockReady):
            got[event.block] = event.latents
            if event.block == 2:
                run.switch_prompt(OTHER)
    want = clip(dit, switches={7: OTHER})
    assert all(torch.equal(got[block], want[block]) for block in want)


def test_recaching_leaves_what_the_new_prompt_would_have_written(dit):
    draw = torch.Generator().manual_seed(0)
    finished = torch.randn(21, *CONFIG.block_shape[1:], generator=draw)

    def rolling(prompt):
        full = torch.nn.functional.pad(prompt, (0, 0, 0, CONFIG.text_len - len(prompt)))
        noise = Noise(CONFIG, 5, seed=0)
        started = Rolling(dit, full, blocks=5, noise=noise, ops=Ops(), layout=Layout())
        started.continue_from(finished)
        return started, full

    switched, _ = rolling(EMBEDS)
    want, full = rolling(OTHER)
    assert not torch.allclose(switched.ring.v[1], want.ring.v[1], atol=1e-3)
    switched.switch_prompt(full)
    torch.testing.assert_close(switched.ring.k, want.ring.k, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(switched.ring.v, want.ring.v, rtol=1e-5, atol=1e-5)


def test_a_steady_window_writes_one_slot_of_the_ring(dit):
    noise = Noise(CONFIG, 14, seed=0)
    rolling = Rolling(dit, torch.zeros(16, 32), blocks=14, noise=noise, ops=Ops(), layout=Layout())
    for window in itertools.islice(rolling.windows(), 14):
        before = rolling.ring.k.clone(), rolling.ring.v.clone()
        written_before = rolling.ring.bytes_written
        rolling.step(window)
        if window.index <= 4:
            assert rolling.ring.held == ()  # nothing of the fill phase is ever read
            continue
        changed = {
            slot
            for slot in range(8)
            for now, was in zip((rolling.ring.k, rolling.ring.v), before, strict=True)
            if not torch.equal(now[:, slot], was[:, slot])
        }
        written = window.first - 1
        block_bytes = 2 * 45 * 48 * 4  # keys and values of 45 tokens, 48 channels, float32
        assert rolling.ring.bytes_written - written_before == CONFIG.num_layers * block_bytes
        assert changed == {0 if written == 0 else 1 + (written - 1) % 7}


def test_a_continued_clip_is_numbered_and_decoded_after_what_was_given(weights):
    given = torch.randn(6, *CONFIG.block_shape[1:], generator=torch.Generator().manual_seed(4))
    events = list(generate(CONFIG, weights, prompt_embeds=EMBEDS, frames=15, given=given))
    assert [event.block for event in events if isinstance(event, BlockReady)] == [2, 3, 4, 5, 6]
    frames = torch.cat([event.pixels for event in events if isinstance(event, FramesReady)])
    assert len(frames) == 4 * 21 - 3
    torch.testing.assert_close(frames[:21], weights.vae.decode(given), rtol=0, atol=1e-5)


def test_a_first_image_becomes_the_first_block(weights):
    image = np.random.default_rng(0).integers(0, 256, (48, 80, 3), dtype=np.uint8)
    run = generate(CONFIG, weights, prompt_embeds=EMBEDS, frames=15, first_image=image)
    assert list(latents(run)) == [1, 2, 3, 4, 5]


def test_a_prompt_goes_through_the_text_encoder(dit):
    calls = []

    def text(prompt):
        calls.append(prompt)
        return torch.nn.functional.pad(EMBEDS, (0, 0, 0, CONFIG.text_len - len(EMBEDS)))

    got = latents(generate(CONFIG, Weights(dit, None, text), prompt="夜の港 🚢", frames=27))
    assert calls == ["夜の港 🚢"]
    assert torch.equal(got[8], clip(dit)[8])


def test_what_fails_on_the_way_is_reported_and_raised(dit):
    seen = []
    run = generate(CONFIG, dit, prompt_embeds=EMBEDS, frames=15, renoise=lambda *_: torch.zeros(1))
    with pytest.raises(InputError, match="renoise"):
        for event in run:
            seen.append(event)
    assert isinstance(seen[-1], Failed)
    assert seen[-1].window == 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"frames": 43}, "blocks of 3"),
        ({"frames": 0}, "at least 15"),
        ({"frames": 12}, "5 blocks are in flight"),
        ({"frames": -15}, "at least 15"),
        ({"frames": 21.0}, "frames is 21.0"),
        ({"prompt": "a cat"}, "and not both"),
        ({"prompt_embeds": None}, "either prompt or prompt_embeds"),
        ({"prompt_embeds": None, "prompt": "a cat"}, "needs the text encoder"),
        ({"prompt_embeds": torch.zeros(17, 32)}, r"at most \[16, 32\]"),
        ({"prompt_embeds": torch.zeros(4, 31)}, r"prompt_embeds are \[4, 31\]"),
        ({"prompt_embeds": torch.full((4, 32), torch.nan)}, "finite"),
        ({"noise": torch.zeros(18, 16, 6, 10)}, "frames is 15, but noise was given for 18"),
        ({"noise": torch.zeros(15, 16, 6, 12)}, r"noise is \[15, 16, 6, 12\]"),
        ({"noise": torch.zeros(15, 16, 6, 10, dtype=torch.int64)}, "noise must hold finite floating-point"),
        ({"given": torch.zeros(4, 16, 6, 10)}, "whole blocks of 3"),
        ({"first_image": np.zeros((48, 80, 3), np.uint8)}, "needs the VAE"),
        ({"given": torch.zeros(3, 16, 6, 10), "first_image": np.zeros((48, 80, 3), np.uint8)}, "and not both"),
        ({"seed": -1}, "seed is -1"),
        ({"seed": "7"}, "seed is '7'"),
        ({"switches": {9: EMBEDS}}, "9 windows"),
        ({"backend": "cuda"}, "no backend named 'cuda'"),
    ],
)
def test_refuses_bad_input_before_any_work(dit, options, message):
    with pytest.raises(InputError, match=message):
        generate(CONFIG, dit, **{"prompt_embeds": EMBEDS, "frames": 15, **options})


def test_refuses_a_first_image_of_another_size(weights):
    with pytest.raises(InputError, match=r"expected uint8 \[48, 80, 3\]"):
        generate(CONFIG, weights, prompt_embeds=EMBEDS, frames=15, first_image=np.zeros((80, 48, 3), np.uint8))


def test_a_first_image_that_is_a_path_is_told_how_to_read_it(weights):
    with pytest.raises(InputError, match=r"first image is a str; .*read_image"):
        generate(CONFIG, weights, prompt_embeds=EMBEDS, frames=15, first_image="first.png")


def test_refuses_weights_of_another_config(dit):
    with pytest.raises(InputError, match="latent_width is 12, the weights have 10"):
        generate(CONFIG.changed(latent_width=12), dit, prompt_embeds=EMBEDS, frames=15)


def test_tensors_and_files_will_do_as_weights(dit, tmp_path):
    tensors = dict(dit.state_dict())
    torch.save({"generator_ema": {f"model.{name}": value for name, value in tensors.items()}}, tmp_path / "dit.pt")
    want = clip(dit, frames=15)
    for source in (tensors, tmp_path / "dit.pt", str(tmp_path / "dit.pt")):
        assert torch.equal(clip(source, frames=15)[4], want[4])


def test_public_names_are_there():
    import nkismith.pipeline

    for name in nkismith.pipeline.__all__:
        assert getattr(nkismith.pipeline, name) is not None
    assert Config.preset("tiny") == CONFIG
    assert Dit.__module__ == "nkismith.pipeline.dit"
