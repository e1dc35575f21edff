"""Reading weight files, and what must be refused about them."""

import json
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from nkismith.pipeline.errors import WeightsError
from nkismith.pipeline.weights import PUBLISHED_FILES, check_names, find_files, read_state_dict, read_tensor

TENSORS = {"blocks.0.weight": torch.arange(6.0).reshape(2, 3), "head.bias": torch.ones(4, dtype=torch.bfloat16)}

MAPPINGS = Path("/proc/self/maps")


def same(read, expected=TENSORS):
    assert list(read) == list(expected)
    return all(
        torch.equal(read[name], tensor) and read[name].dtype == tensor.dtype for name, tensor in expected.items()
    )


@pytest.mark.parametrize("suffix", ["pt", "pth", "bin"])
@pytest.mark.parametrize("zipped", [True, False])
def test_reads_pickled_tensors_of_old_and_new_torch(tmp_path, suffix, zipped):
    path = tmp_path / f"model.{suffix}"
    torch.save(TENSORS, path, _use_new_zipfile_serialization=zipped)
    assert same(read_state_dict(path))


def test_reads_safetensors(tmp_path):
    save_file(TENSORS, tmp_path / "model.safetensors")
    assert same(read_state_dict(str(tmp_path / "model.safetensors")))


def test_reads_shards_through_their_index(tmp_path):
    first, second = TENSORS
    save_file({first: TENSORS[first]}, tmp_path / "a.safetensors")
    save_file({second: TENSORS[second]}, tmp_path / "b.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {first: "a.safetensors", second: "b.safetensors"}}))
    assert same(read_state_dict(index))
    (tmp_path / "b.safetensors").unlink()
    with pytest.raises(WeightsError, match=r"b\.safetensors"):
        read_state_dict(index)


def test_an_index_must_keep_its_promises(tmp_path):
    save_file({"a": torch.ones(1)}, tmp_path / "a.safetensors")
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "a.safetensors", "c": "a.safetensors"}}))
    with pytest.raises(WeightsError, match="do not hold: c"):
        read_state_dict(index)
    for content in ("{}", "[]", "no json", '{"weight_map": [1]}'):
        index.write_text(content)
        with pytest.raises(WeightsError, match="not an index"):
            read_state_dict(index)


@pytest.mark.skipif(not MAPPINGS.exists(), reason="only Linux tells what a process has mapped")
@pytest.mark.parametrize("suffix", ["pth", "safetensors"])
def test_files_are_mapped_not_read(tmp_path, suffix):
    path = tmp_path / f"model.{suffix}"
    large = {"w": torch.zeros(4_000_000)}
    torch.save(large, path) if suffix == "pth" else save_file(large, path)
    weight = read_state_dict(path)["w"]
    assert str(path) in MAPPINGS.read_text()
    weight.add_(1)  # private pages: the file is not changed
    assert not read_state_dict(path)["w"].any()


def test_wrapper_and_fsdp_segments_are_stripped_wherever_they_are(tmp_path):
    wrapped = {
        "model._fsdp_wrapped_module.blocks.0._fsdp_wrapped_module.weight": TENSORS["blocks.0.weight"],
        "_fsdp_wrapped_module.model.head._fsdp_wrapped_module.bias": TENSORS["head.bias"],
    }
    torch.save(wrapped, tmp_path / "a.pt")
    assert same(read_state_dict(tmp_path / "a.pt"))
    torch.save(wrapped | {"head.bias": torch.zeros(4)}, tmp_path / "b.pt")
    with pytest.raises(WeightsError, match=r"head\.bias twice"):
        read_state_dict(tmp_path / "b.pt")


@pytest.mark.parametrize("suffix", ["npy", "pt", "safetensors"])
def test_one_tensor_is_read_from_what_it_may_have_been_dumped_to(tmp_path, suffix):
    noise, path = torch.randn(1, 3, 2), tmp_path / f"dump.{suffix}"
    if suffix == "npy":
        np.save(path, noise.numpy())
    elif suffix == "pt":
        torch.save(noise, path)
    else:
        save_file({"x": noise}, path)  # the only one, so its name does not matter
    assert torch.equal(read_tensor(path, "noise"), noise)


