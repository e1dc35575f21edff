"""The text encoder against a small independent UMT5, padded and masked as the original does it."""

import math

import pytest
import torch
from safetensors.torch import save_file

from nkismith.pipeline.config import Config
from nkismith.pipeline.errors import InputError, WeightsError
from nkismith.pipeline.text import TextEncoder, TextSizes, clean, hugging_face_name, load_text_encoder

LAYERS, DIM, HEADS, HEAD_DIM, FFN, VOCAB = 3, 24, 4, 6, 40, 384


# The reference: one padded row of tokens, keys masked with the lowest finite value.


def rms(x, weight):
    return weight * (x.float() / torch.sqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)).to(x)


def bucket(distance):
    """Of 32: half for each direction, of each half one a distance up to 7, then logarithmically up to 128."""
    far = abs(distance)
    if far >= 8:
        far = min(15, 8 + int(torch.log(torch.tensor(far / 8)) / math.log(128 / 8) * 8))
    return 16 * (distance > 0) + far


def reference(weights, ids, length=512):
    count = len(ids)
    ids = torch.tensor(ids + [0] * (length - count))
    x = weights["token_embedding.weight"][ids]
    bucket_of = {distance: bucket(distance) for distance in range(-length, length)}
    buckets = torch.tensor([[bucket_of[j - i] for j in range(length)] for i in range(length)])
    layers = sum(name.endswith("norm1.weight") for name in weights)
    for layer in range(layers):
        w = {name.removeprefix(f"blocks.{layer}."): tensor for name, tensor in weights.items()}
        bias = w["pos_embedding.embedding.weight"][buckets].permute(2, 0, 1)
        heads = bias.shape[0]
        y = rms(x, w["norm1.weight"])
        q, k, v = ((y @ w[f"attn.{part}.weight"].T).unflatten(1, (heads, -1)).transpose(0, 1) for part in "qkv")
        scores = q @ k.transpose(1, 2) + bias
        scores[:, :, count:] = torch.finfo(x.dtype).min
        y = (scores.float().softmax(-1).to(x) @ v).transpose(0, 1).flatten(1)
        x = x + y @ w["attn.o.weight"].T
        y = rms(x, w["norm2.weight"])
        gate = y @ w["ffn.gate.0.weight"].T
        gate = 0.5 * gate * (1 + torch.tanh(math.sqrt(2 / math.pi) * (gate + 0.044715 * gate**3)))
        x = x + ((y @ w["ffn.fc1.weight"].T) * gate) @ w["ffn.fc2.weight"].T
    x = rms(x, weights["norm.weight"])
    x[count:] = 0
    return x


def listed_shapes(layers, dim, inner, heads, ffn, vocab):
    """The tensors of the published file, transcribed from its listing."""
    shapes = {"token_embedding.weight": (vocab, dim), "norm.weight": (dim,)}
    for i in range(layers):
        shapes |= {f"blocks.{i}.norm1.weight": (dim,), f"blocks.{i}.norm2.weight": (dim,)}
        shapes |= {f"blocks.{i}.attn.{part}.weight": (inner, dim) for part in "qkv"}
        shapes[f"blocks.{i}.attn.o.weight"] = (dim, inner)
        shapes |= {f"blocks.{i}.ffn.gate.0.weight": (ffn, dim), f"blocks.{i}.ffn.fc1.weight": (ffn, dim)}
        shapes[f"blocks.{i}.ffn.fc2.weight"] = (dim, ffn)
        shapes[f"blocks.{i}.pos_embedding.embedding.weight"] = (32, heads)
    return shapes


@pytest.fixture(scope="module")
def weights():
    draw = torch.Generator().manual_seed(5)
    shapes = listed_shapes(LAYERS, DIM, HEADS * HEAD_DIM, HEADS, FFN, VOCAB)
    return {name: torch.randn(shape, generator=draw) / (len(shape) * 2) for name, shape in shapes.items()}


def tokenize(text, *, max_length, truncation, add_special_tokens):
    """Bytes as tokens behind three special ones, with an end token that truncation keeps."""
    return {"input_ids": [*(byte + 3 for byte in text.encode()[: max_length - 1]), 1]}


