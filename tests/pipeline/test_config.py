"""Sizes: presets, the official config file, and what is refused."""

import subprocess
import sys

import pytest

from nkismith.pipeline.config import PRESETS, Config, preset
from nkismith.pipeline.errors import InputError

OFFICIAL = {
    "_class_name": "WanModel",
    "_diffusers_version": "0.30.0",
    "dim": 1536,
    "eps": 1e-06,
    "ffn_dim": 8960,
    "freq_dim": 256,
    "in_dim": 16,
    "model_type": "t2v",
    "num_heads": 12,
    "num_layers": 30,
    "out_dim": 16,
    "text_len": 512,
}


def test_the_published_config_file_is_the_largest_preset():
    assert Config.from_dict(OFFICIAL) == preset("wan-1.3b")


def test_sizes_at_480x832_are_those_of_the_model():
    config = preset("wan-1.3b")
    assert (config.head_dim, config.frame_tokens, config.block_tokens) == (128, 1560, 4680)
    assert config.block_shape == (3, 16, 60, 104)


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_valid_and_can_be_changed(name):
    assert preset(name).name == name
    assert Config.from_dict({"preset": name, "dtype": "bfloat16"}).dtype == "bfloat16"


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"num_head": 12}, "did you mean num_heads"),
        ({"preset": "tini"}, "did you mean tiny"),
        ({"model_type": "i2v"}, "model_type is 'i2v'"),
        ({"in_dim": 16, "out_dim": 32}, "already given as 16"),
        ({"dim": 100, "num_heads": 12}, "does not divide"),
        ({"dim": 36, "num_heads": 12}, "head size"),
        ({"latent_width": 105}, "must be even"),
        ({"num_layers": 0}, "num_layers is 0"),
        ({"num_layers": 2.5}, "num_layers is 2.5"),
        ({"num_layers": True}, "num_layers is True"),
        ({"dtype": "float16"}, "float32, bfloat16"),
        ({"shift": -1.0}, "shift is -1.0"),
        ({"shift": "5"}, "shift is '5'"),
        ({"steps": [1000, 800, 800]}, "fall strictly"),
        ({"steps": [1000, 0]}, "fall strictly"),
    ],
)
def test_refuses_what_is_no_size_of_a_model(values, message):
    with pytest.raises(InputError, match=message):
        Config.from_dict(values)


def test_listing_presets_does_not_import_torch():
    code = "import sys, nkismith.pipeline.config, nkismith.pipeline; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