def test_of_several_tensors_the_named_one_is_read_and_no_other(tmp_path):
    path = tmp_path / "dump.pt"
    torch.save({"noise": torch.ones(2), "latents": torch.zeros(2)}, path)
    assert torch.equal(read_tensor(path, "noise"), torch.ones(2))
    with pytest.raises(WeightsError, match="no tensor named 'prompt_embeds', but latents, noise"):
        read_tensor(path, "prompt_embeds")


@pytest.mark.parametrize("content", [b"", b"no array", np.lib.format.MAGIC_PREFIX + b"\x01\x00"])
def test_a_broken_array_is_refused(tmp_path, content):
    path = tmp_path / "noise.npy"
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=r"noise\.npy"):
        read_tensor(path, "noise")
    np.save(path, np.array([{}], dtype=object))  # a pickle, which could run code
    with pytest.raises(WeightsError, match="array of numbers"):
        read_tensor(path, "noise")


def test_a_distilled_checkpoint_gives_the_averaged_generator(tmp_path):
    models = {
        "generator": {"model.w": torch.zeros(2)},
        "critic": {"model.w": torch.full((2,), 9.0)},
        "generator_ema": {"model._fsdp_wrapped_module.w": torch.ones(2)},
    }
    torch.save(models, tmp_path / "rolling_forcing_dmd.pt")
    assert same(read_state_dict(tmp_path / "rolling_forcing_dmd.pt"), {"w": torch.ones(2)})
    del models["generator_ema"]
    torch.save(models, tmp_path / "plain.pt")
    assert same(read_state_dict(tmp_path / "plain.pt"), {"w": torch.zeros(2)})


class Code:
    """A pickle that would run code when it is read."""

    def __reduce__(self):
        return (print, ("it ran",))