def test_the_published_encoder_has_242_tensors_and_transformers_knows_them_all():
    import transformers

    shapes = TextSizes().shapes()
    assert shapes == listed_shapes(24, 4096, 4096, 64, 10240, 256384)
    assert len(shapes) == 242
    assert sum(math.prod(shape) for shape in shapes.values()) == 5_680_910_336
    config = transformers.UMT5Config(
        vocab_size=256384, d_model=4096, d_kv=64, d_ff=10240, num_layers=24, num_heads=64
    )  # as published for google/umt5-xxl
    with torch.device("meta"):
        state = transformers.UMT5EncoderModel(config).state_dict()
    renamed = {hugging_face_name(name): shape for name, shape in shapes.items()}
    assert renamed | {"encoder.embed_tokens.weight": (256384, 4096)} == {
        name: tuple(tensor.shape) for name, tensor in state.items()
    }


@pytest.mark.parametrize("prompt", ["", "a cat", "Ein süßer Kater läuft 猫 قطة 🐈", "long " * 60])
def test_embeddings_equal_those_of_a_padded_and_masked_encoder(weights, prompt):
    got = load_text_encoder(weights, tokenize)(prompt)
    want = reference(weights, [*(byte + 3 for byte in prompt.strip().encode()), 1])
    assert got.shape == want.shape == (512, DIM)
    assert (got - want).norm() / want.norm() < 1e-5
    assert not got[len(prompt.strip().encode()) + 1 :].any()


def test_bfloat16_files_stay_bfloat16_and_within_its_noise(weights):
    half = {name: tensor.bfloat16() for name, tensor in weights.items()}
    got = load_text_encoder(half, tokenize)("a cat on a mat")
    ids = [*(byte + 3 for byte in b"a cat on a mat"), 1]
    want = reference({name: tensor.float() for name, tensor in half.items()}, ids)
    assert got.dtype == torch.bfloat16
    assert (got.float() - want).norm() / want.norm() < 2e-2


def test_a_long_prompt_is_cut_to_the_length_of_the_config(weights):
    config = Config.preset(
        "tiny", text_dim=DIM, text_layers=LAYERS, text_heads=HEADS, text_ffn_dim=FFN, text_vocab=VOCAB, text_len=16
    )
    got = load_text_encoder(weights, tokenize, config)("x" * 100)
    assert got.shape == (16, DIM)
    assert (got - reference(weights, [ord("x") + 3] * 15 + [1], 16)).abs().max() < 1e-4


def test_loads_every_layout_from_files(weights, tmp_path):
    want = load_text_encoder(weights, tokenize)("a cat")
    renamed = {hugging_face_name(name): tensor for name, tensor in weights.items()}
    full = renamed | {"decoder.final_layer_norm.weight": torch.ones(DIM), "lm_head.weight": torch.ones(VOCAB, DIM)}
    tied = {"encoder.embed_tokens.weight" if name == "shared.weight" else name: t for name, t in renamed.items()}
    torch.save(weights, tmp_path / "models_t5_umt5-xxl-enc-bf16.pth")
    save_file(renamed, tmp_path / "encoder.safetensors")
    save_file(full, tmp_path / "full.safetensors")
    save_file(tied, tmp_path / "tied.safetensors")
    for file in tmp_path.iterdir():
        assert torch.equal(load_text_encoder(file, tokenize)("a cat"), want), file.name
    wrapped = {f"text_encoder.{name}": tensor for name, tensor in weights.items()}  # as the original's wrapper dumps it
    assert torch.equal(load_text_encoder(wrapped, tokenize)("a cat"), want)


def test_only_an_encoder_needs_a_width_that_divides_into_its_heads(weights):
    config = Config.preset("tiny", text_dim=DIM, text_heads=DIM + 1)
    with pytest.raises(InputError, match=f"text_dim {DIM} does not divide into text_heads {DIM + 1} heads"):
        load_text_encoder(weights, tokenize, config)


