"""The VAE against a slow reference without any streaming state, written from the published description."""

import math

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

from nkismith.pipeline.config import Config
from nkismith.pipeline.errors import InputError, WeightsError
from nkismith.pipeline.vae import LATENT_MEAN, LATENT_STD, Vae, diffusers_name, load_vae

TINY = Config.preset("tiny")


# The reference: whole videos [1, C, T, H, W], conv3d with zeros before the first frame, no state.


def causal_conv(x, weights, name):
    weight, bias = weights[name + ".weight"], weights[name + ".bias"]
    time, rows, cols = weight.shape[2:]
    x = F.pad(x, (cols // 2, cols // 2, rows // 2, rows // 2, time - 1, 0))
    return F.conv3d(x, weight, bias)


def channel_norm(x, weights, name):
    gamma = weights[name + ".gamma"].reshape(1, -1, 1, 1, 1)
    length = x.square().sum(1, keepdim=True).sqrt().clamp(min=1e-12)
    return x / length * math.sqrt(x.shape[1]) * gamma


def silu(x):
    return x * torch.sigmoid(x)


def residual(x, weights, name):
    y = causal_conv(silu(channel_norm(x, weights, name + ".residual.0")), weights, name + ".residual.2")
    y = causal_conv(silu(channel_norm(y, weights, name + ".residual.3")), weights, name + ".residual.6")
    return y + (causal_conv(x, weights, name + ".shortcut") if name + ".shortcut.weight" in weights else x)


def attention(x, weights, name):
    out = x.clone()
    y = channel_norm(x, weights, name + ".norm")
    channels = x.shape[1]
    for t in range(x.shape[2]):
        positions = y[0, :, t].reshape(channels, -1)
        qkv = weights[name + ".to_qkv.weight"][:, :, 0, 0] @ positions + weights[name + ".to_qkv.bias"][:, None]
        q, k, v = qkv[:channels], qkv[channels : 2 * channels], qkv[2 * channels :]
        z = v @ torch.softmax(q.T @ k / math.sqrt(channels), dim=1).T
        z = weights[name + ".proj.weight"][:, :, 0, 0] @ z + weights[name + ".proj.bias"][:, None]
        out[0, :, t] += z.reshape(x.shape[1], *x.shape[3:])
    return out


def middle(x, weights, name):
    x = residual(x, weights, name + ".0")
    return residual(attention(x, weights, name + ".1"), weights, name + ".2")


def spatial(x, function):
    return torch.stack([function(x[:, :, t]) for t in range(x.shape[2])], dim=2)


def upsample(x, weights, name):
    if name + ".time_conv.weight" in weights and x.shape[2] > 1:
        channels = x.shape[1]
        y = causal_conv(x[:, :, 1:], weights, name + ".time_conv")
        frames = [x[:, :, 0]]
        for t in range(y.shape[2]):
            frames += [y[:, :channels, t], y[:, channels:, t]]
        x = torch.stack(frames, dim=2)
    conv = weights[name + ".resample.1.weight"], weights[name + ".resample.1.bias"]
    return spatial(x, lambda y: F.conv2d(y.repeat_interleave(2, 2).repeat_interleave(2, 3), *conv, padding=1))


def downsample(x, weights, name):
    conv = weights[name + ".resample.1.weight"], weights[name + ".resample.1.bias"]
    x = spatial(x, lambda y: F.conv2d(F.pad(y, (0, 1, 0, 1)), *conv, stride=2))
    if name + ".time_conv.weight" not in weights or x.shape[2] == 1:
        return x
    conv = weights[name + ".time_conv.weight"], weights[name + ".time_conv.bias"]
    return torch.cat([x[:, :, :1], F.conv3d(x, *conv, stride=(2, 1, 1))], dim=2)


def layers(x, weights, name, resample):
    count = 1 + max(int(key.split(".")[2]) for key in weights if key.startswith(name + "."))
    for layer in range(count):
        prefix = f"{name}.{layer}"
        x = (resample if prefix + ".resample.1.weight" in weights else residual)(x, weights, prefix)
    return x


def reference_decode(latents, weights):
    mean, std = (torch.tensor(values)[None, :, None, None, None] for values in (LATENT_MEAN, LATENT_STD))
    x = causal_conv(latents.transpose(0, 1)[None] * std + mean, weights, "conv2")
    x = middle(causal_conv(x, weights, "decoder.conv1"), weights, "decoder.middle")
    x = layers(x, weights, "decoder.upsamples", upsample)
    x = causal_conv(silu(channel_norm(x, weights, "decoder.head.0")), weights, "decoder.head.2")
    return x[0].transpose(0, 1).clamp(-1, 1)


def reference_encode(pixels, weights):
    mean, std = (torch.tensor(values)[None, :, None, None, None] for values in (LATENT_MEAN, LATENT_STD))
    x = causal_conv(pixels.transpose(0, 1)[None], weights, "encoder.conv1")
    x = middle(layers(x, weights, "encoder.downsamples", downsample), weights, "encoder.middle")
    x = causal_conv(silu(channel_norm(x, weights, "encoder.head.0")), weights, "encoder.head.2")
    x = (causal_conv(x, weights, "conv1")[:, :16] - mean) / std
    return x[0].transpose(0, 1)


def published_shapes(dim=96):
    """The tensors of the published file, transcribed row by row from its listing (there in units of 96)."""
    shapes = {}

    def conv(name, inputs, outputs, *kernel):
        shapes[name + ".weight"] = (outputs, inputs, *kernel)
        shapes[name + ".bias"] = (outputs,)

    def block(name, inputs, outputs):
        shapes[name + ".residual.0.gamma"] = (inputs, 1, 1, 1)
        conv(name + ".residual.2", inputs, outputs, 3, 3, 3)
        shapes[name + ".residual.3.gamma"] = (outputs, 1, 1, 1)
        conv(name + ".residual.6", outputs, outputs, 3, 3, 3)
        if inputs != outputs:
            conv(name + ".shortcut", inputs, outputs, 1, 1, 1)

    def middle_block(name):
        block(name + ".0", 4 * dim, 4 * dim)
        shapes[name + ".1.norm.gamma"] = (4 * dim, 1, 1)
        conv(name + ".1.to_qkv", 4 * dim, 12 * dim, 1, 1)
        conv(name + ".1.proj", 4 * dim, 4 * dim, 1, 1)
        block(name + ".2", 4 * dim, 4 * dim)

    conv("conv1", 32, 32, 1, 1, 1)
    conv("conv2", 16, 16, 1, 1, 1)
    conv("decoder.conv1", 16, 4 * dim, 3, 3, 3)
    middle_block("decoder.middle")
    decoder_blocks = {0: (4, 4), 1: (4, 4), 2: (4, 4), 4: (2, 4), 5: (4, 4), 6: (4, 4)}
    decoder_blocks |= {8: (2, 2), 9: (2, 2), 10: (2, 2), 12: (1, 1), 13: (1, 1), 14: (1, 1)}
    for layer, (inputs, outputs) in decoder_blocks.items():
        block(f"decoder.upsamples.{layer}", inputs * dim, outputs * dim)
    for layer, inputs in ((3, 4), (7, 4), (11, 2)):
        conv(f"decoder.upsamples.{layer}.resample.1", inputs * dim, inputs * dim // 2, 3, 3)
    for layer in (3, 7):
        conv(f"decoder.upsamples.{layer}.time_conv", 4 * dim, 8 * dim, 3, 1, 1)
    shapes["decoder.head.0.gamma"] = (dim, 1, 1, 1)
    conv("decoder.head.2", dim, 3, 3, 3, 3)
    conv("encoder.conv1", 3, dim, 3, 3, 3)
    encoder_blocks = {0: (1, 1), 1: (1, 1), 3: (1, 2), 4: (2, 2), 6: (2, 4), 7: (4, 4), 9: (4, 4), 10: (4, 4)}
    for layer, (inputs, outputs) in encoder_blocks.items():
        block(f"encoder.downsamples.{layer}", inputs * dim, outputs * dim)
    for layer, channels in ((2, 1), (5, 2), (8, 4)):
        conv(f"encoder.downsamples.{layer}.resample.1", channels * dim, channels * dim, 3, 3)
    for layer, channels in ((5, 2), (8, 4)):
        conv(f"encoder.downsamples.{layer}.time_conv", channels * dim, channels * dim, 3, 1, 1)
    middle_block("encoder.middle")
    shapes["encoder.head.0.gamma"] = (4 * dim, 1, 1, 1)
    conv("encoder.head.2", 4 * dim, 32, 3, 3, 3)
    return shapes


@pytest.fixture(scope="module")
def vae():
    return Vae.random(TINY, seed=3)


@pytest.fixture(scope="module")
def latents():
    return torch.randn(8, 16, 6, 10, generator=torch.Generator().manual_seed(1))


def relative(got, want):
    return float((got.float() - want).norm() / want.norm())


def test_full_size_has_the_published_names_and_counts():
    with torch.device("meta"):
        state = Vae(Config()).state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == published_shapes()
    assert len(state) == 194
    assert sum(tensor.numel() for tensor in state.values()) == 126_892_531
    decoding = [tensor for name, tensor in state.items() if name.startswith(("decoder.", "conv2."))]
    assert sum(tensor.numel() for tensor in decoding) == 73_295_603


def test_decode_equals_a_whole_video_decode_without_state(vae, latents):
    got, want = vae.decode(latents), reference_decode(latents, vae.state_dict())
    assert got.shape == (29, 3, 48, 80)
    assert relative(got, want) < 1e-5


def test_pixels_are_clamped(vae, latents):
    pixels = vae.decode(10 * latents)
    assert pixels.min() == -1 and pixels.max() == 1


@pytest.mark.parametrize("cut", [(1, 7), (3, 3, 2), (1, 1, 1, 1, 1, 1, 1, 1), (5, 3)])
def test_any_cut_of_the_stream_gives_the_same_pixels_to_the_bit(vae, latents, cut):
    state = vae.new_state()
    pieces = [vae.decode(piece, state) for piece in latents.split(cut)]
    assert [len(piece) for piece in pieces] == [4 * cut[0] - 3, *(4 * frames for frames in cut[1:])]
    assert torch.equal(torch.cat(pieces), vae.decode(latents))


@pytest.mark.parametrize("together", [2, 3, 7])
def test_frames_decoded_together_differ_by_rounding_only(vae, latents, together):
    assert relative(vae.decode(latents, together=together), vae.decode(latents)) < 2e-6


def test_the_first_latent_frame_leaves_no_trace_in_time_conv(vae, latents):
    state = vae.new_state()
    vae.decode(latents[:1], state)
    assert not any("time_conv" in name for name in state.frames)
    vae.decode(latents[1:2], state)
    kept = state.frames["decoder.upsamples.3.time_conv"]
    assert kept.shape == (2, 32, 6, 10)
    assert not kept[0].any() and kept[1].any()


def test_state_does_not_grow_and_holds_no_more_than_it_shows(vae, latents):
    state = vae.new_state()
    sizes = []
    for piece in latents.split(2):
        vae.decode(piece, state)
        sizes.append(sum(past.untyped_storage().nbytes() for past in state.frames.values()))
    assert sizes == [state.bytes] * 4


def test_state_at_480x832_is_that_of_the_original():
    with torch.device("meta"):
        vae = Vae(Config())
        state = vae.new_state()
        pixels = vae.decode(torch.empty(2, 16, 60, 104), state)
    assert pixels.shape == (5, 3, 480, 832)
    assert len(state.frames) == 32
    assert sum(past.numel() for past in state.frames.values()) == 944_286_720


def test_streams_do_not_touch_each_other(vae, latents):
    other = latents.flip(0)
    states = vae.new_state(), vae.new_state()
    pairs = zip(latents.split(2), other.split(2), strict=True)
    pieces = [(vae.decode(a, states[0]), vae.decode(b, states[1])) for a, b in pairs]
    assert torch.equal(torch.cat([a for a, _ in pieces]), vae.decode(latents))
    assert torch.equal(torch.cat([b for _, b in pieces]), vae.decode(other))


def test_encode_equals_a_whole_video_encode_without_state(vae):
    pixels = torch.rand(13, 3, 48, 32, generator=torch.Generator().manual_seed(2)) * 2 - 1
    got, want = vae.encode(pixels), reference_encode(pixels, vae.state_dict())
    assert got.shape == (4, 16, 6, 4)
    assert relative(got, want) < 1e-5
    assert relative(vae.encode(pixels[:1]), want[:1]) < 1e-5


@pytest.mark.parametrize("shape", [(4, 3, 48, 32), (5, 3, 44, 32), (5, 4, 48, 32), (3, 48, 32), (0, 3, 48, 32)])
def test_encode_refuses_what_does_not_divide(vae, shape):
    with pytest.raises(InputError):
        vae.encode(torch.zeros(shape))


@pytest.mark.parametrize("shape", [(3, 15, 6, 10), (16, 6, 10), (0, 16, 6, 10), (3, 16, 0, 10)])
def test_decode_refuses_what_is_no_latent(vae, shape):
    with pytest.raises(InputError, match="latents are"):
        vae.decode(torch.zeros(shape))


def test_a_stream_keeps_its_size(vae, latents):
    state = vae.new_state()
    vae.decode(latents[:1], state)
    with pytest.raises(InputError, match="new_state"):
        vae.decode(latents[..., :8], state)


def test_bfloat16_stays_within_its_noise_and_rounds_the_statistics_first(vae, latents):
    config = TINY.changed(dtype="bfloat16")
    half = load_vae(vae.state_dict(), config)
    seen = []
    half.conv2.register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    got = half.decode(latents)
    assert got.dtype == torch.bfloat16
    assert relative(got, reference_decode(latents, vae.state_dict())) < 2.5e-2
    inverse = (1 / torch.tensor(LATENT_STD)).bfloat16()[:, None, None]
    mean = torch.tensor(LATENT_MEAN).bfloat16()[:, None, None]
    assert torch.equal(seen[0], latents.bfloat16() / inverse + mean)


def test_random_weights_are_reproducible(vae):
    again, other = Vae.random(TINY, seed=3).state_dict(), Vae.random(TINY, seed=4).state_dict()
    assert all(torch.equal(again[name], tensor) for name, tensor in vae.state_dict().items())
    assert not any(torch.equal(other[name], tensor) for name, tensor in vae.state_dict().items())


DIFFUSERS_PAIRS = {
    "conv1.weight": "quant_conv.weight",
    "conv2.bias": "post_quant_conv.bias",
    "encoder.conv1.weight": "encoder.conv_in.weight",
    "encoder.head.0.gamma": "encoder.norm_out.gamma",
    "encoder.head.2.bias": "encoder.conv_out.bias",
    "encoder.downsamples.0.residual.0.gamma": "encoder.down_blocks.0.norm1.gamma",
    "encoder.downsamples.3.residual.2.weight": "encoder.down_blocks.3.conv1.weight",
    "encoder.downsamples.3.shortcut.bias": "encoder.down_blocks.3.conv_shortcut.bias",
    "encoder.downsamples.5.resample.1.weight": "encoder.down_blocks.5.resample.1.weight",
    "encoder.downsamples.5.time_conv.weight": "encoder.down_blocks.5.time_conv.weight",
    "encoder.downsamples.10.residual.6.bias": "encoder.down_blocks.10.conv2.bias",
    "encoder.middle.1.to_qkv.weight": "encoder.mid_block.attentions.0.to_qkv.weight",
    "decoder.conv1.weight": "decoder.conv_in.weight",
    "decoder.middle.0.residual.0.gamma": "decoder.mid_block.resnets.0.norm1.gamma",
    "decoder.middle.1.norm.gamma": "decoder.mid_block.attentions.0.norm.gamma",
    "decoder.middle.1.proj.bias": "decoder.mid_block.attentions.0.proj.bias",
    "decoder.middle.2.residual.3.gamma": "decoder.mid_block.resnets.1.norm2.gamma",
    "decoder.upsamples.0.residual.2.weight": "decoder.up_blocks.0.resnets.0.conv1.weight",
    "decoder.upsamples.3.resample.1.weight": "decoder.up_blocks.0.upsamplers.0.resample.1.weight",
    "decoder.upsamples.4.shortcut.weight": "decoder.up_blocks.1.resnets.0.conv_shortcut.weight",
    "decoder.upsamples.7.time_conv.bias": "decoder.up_blocks.1.upsamplers.0.time_conv.bias",
    "decoder.upsamples.10.residual.6.weight": "decoder.up_blocks.2.resnets.2.conv2.weight",
    "decoder.upsamples.14.residual.0.gamma": "decoder.up_blocks.3.resnets.2.norm1.gamma",
    "decoder.head.0.gamma": "decoder.norm_out.gamma",
    "decoder.head.2.weight": "decoder.conv_out.weight",
}
"""From the published conversion of the Wan VAE to diffusers."""


@pytest.mark.parametrize(("official", "diffusers"), DIFFUSERS_PAIRS.items())
def test_hugging_face_names(official, diffusers):
    assert diffusers_name(official) == diffusers


def test_loads_both_layouts_from_files(vae, latents, tmp_path):
    weights = {name: tensor.contiguous() for name, tensor in vae.state_dict().items()}
    torch.save(weights, tmp_path / "Wan2.1_VAE.pth")
    save_file({diffusers_name(name): tensor for name, tensor in weights.items()}, tmp_path / "vae.safetensors")
    assert len({diffusers_name(name) for name in weights}) == 194
    wrapped = {f"model.{name}": tensor for name, tensor in weights.items()}  # as the original's wrapper dumps it
    for source in (tmp_path / "Wan2.1_VAE.pth", tmp_path / "vae.safetensors", wrapped):
        loaded = load_vae(source, TINY)
        assert torch.equal(loaded.decode(latents[:2]), vae.decode(latents[:2]))


def test_loads_a_decoder_alone_which_then_cannot_encode(vae, latents):
    weights = {name: x for name, x in vae.state_dict().items() if name.startswith(("decoder.", "conv2."))}
    decoder = load_vae(weights, TINY)
    assert torch.equal(decoder.decode(latents), vae.decode(latents))
    with pytest.raises(InputError, match="no encoder"):
        decoder.encode(torch.zeros(1, 3, 16, 16))


@pytest.mark.parametrize("rename", [str, diffusers_name])
def test_names_everything_wrong_in_the_layout_of_the_file(vae, rename):
    weights = {rename(name): tensor for name, tensor in vae.state_dict().items()}
    del weights[rename("decoder.conv1.bias")], weights[rename("encoder.head.2.weight")]
    weights["extra.weight"] = torch.zeros(3)
    weights[rename("decoder.head.2.bias")] = torch.zeros(5)
    with pytest.raises(WeightsError) as failure:
        load_vae(weights, TINY)
    message = str(failure.value)
    for expected in ("decoder.conv1.bias", "encoder.head.2.weight", "extra.weight", "decoder.head.2.bias"):
        assert (rename(expected) if expected != "extra.weight" else expected) in message
    assert "[5], expected [3]" in message


def test_refuses_the_weights_of_another_size(vae):
    with pytest.raises(WeightsError, match=r"decoder\.conv1\.weight is"):
        load_vae(vae.state_dict(), TINY.changed(vae_dim=12))


def test_refuses_latents_of_other_channels():
    with pytest.raises(InputError, match="channels is 8"):
        Vae(TINY.changed(channels=8))
