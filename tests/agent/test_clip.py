"""The generate command: what it reads and writes is what the Python API takes and yields."""

import json
from pathlib import Path

import av
import numpy as np
import pytest
import torch

from nkismith.agent import cli
from nkismith.pipeline import BlockReady, Config, Weights, generate
from nkismith.pipeline.video import load_latents

CONFIG = Config.preset("tiny")
FRAMES = 15


def latents_of(**given):
    run = generate(CONFIG, Weights.random(CONFIG, 0), decode=False, **given)
    return torch.cat([event.latents for event in run if isinstance(event, BlockReady)])


@pytest.fixture
def numbers(tmp_path, monkeypatch):
    """Noise and embeddings, in files of two kinds."""
    monkeypatch.chdir(tmp_path)
    draw = torch.Generator().manual_seed(7)
    noise = torch.randn(FRAMES, *CONFIG.block_shape[1:], generator=draw)
    embeds = torch.randn(10, CONFIG.text_dim, generator=draw)
    torch.save(noise[None], "noise.pt")
    np.save("embeds.npy", embeds.numpy())
    return noise, embeds


def test_noise_and_embeddings_of_files_give_the_latents_of_the_api(numbers):
    noise, embeds = numbers
    words = ["generate", "--noise", "noise.pt", "--embeds", "embeds.npy", "--latents", "out.safetensors"]
    assert cli.run(words) == 0
    assert torch.equal(load_latents("out.safetensors"), latents_of(noise=noise, prompt_embeds=embeds))


def test_a_clip_goes_on_from_latents(numbers):
    noise, embeds = numbers
    first = latents_of(noise=noise, prompt_embeds=embeds)
    common = ["generate", "--noise", "noise.pt", "--embeds", "embeds.npy", "--latents"]
    assert cli.run([*common, "first.safetensors"]) == 0
    assert cli.run([*common, "second.safetensors", "--extend", "first.safetensors"]) == 0
    want = latents_of(noise=noise, prompt_embeds=embeds, given=first)
    assert torch.equal(load_latents("second.safetensors"), want)


def test_video_and_pictures_hold_the_same_frames(numbers, capsys):
    words = ["generate", "--frames", "15", "--out", "clip.mp4", "--png", "pictures", "--json"]
    assert cli.run(words) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["paths"] == ["clip.mp4", "pictures"] and told["frames"] == 4 * FRAMES - 3
    assert 0 < told["first_block_seconds"] <= told["first_frames_seconds"] <= told["seconds"]
    with av.open("clip.mp4") as clip:
        coded = [frame.to_ndarray(format="rgb24") for frame in clip.decode(video=0)]
    lossless = []
    for number in range(len(coded)):
        with av.open(f"pictures/frame_{number:05d}.png") as picture:
            lossless += [frame.to_ndarray(format="rgb24") for frame in picture.decode(video=0)]
    assert len(lossless) == told["frames"]
    own = np.mean([np.abs(a.astype(float) - b).mean() for a, b in zip(coded, lossless, strict=True)])
    other = np.mean([np.abs(a.astype(float) - b).mean() for a, b in zip(coded[1:], lossless, strict=False)])
    assert own < other


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([], "--out VIDEO.mp4, --png FOLDER or --latents"),
        (["--out", "x.mp4", "--switch", "later: night"], "is not WINDOW:PROMPT"),
        (["--out", "x.mp4", "--switch", "99:night", "--prompt", "day"], "cannot switch at window 99"),
        (["--latents", "x.safetensors", "--noise", "no.pt"], "no.pt does not exist"),
        (["--latents", "x.safetensors", "--noise", "noise.pt", "--frames", "18"], "leave one of them out"),
        (["--latents", "x.safetensors", "--embeds", "embeds.npy", "--prompt", "both"], "not both"),
        (["--latents", "x.safetensors", "--extend", "noise.pt"], "noise.pt"),
    ],
)
def test_what_cannot_be_is_said_in_a_line_and_leaves_no_file(numbers, capsys, words, says):
    assert cli.run(["generate", *words]) == 2
    err = capsys.readouterr().err
    assert says in err and "Traceback" not in err
    assert sorted(p.name for p in Path().iterdir()) == ["embeds.npy", "noise.pt"]