def broken_files(tmp_path):
    torch.save(TENSORS, tmp_path / "whole.pth")
    save_file(TENSORS, tmp_path / "whole.safetensors")
    pickled, safe = (tmp_path / "whole.pth").read_bytes(), (tmp_path / "whole.safetensors").read_bytes()
    pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n"
    files = {
        "half.pth": pickled[: len(pickled) // 2],
        "short.pth": pickled[:-1],
        "empty.pth": b"",
        "page.pth": b"<!doctype html><title>404</title>",
        "pointer.pth": pointer,
        "half.safetensors": safe[:-3],
        "header.safetensors": safe[:20],
        "tiny.safetensors": safe[:4],
        "pointer.safetensors": pointer,
        "other.gguf": b"GGUF",
        "list.pth": None,
        "numbers.pth": None,
        "nested.pth": None,
        "nothing.pth": None,
        "code.pth": None,
    }
    contents = {
        "list": [torch.ones(1)],
        "numbers": {"step": 3},
        "nested": {"critic": {"w": torch.ones(1)}},
        "nothing": {},
        "code": {"w": Code()},
    }
    for name, data in files.items():
        if data is None:
            torch.save(contents[name.split(".")[0]], tmp_path / name)
        else:
            (tmp_path / name).write_bytes(data)
    return files


def test_broken_files_are_refused_in_one_line_that_names_them(tmp_path, capfd):
    for name in broken_files(tmp_path):
        with pytest.raises(WeightsError) as failure:
            read_state_dict(tmp_path / name)
        message = str(failure.value)
        assert name in message and "\n" not in message, message
        assert "weights_only=False" not in message
    assert "it ran" not in capfd.readouterr().out


def test_missing_files_and_folders_are_refused(tmp_path):
    with pytest.raises(WeightsError, match="does not exist"):
        read_state_dict(tmp_path / "none.pth")
    with pytest.raises(WeightsError, match="is a folder"):
        read_state_dict(tmp_path)


def test_a_pickle_of_plain_python_is_refused(tmp_path):
    (tmp_path / "plain.pt").write_bytes(pickle.dumps({"w": [1.0]}, protocol=2))
    with pytest.raises(WeightsError, match=r"plain\.pt"):
        read_state_dict(tmp_path / "plain.pt")


def test_check_names_accepts_what_is_expected():
    check_names(TENSORS, {"blocks.0.weight": (2, 3), "head.bias": torch.Size([4])}, "the DiT")


def test_check_names_says_everything_at_once():
    found = {
        "a": torch.zeros(2),
        "b": torch.zeros(3),
        "c": torch.zeros(2, dtype=torch.int64),
        "d": torch.zeros(2, dtype=torch.float8_e4m3fn),
        "x": torch.zeros(7),
        "y": torch.zeros(8),
    }
    expected = {"a": (2,), "b": (4,), "c": (2,), "d": (2,), "m": (5,), "n": (6, 1)}
    with pytest.raises(WeightsError) as failure:
        check_names(found, expected, "the DiT in model.safetensors")
    first, *lists = str(failure.value).splitlines()
    assert "the DiT in model.safetensors" in first
    assert lists == [
        "  missing: m [5]; n [6, 1]",
        "  unexpected: x [7]; y [8]",
        "  misshapen: b is [3], expected [4]",
        "  not 16 to 64-bit floats: c is int64; d is float8_e4m3fn",
    ]


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def test_finds_the_published_layout(tmp_path):
    touch(
        tmp_path,
        "Wan2.1-T2V-1.3B/config.json",
        "Wan2.1-T2V-1.3B/diffusion_pytorch_model.safetensors",
        "Wan2.1-T2V-1.3B/models_t5_umt5-xxl-enc-bf16.pth",
        "Wan2.1-T2V-1.3B/Wan2.1_VAE.pth",
        "Wan2.1-T2V-1.3B/google/umt5-xxl/tokenizer.json",
        "Wan2.1-T2V-1.3B/google/umt5-xxl/spiece.model",
        "checkpoints/rolling_forcing_dmd.pt",
    )
    wan = tmp_path / "Wan2.1-T2V-1.3B"
    assert find_files(tmp_path) == {
        "checkpoint": tmp_path / "checkpoints/rolling_forcing_dmd.pt",
        "dit": wan / "diffusion_pytorch_model.safetensors",
        "config": wan / "config.json",
        "text_encoder": wan / "models_t5_umt5-xxl-enc-bf16.pth",
        "tokenizer": wan / "google/umt5-xxl",
        "vae": wan / "Wan2.1_VAE.pth",
    }
    assert find_files(wan)["checkpoint"] is None
    assert find_files(wan)["dit"] == wan / "diffusion_pytorch_model.safetensors"


def test_finds_the_hugging_face_layout_and_does_not_take_its_parts_for_the_dit(tmp_path):
    touch(
        tmp_path,
        "text_encoder/model.safetensors.index.json",
        "text_encoder/config.json",
        "tokenizer/tokenizer.json",
        "vae/diffusion_pytorch_model.safetensors",
        "vae/config.json",
        "transformer/diffusion_pytorch_model.safetensors.index.json",
    )
    assert find_files(tmp_path) == {
        "checkpoint": None,
        "dit": None,
        "config": None,
        "text_encoder": tmp_path / "text_encoder/model.safetensors.index.json",
        "tokenizer": tmp_path / "tokenizer",
        "vae": tmp_path / "vae/diffusion_pytorch_model.safetensors",
    }


def test_an_empty_folder_holds_nothing_and_a_missing_one_is_refused(tmp_path):
    assert find_files(tmp_path) == dict.fromkeys(PUBLISHED_FILES)
    with pytest.raises(WeightsError, match="not a folder"):
        find_files(tmp_path / "none")
