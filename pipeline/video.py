"""Pixels to files: MP4, PNG frames and latents.

Frames come as the VAE gives them, [frames, 3, height, width] in -1..1, whole or piece by piece. A
file appears under its name only when it is complete: until then it is a hidden file beside it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import torch
from safetensors.torch import save_file
from torch import Tensor

from nkismith.pipeline.config import FPS
from nkismith.pipeline.errors import InputError
from nkismith.pipeline.weights import read_state_dict

LATENTS = "latents"
"""The tensor's name in a file of latents."""

QUALITY = {"crf": "18", "preset": "medium"}
"""x264's settings: visually lossless, at its default effort."""

NO_AVX512 = {"x264-params": "asm=AVX2"}
"""For CPUs that have AVX-512: x264's code for it reads memory it has not written, so the same frames do not always
give the same bytes. Seen with x264 core 165 as PyAV 18.1 ships it; with AVX2 or less, never in thousands of runs."""

BT601 = 6
"""The number of BT.601 (SMPTE 170M) in H.264, whose matrix swscale uses unless told otherwise."""


def to_uint8(pixels: Tensor) -> np.ndarray:
    """Pixels [frames, 3, height, width] in -1..1 to bytes [frames, height, width, 3]; truncated, as in the original."""
    if pixels.ndim != 4 or pixels.shape[1] != 3:
        raise InputError(f"frames are {list(pixels.shape)}; expected [frames, 3, height, width] with values in -1..1")
    scaled = pixels.detach().float().mul(0.5).add(0.5).clamp(0, 1).mul(255)
    return scaled.to(torch.uint8).permute(0, 2, 3, 1).contiguous().cpu().numpy()


class Mp4Writer:
    """Writes an H.264 video piece by piece, as a context manager.

    The file appears when the block ends without an error; otherwise nothing stays. Odd heights and widths
    are filled up by repeating the last row or column, since H.264 in yuv420p stores colours for 2x2 pixels.

    Raises: InputError if the path cannot be written or is not named .mp4, a piece has another size, or no frame was
    added.
    """

    def __init__(self, path: str | Path, fps: int = FPS):
        self.path = Path(path)
        self.fps = fps
        self.frames = 0
        self._size: tuple[int, int] | None = None
        self._container: Any = None
        self._stream: Any = None
        self._temporary = _beside(self.path)

    def __enter__(self) -> Mp4Writer:
        import av

        _check_writable(self.path)
        if self.path.suffix.lower() != ".mp4":
            raise InputError(f"{self.path}: the video is an MP4 file; give it a name that ends in .mp4")
        try:
            with _explained(self.path):
                self._temporary.touch()  # libav opens it only at the first frame, which may be minutes away
                self._container = av.open(str(self._temporary), "w", format="mp4")
        except BaseException:
            self._temporary.unlink(missing_ok=True)
            raise
        return self

    def add(self, pixels: Tensor) -> None:
        """Append frames [frames, 3, height, width] in -1..1."""
        import av

        for image in to_uint8(pixels):
            if self._stream is None:
                self._begin(image.shape[0], image.shape[1])
            elif image.shape[:2] != self._size:
                raise InputError(f"a frame of {image.shape[:2]} cannot follow frames of {self._size} in {self.path}")
            even = np.pad(image, ((0, image.shape[0] % 2), (0, image.shape[1] % 2), (0, 0)), mode="edge")
            frame = av.VideoFrame.from_ndarray(even, format="rgb24").reformat(format="yuv420p")
            frame.pts, frame.duration = self.frames, 1
            frame.time_base = Fraction(1, self.fps)
            self._encode(frame)
            self.frames += 1

    def _begin(self, height: int, width: int) -> None:
        with _explained(self.path):
            options = QUALITY | (NO_AVX512 if torch.backends.cpu.get_cpu_capability() == "AVX512" else {})
            self._stream = self._container.add_stream("libx264", rate=self.fps, options=options)
            self._stream.width, self._stream.height = width + width % 2, height + height % 2
            self._stream.pix_fmt = "yuv420p"
            self._stream.codec_context.colorspace = BT601
        self._size = (height, width)

    def _encode(self, frame: Any) -> None:
        with _explained(self.path):
            self._container.mux(self._stream.encode(frame))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and self._stream is None:
                raise InputError(f"no frames were given for {self.path}; a video needs at least one")
            if error is None:
                self._encode(None)  # flushes what the encoder holds back
            with _explained(self.path):
                self._container.close()
                if error is None:
                    self._temporary.replace(self.path)
        finally:
            self._container.close()
            self._temporary.unlink(missing_ok=True)