@pytest.mark.parametrize("rename", [str, hugging_face_name])
def test_names_everything_wrong_in_the_layout_of_the_file(weights, rename):
    wrong = {rename(name): tensor for name, tensor in weights.items()}
    del wrong[rename("blocks.1.attn.q.weight")], wrong[rename("norm.weight")]
    wrong[rename("blocks.2.ffn.fc2.weight")] = torch.zeros(3, 3)
    wrong["extra"] = torch.zeros(2)
    with pytest.raises(WeightsError) as failure:
        load_text_encoder(wrong, tokenize)
    for name in ("blocks.1.attn.q.weight", "norm.weight", "blocks.2.ffn.fc2.weight"):
        assert rename(name) in str(failure.value)
    assert "extra [2]" in str(failure.value)


def test_a_file_of_another_model_or_of_half_the_layers_is_refused(weights):
    with pytest.raises(WeightsError, match=r"missing: token_embedding\.weight"):
        load_text_encoder({"decoder.conv1.weight": torch.zeros(1)}, tokenize)
    wide = {"token_embedding.weight": torch.zeros(256384, 4096, device="meta")}
    with pytest.raises(WeightsError, match="241 missing"):
        load_text_encoder(wide, tokenize)
    config = Config.preset("tiny", text_dim=DIM, text_layers=LAYERS + 1, text_heads=HEADS, text_ffn_dim=FFN)
    with pytest.raises(WeightsError, match=r"blocks\.3\.norm1\.weight"):
        load_text_encoder(weights, tokenize, config)


def test_prompts_are_cleaned():
    assert clean("  a\n\tcat  &amp;amp; dog ") == "a cat & dog"
    assert clean("sÃ¼Ã").startswith("sü")
    assert clean("\u3000猫\u00a0") == "猫"
    assert clean("") == ""
    clean("\ud800 lone surrogate").encode()


def test_only_texts_are_prompts(weights):
    encoder = load_text_encoder(weights, tokenize)
    for prompt in (None, b"bytes", ["a", "list"], 3):
        with pytest.raises(InputError, match="the prompt is"):
            encoder(prompt)


def test_a_tokenizer_of_another_vocabulary_is_refused(weights):
    with pytest.raises(InputError, match="token 400"):
        load_text_encoder(weights, lambda text, **options: {"input_ids": [5, 400]})("a cat")


@pytest.fixture
def tokenizer_folder(tmp_path):
    """A tokenizer of T5's kind as a folder of files, as google/umt5-xxl is, that also folds case."""
    import tokenizers
    import transformers

    pieces = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", -2.0), ("▁", -1.0), ("▁cat", -1.5), *((c, -3.0) for c in "act")]
    tokenizer = transformers.T5Tokenizer(vocab=pieces, extra_ids=0)
    tokenizer.backend_tokenizer.normalizer = tokenizers.normalizers.Lowercase()
    tokenizer.save_pretrained(tmp_path / "umt5")
    return tmp_path / "umt5"


def test_a_tokenizer_is_loaded_from_its_folder(weights, tokenizer_folder):
    got = load_text_encoder(weights, tokenizer_folder)
    ids = got.tokenizer("A Cat")["input_ids"]
    assert ids == [3, 5, 4, 1]  # by the rules of its file, whatever its class would do
    assert torch.equal(got("a  cat"), load_text_encoder(weights, lambda text, **options: {"input_ids": ids})("a cat"))
    assert got("猫 " * 600)[511].any()  # unknown characters are tokens too, and the text is cut to 512


def test_a_folder_without_tokenizer_is_refused(weights, tmp_path):
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/tokenizer.json").write_text("{")
    (tmp_path / "broken/tokenizer_config.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    for name in ("none", "empty", "broken"):
        with pytest.raises(WeightsError, match=name):
            load_text_encoder(weights, tmp_path / name)


def test_random_encoders_are_reproducible_and_tell_prompts_apart():
    config = Config.preset("tiny")
    encoder = TextEncoder.random(config, seed=1)
    cat, dog = encoder("cat"), encoder("dog")
    assert cat.shape == (config.text_len, config.text_dim) and cat.dtype == torch.float32
    assert torch.equal(cat, TextEncoder.random(config, seed=1)("cat"))
    assert not torch.equal(cat, dog)
    assert not torch.equal(cat, TextEncoder.random(config, seed=2)("cat"))
