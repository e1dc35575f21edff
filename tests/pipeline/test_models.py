"""The models of a run from a folder of published files."""

import pytest
import torch
from safetensors.torch import save_file

from nkismith.pipeline import Dit, Vae, Weights, generate, preset
from nkismith.pipeline.errors import InputError, WeightsError
from nkismith.pipeline.events import BlockReady, FramesReady

CONFIG = preset("tiny")


@pytest.fixture
def folder(tmp_path):
    """The layout of the published files: the base model beside a distilled checkpoint, and the VAE."""
    base = tmp_path / "Wan2.1-T2V-1.3B"
    base.mkdir()
    save_file(dict(Dit.random(CONFIG, seed=1).state_dict()), base / "diffusion_pytorch_model.safetensors")
    torch.save(dict(Vae.random(CONFIG).state_dict()), base / "Wan2.1_VAE.pth")
    (tmp_path / "checkpoints").mkdir()
    averaged, trained, critic = (Dit.random(CONFIG, seed).state_dict() for seed in (2, 3, 4))
    torch.save(
        {
            "critic": dict(critic),
            "generator": {f"model.{name}": value for name, value in trained.items()},
            "generator_ema": {f"model._fsdp_wrapped_module.{name}": value for name, value in averaged.items()},
        },
        tmp_path / "checkpoints" / "rolling_forcing_dmd.pt",
    )
    return tmp_path


def test_the_averaged_generator_of_the_checkpoint_is_preferred(folder):
    models = Weights.load(folder, CONFIG)
    assert torch.equal(models.dit.state_dict()["head.modulation"], Dit.random(CONFIG, seed=2).head.modulation)
    (folder / "checkpoints" / "rolling_forcing_dmd.pt").unlink()
    models = Weights.load(folder, CONFIG)
    assert torch.equal(models.dit.state_dict()["head.modulation"], Dit.random(CONFIG, seed=1).head.modulation)


def test_a_folder_will_do_as_weights(folder):
    events = list(generate(CONFIG, folder, prompt_embeds=torch.zeros(1, 32), frames=15))
    assert sum(isinstance(event, BlockReady) for event in events) == 5
    assert sum(len(event.pixels) for event in events if isinstance(event, FramesReady)) == 57


def test_a_prompt_needs_the_text_encoder(folder):
    with pytest.raises(InputError, match="text encoder and its tokenizer"):
        generate(CONFIG, folder, prompt="a cat", frames=15)


def test_one_message_names_what_is_wrong_in_any_of_the_files(folder):
    with pytest.raises(WeightsError) as caught:
        Weights.load(folder, CONFIG.changed(ffn_dim=80, vae_dim=12))
    assert "blocks.1.ffn.0.weight is [96, 48], expected [80, 48]" in str(caught.value)
    assert "decoder.conv1.weight" in str(caught.value)


def test_a_folder_without_a_diffusion_model_is_refused(tmp_path):
    with pytest.raises(WeightsError, match=r"rolling_forcing_dmd\.pt"):
        Weights.load(tmp_path, CONFIG)
