"""Run a few instructions on arrays, both ways the simulator has: as they are issued, and replayed from a trace.

`run(build, a, b)` loads a and b into SBUF tiles, calls build(*tiles), which issues instructions and returns tiles, and
gives back their values. Both ways must agree bit for bit.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from nkismith.verify.simulator import install, legality
from nkismith.verify.simulator.dtypes import named
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.execute import Execution, execute
from nkismith.verify.simulator.kernel import TensorType, record
from nkismith.verify.simulator.wire import decode, encode

install()
import nki  # noqa: E402
import nki.isa as nisa  # noqa: E402
import nki.language as nl  # noqa: E402


def kernel_of(build: Callable[..., Any]) -> Any:
    """A kernel that loads its inputs, calls `build` and stores the tiles it returns."""

    @nki.jit
    def kernel(*inputs):
        tiles = []
        for given in inputs:
            tile = nl.ndarray(given.shape, dtype=given.dtype, buffer=nl.sbuf)
            nisa.dma_copy(tile, given)
            tiles.append(tile)
        results = build(*tiles)
        outputs = []
        for tile in results if isinstance(results, tuple) else (results,):
            if tile.buffer is nl.psum:
                copy = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.sbuf)
                nisa.tensor_copy(copy, tile)
                tile = copy
            out = nl.ndarray(tile.shape, dtype=tile.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(out, tile)
            outputs.append(out)
        return tuple(outputs)

    return kernel


def replayed(build: Callable[..., Any], *arrays: np.ndarray, target: str = "trn2", precise: bool = True) -> Execution:
    """Record, send through bytes, check, execute."""
    types = tuple(TensorType(a.shape, str(named(a.dtype))) for a in arrays)
    trace, _ = record(kernel_of(build), types, target=target)
    trace = decode(encode(trace))
    legality.check(trace)
    return execute(trace, list(arrays), precise=precise)


def run(build: Callable[..., Any], *arrays: np.ndarray, target: str | None = None) -> Any:
    """Values of the tile, or tuple of tiles, that `build` returned. Nothing of them may be unwritten.

    Without a target, trn2 and trn3 must agree.
    """
    done = replayed(build, *arrays, target=target or "trn2")
    if target is None:
        other = replayed(build, *arrays, target="trn3")
        assert [a.tobytes() for a in other.outputs] == [a.tobytes() for a in done.outputs], "trn2 and trn3 differ"
    target = target or "trn2"
    assert all(mask is None for mask in done.unwritten), "an output holds data that nothing wrote"
    wide = replayed(build, *arrays, target=target, precise=False)
    assert [o.shape for o in wide.outputs] == [o.shape for o in done.outputs]
    install(target=target)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            live = nki.simulate(kernel_of(build))(*arrays)
    finally:
        install(target="trn2")
    for a, b in zip(live, done.outputs, strict=True):
        assert a.tobytes() == b.tobytes(), "eager and replayed execution differ"
    return live[0] if len(live) == 1 else live


def unwritten(build: Callable[..., Any], *arrays: np.ndarray, target: str = "trn2") -> np.ndarray:
    """Mask of the elements of the one tile that `build` returned which hold unwritten data."""
    done = replayed(build, *arrays, target=target)
    mask = done.unwritten[0]
    return np.zeros(done.outputs[0].shape, bool) if mask is None else mask


def warned(build: Callable[..., Any], *arrays: np.ndarray, target: str = "trn2") -> list[str]:
    """The texts of the warnings."""
    done = replayed(build, *arrays, target=target)
    assert all(line > 0 for line, _ in done.warnings)
    return [text for _, text in done.warnings]


def refused(build: Callable[..., Any], *arrays: np.ndarray, target: str = "trn2") -> str:
    """The rule that refuses the program. The error names a line and what was seen."""
    with pytest.raises(LegalityError) as caught:
        replayed(build, *arrays, target=target)
    assert caught.value.line is not None and caught.value.what
    return caught.value.rule


def like(tile: Any, dtype: Any = None, buffer: Any = None, shape: Any = None) -> Any:
    """A new tile with the geometry of another."""
    return nl.ndarray(shape or tile.shape, dtype=dtype or tile.dtype, buffer=buffer or nl.sbuf)


def in_psum(tile: Any) -> Any:
    """A copy in PSUM."""
    copy = like(tile, buffer=nl.psum)
    nisa.tensor_copy(copy, tile)
    return copy


def floats(*shape: int, seed: int = 0, dtype: Any = np.float32) -> np.ndarray:
    """Normal random values."""
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)
