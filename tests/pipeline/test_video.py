"""Video files, read back with PyAV; and what stays behind when writing fails."""

import os

import av
import numpy as np
import pytest
import torch

from nkismith.pipeline.errors import InputError, WeightsError
from nkismith.pipeline.video import (
    Mp4Writer,
    load_latents,
    read_image,
    save_latents,
    to_uint8,
    write_mp4,
    write_png_frames,
)


def gradients(frames, height, width):
    """Smooth frames that differ in time and in both directions, [frames, 3, height, width] in -1..1."""
    rows = torch.linspace(-1, 1, height)[:, None].expand(height, width)
    cols = torch.linspace(-1, 1, width)[None].expand(height, width)
    levels = torch.linspace(-0.8, 0.8, frames)
    return torch.stack([torch.stack([torch.full_like(rows, float(level)), rows, cols]) for level in levels])


def read(path):
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        about = (stream.codec_context.name, stream.pix_fmt, stream.average_rate)
        return about, np.stack([frame.to_ndarray(format="rgb24") for frame in container.decode(video=0)])


def listing(folder):
    return sorted(path.name for path in folder.iterdir())


def test_bytes_are_truncated_as_in_the_original():
    values = torch.tensor([-2.0, -1.0, -0.5, 0.0, 0.999, 1.0, 3.0])
    pixels = values.view(1, 1, 1, -1).expand(1, 3, 1, -1)
    expected = [int(min(max(0.5 * value + 0.5, 0), 1) * 255) for value in values.tolist()]
    assert to_uint8(pixels)[0, 0, :, 0].tolist() == expected
    assert to_uint8(torch.zeros(2, 3, 4, 5)).shape == (2, 4, 5, 3)


@pytest.mark.parametrize("size", [(48, 80), (47, 81), (1, 1)])
def test_mp4_is_h264_at_16_fps_and_shows_the_frames(tmp_path, size):
    frames = gradients(9, *size)
    assert write_mp4(frames, tmp_path / "out.mp4") == tmp_path / "out.mp4"
    about, decoded = read(tmp_path / "out.mp4")
    assert about == ("h264", "yuv420p", 16)
    assert decoded.shape == (9, size[0] + size[0] % 2, size[1] + size[1] % 2, 3)
    shown = decoded[:, : size[0], : size[1]].astype(float)
    assert np.abs(shown - to_uint8(frames)).mean() < 4
    assert listing(tmp_path) == ["out.mp4"]


def test_pieces_make_the_same_file_as_the_whole(tmp_path):
    frames = gradients(13, 48, 80)
    write_mp4(frames, tmp_path / "whole.mp4")
    write_mp4(iter(frames.split([9, 4])), tmp_path / "pieces.mp4")
    with Mp4Writer(tmp_path / "pushed.mp4") as video:
        for frame in frames.bfloat16().split(1):
            video.add(frame.float())
        assert not (tmp_path / "pushed.mp4").exists()
    assert np.array_equal(read(tmp_path / "whole.mp4")[1], read(tmp_path / "pieces.mp4")[1])
    assert len(read(tmp_path / "pushed.mp4")[1]) == 13


def test_a_video_does_not_depend_on_what_memory_held_before(tmp_path):
    rng, frames = np.random.default_rng(0), gradients(5, 48, 80)
    files = set()
    for _ in range(12):
        garbage = [rng.bytes(size) for size in rng.integers(1_000, 300_000, 60)]
        del garbage
        files.add(write_mp4(frames, tmp_path / "out.mp4").read_bytes())
    assert len(files) == 1


def test_an_existing_video_is_replaced_only_by_a_complete_one(tmp_path):
    path = tmp_path / "out.mp4"
    write_mp4(gradients(1, 16, 16), path)
    before = path.read_bytes()

    def stopped():
        yield gradients(2, 16, 16)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_mp4(stopped(), path)
    assert path.read_bytes() == before
    write_mp4(gradients(5, 16, 16), path)
    assert len(read(path)[1]) == 5


@pytest.mark.parametrize(
    "frames",
    [
        [],
        [torch.zeros(1, 3, 16, 16), torch.zeros(1, 3, 16, 18)],
        [torch.zeros(1, 4, 16, 16)],
        [torch.zeros(3, 16, 16)],
        [torch.zeros(0, 3, 16, 16)],
    ],
)
def test_nothing_stays_behind_when_the_frames_are_wrong(tmp_path, frames):
    with pytest.raises(InputError):
        write_mp4(frames, tmp_path / "out.mp4")
    assert listing(tmp_path) == []


def test_paths_that_cannot_be_written_are_refused_before_any_frame_is_made(tmp_path):
    def never():
        pytest.fail("asked for frames")
        yield

    for path, reason in ((tmp_path, "is a folder"), (tmp_path / "none/out.mp4", "does not exist")):
        with pytest.raises(InputError, match=reason):
            write_mp4(never(), path)
        with pytest.raises(InputError, match=reason):
            save_latents(torch.zeros(1), path)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="not an ordinary file"):
        write_mp4(never(), tmp_path / "pipe")
    assert listing(tmp_path) == ["pipe"]


def test_a_folder_without_permission_is_refused(tmp_path, monkeypatch):
    # Not with chmod: the tests may run as root, who may write anywhere.
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(InputError, match="cannot be written"):
        write_mp4(gradients(1, 16, 16), tmp_path / "out.mp4")


def test_png_frames_are_lossless(tmp_path):
    frames = gradients(3, 9, 7)
    paths = write_png_frames(iter(frames.split(2)), tmp_path / "new/frames")
    assert [path.name for path in paths] == ["frame_00000.png", "frame_00001.png", "frame_00002.png"]
    for path, frame in zip(paths, to_uint8(frames), strict=True):
        assert path.read_bytes().startswith(b"\x89PNG")
        assert np.array_equal(read(path)[1][0], frame)
    assert listing(tmp_path / "new/frames") == [path.name for path in paths]


def test_png_frames_need_a_folder(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="file"):
        write_png_frames(gradients(1, 4, 4), tmp_path / "file")


def test_an_image_is_read_and_scaled(tmp_path):
    frame = gradients(1, 16, 24)
    path = write_png_frames(frame, tmp_path)[0]
    assert np.array_equal(read_image(path, 16, 24), to_uint8(frame)[0])
    scaled = read_image(path, 8, 8)
    assert scaled.shape == (8, 8, 3) and scaled.dtype == np.uint8
    assert scaled[0, 0, 1] < 60 < 195 < scaled[-1, 0, 1]  # rows of the second colour still rise
    (tmp_path / "text.png").write_text("no image")
    for bad in ("text.png", "none.png"):
        with pytest.raises(InputError, match=bad):
            read_image(tmp_path / bad, 8, 8)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_latents_come_back_to_the_bit(tmp_path, dtype):
    latents = torch.randn(16, 3, 6, 10).transpose(0, 1).to(dtype)
    path = save_latents(latents, tmp_path / "latents.safetensors")
    assert torch.equal(load_latents(path), latents)
    assert load_latents(path).dtype == dtype
    assert listing(tmp_path) == ["latents.safetensors"]


def test_files_without_latents_are_refused(tmp_path):
    from safetensors.torch import save_file

    save_file({"noise": torch.zeros(1)}, tmp_path / "noise.safetensors")
    with pytest.raises(InputError, match="only noise"):
        load_latents(tmp_path / "noise.safetensors")
    with pytest.raises(WeightsError, match="does not exist"):
        load_latents(tmp_path / "none.safetensors")