def write_mp4(frames: Tensor | Iterable[Tensor], path: str | Path, fps: int = FPS) -> Path:
    """Write a video in H.264, yuv420p.

    Args: frames [frames, 3, height, width] in -1..1, or pieces of such, which are written as they come.
    Returns: the path.
    Raises: InputError as Mp4Writer. Whatever goes wrong, also in `frames`, no file stays behind.
    """
    with Mp4Writer(path, fps) as video:
        for piece in _pieces(frames):
            video.add(piece)
    return Path(path)


def write_png_frames(frames: Tensor | Iterable[Tensor], folder: str | Path) -> list[Path]:
    """Write frames as `frame_00000.png` and so on, losslessly, into a folder, which is made if need be.

    Args: frames as for write_mp4. Returns: the paths in order.
    Raises: InputError if the folder cannot be written.
    """
    import av

    folder = Path(folder)
    with _explained(folder):
        folder.mkdir(parents=True, exist_ok=True)
    paths: list[Path] = []
    for piece in _pieces(frames):
        for image in to_uint8(piece):
            encoder = av.CodecContext.create("png", "w")
            encoder.width, encoder.height, encoder.pix_fmt = image.shape[1], image.shape[0], "rgb24"
            encoder.time_base = Fraction(1, FPS)
            packets = encoder.encode(av.VideoFrame.from_ndarray(image, format="rgb24")) + encoder.encode(None)
            path = folder / f"frame_{len(paths):05d}.png"
            with _replacing(path) as temporary:
                temporary.write_bytes(b"".join(bytes(packet) for packet in packets))
            paths.append(path)
    return paths


def read_image(path: str | Path, height: int, width: int) -> np.ndarray:
    """An image file, or the first frame of a video, scaled to bytes [height, width, 3]: what a clip may begin with.

    Raises: InputError if there is no such file or it holds no image.
    """
    import av

    path = Path(path)
    try:
        with av.open(str(path)) as container:
            frame = next(container.decode(video=0))
    except (av.FFmpegError, OSError, StopIteration, IndexError) as error:
        raise InputError(f"{path} cannot be read as an image ({_reason(error)}); give a PNG or JPEG file") from error
    return frame.reformat(width=width, height=height, format="rgb24").to_ndarray()


def save_latents(latents: Tensor, path: str | Path) -> Path:
    """Write latents [frames, channels, height, width] as safetensors. Raises: InputError if that is not possible."""
    path = Path(path)
    with _replacing(path) as temporary:
        save_file({LATENTS: latents.detach().cpu().contiguous()}, temporary)
    return path


def load_latents(path: str | Path) -> Tensor:
    """Read what save_latents wrote.

    Raises: WeightsError if the file cannot be read, InputError if it holds no latents.
    """
    tensors = read_state_dict(path)
    if LATENTS not in tensors:
        raise InputError(f"{path} holds no tensor named {LATENTS!r}, only {', '.join(sorted(tensors)) or 'nothing'}")
    return tensors[LATENTS]


def _pieces(frames: Tensor | Iterable[Tensor]) -> Iterable[Tensor]:
    return [frames] if isinstance(frames, Tensor) else frames


def _beside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}.part")


def _check_writable(path: Path) -> None:
    """Say in plain words, before any work is done, why a file could not be written."""
    if path.is_dir():
        raise InputError(f"{path} is a folder; name a file in it")
    if path.exists() and not path.is_file():
        # Renaming would put a video in the place of a device or a pipe.
        raise InputError(f"{path} is not an ordinary file; name one")
    if not path.parent.is_dir():
        raise InputError(f"the folder {path.parent} does not exist; make it, or write {path.name} somewhere else")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"the folder {path.parent} cannot be written; write {path.name} somewhere else")


@contextmanager
def _replacing(path: Path) -> Iterator[Path]:
    _check_writable(path)
    temporary = _beside(path)
    try:
        with _explained(path):
            yield temporary
            temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def _explained(path: Path) -> Iterator[None]:
    import av
    from safetensors import SafetensorError

    try:
        yield
    except (av.FFmpegError, OSError, SafetensorError) as error:
        raise InputError(f"{path} cannot be written ({_reason(error)}); check the path and the free space") from error


def _reason(error: BaseException) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
