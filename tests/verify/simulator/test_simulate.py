"""nki.simulate: arrays in and out, arguments, divergence from references, warnings, direct calls."""

from __future__ import annotations

import dataclasses
import enum
import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import ml_dtypes
import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkismith.verify.simulator import install
from nkismith.verify.simulator.divergence import Divergence
from nkismith.verify.simulator.errors import LegalityError, SimulatorError
from nkismith.verify.simulator.simulate import NkiWarning, simulate_kernel
from tests.verify.simulator.one import floats

torch = pytest.importorskip("torch")


@nki.jit
def copy(x):
    """The input, through SBUF."""
    tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, tile)
    return out


@nki.jit
def scaled(x, factor=2.0):
    """x times factor."""
    tile = nl.load(x)
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    nl.store(out, nl.multiply(tile, factor))
    return out


NUMPY = [
    "float32", "float16", "int8", "int16", "int32", "uint8", "uint16", "uint32", "bool", "bfloat16", "float8_e4m3",
    "float8_e4m3fn", "float8_e5m2", "float8_e8m0fnu",
]  # fmt: skip


class TestArrays:
    @pytest.mark.parametrize("name", NUMPY)
    def test_numpy(self, name):
        dtype = np.dtype(getattr(ml_dtypes, name) if hasattr(ml_dtypes, name) else name)
        x = np.random.default_rng(1).integers(0, 120, (4, 24)).astype(np.uint8)
        x = (x % 2 == 1) if name == "bool" else x.view(dtype) if dtype.itemsize == 1 else x.astype(dtype)
        got = nki.simulate(copy)(x)
        assert got.tobytes() == x.tobytes()
        assert got.shape == x.shape
        assert got.dtype == (np.dtype(ml_dtypes.float8_e4m3) if name == "float8_e4m3fn" else dtype)

    @pytest.mark.parametrize(
        "name", ["float32", "float16", "bfloat16", "int8", "int16", "int32", "int64", "uint8", "bool"]
    )
    def test_torch(self, name):
        x = torch.arange(96).reshape(4, 24).to(getattr(torch, name))
        got = nki.simulate(copy)(x)
        assert got.dtype == x.dtype
        assert torch.equal(got, x)

    @pytest.mark.parametrize("name", ["float8_e4m3fn", "float8_e5m2"])
    def test_torch_fp8(self, name):
        x = torch.arange(96).reshape(4, 24).to(torch.float32).to(getattr(torch, name))
        got = nki.simulate(copy)(x)
        assert got.dtype == x.dtype
        assert torch.equal(got.view(torch.uint8), x.view(torch.uint8))

    def test_the_fn_variant_exists_from_trn3(self):
        seen = []

        @nki.jit
        def kernel(x):
            seen.append(x.dtype)

        x = np.ones((2, 2), ml_dtypes.float8_e4m3fn)
        nki.simulate(kernel)(x)
        install(target="trn3")
        try:
            nki.simulate(kernel)(x)
        finally:
            install(target="trn2")
        assert seen == ["float8_e4m3", "float8_e4m3fn"]

    def test_of_other_layouts(self):
        x = floats(24, 8)
        for given in (x.T, x[::2], np.asfortranarray(x)):
            assert np.array_equal(nki.simulate(copy)(given), given)
        t = torch.from_numpy(x).T
        assert torch.equal(nki.simulate(copy)(t), t)

    def test_parameters_are_tensors(self):
        p = torch.nn.Parameter(torch.ones(2, 4))
        assert torch.equal(nki.simulate(copy)(p), torch.ones(2, 4))

    @pytest.mark.parametrize("dtype", ["float64", "complex64", "<U3"])
    def test_other_dtypes_are_refused(self, dtype):
        with pytest.raises(SimulatorError, match="dtype"):
            nki.simulate(copy)(np.zeros((2, 2), dtype))

    def test_empty_arrays_are_refused(self):
        with pytest.raises(SimulatorError, match="no elements"):
            nki.simulate(copy)(np.zeros((0, 2), np.float32))


@nki.jit
def add_in_place(cache, row, at):
    """cache[at] += row."""
    a, b = nl.load(cache[at : at + 1]), nl.load(row)
    nl.store(cache[at : at + 1], nl.add(a, b))
    return cache


class TestInputs:
    def test_written_ones_are_updated(self):
        cache, row = floats(4, 8), floats(1, 8, seed=1)
        want = cache.copy()
        want[2] += row[0]
        got = nki.simulate(add_in_place)(cache, row, 2)
        assert np.array_equal(cache, want)
        assert np.array_equal(got, want)

    def test_of_torch_too(self):
        cache = torch.zeros(4, 8, dtype=torch.bfloat16)
        nki.simulate(add_in_place)(cache, torch.ones(1, 8, dtype=torch.bfloat16), 1)
        assert cache.sum() == 8

    def test_read_only_arrays_may_be_read(self):
        cache, row = floats(4, 8), floats(1, 8)
        row.flags.writeable = False
        nki.simulate(add_in_place)(cache, row, 0)
        cache.flags.writeable = False
        with pytest.raises(SimulatorError, match="read-only"):
            nki.simulate(add_in_place)(cache, row, 0)

    def test_unwritten_ones_are_left_alone(self):
        x = floats(4, 8)
        x.flags.writeable = False
        nki.simulate(scaled)(x)


class Mode(enum.Enum):
    """How to combine."""

    SUM = 1
    PRODUCT = 2


class Pair(NamedTuple):
    """Two operands."""

    a: Any
    b: Any


@dataclasses.dataclass(frozen=True)
class Frozen:
    """Two operands in a frozen dataclass."""

    a: Any
    b: Any
    mode: Mode = Mode.SUM


class Config(nki.NKIObject):
    """Two operands in an NKIObject."""

    a: Any
    b: Any
    mode: Mode = Mode.SUM


def _combined(a, b, mode=Mode.SUM):
    out = nl.ndarray(a.shape, dtype=a.dtype, buffer=nl.shared_hbm)
    both = nl.add(nl.load(a), nl.load(b)) if mode is Mode.SUM else nl.multiply(nl.load(a), nl.load(b))
    nl.store(out, both)
    return out


class TestArguments:
    a, b = floats(4, 8), floats(4, 8, seed=1)

    @pytest.mark.parametrize(
        "packed", [Pair(a, b), Frozen(a, b), Config(a, b), Config(a=a, b=b, mode=Mode.SUM)], ids=lambda p: type(p)
    )
    def test_objects_hold_tensors(self, packed):
        @nki.jit
        def kernel(p):
            return _combined(p.a, p.b, getattr(p, "mode", Mode.SUM))

        assert np.array_equal(nki.simulate(kernel)(packed), self.a + self.b)
        assert packed.a is self.a

    def test_nested(self):
        @nki.jit
        def kernel(outer, *, extra):
            (a, (none, config)), use = outer
            assert none is None
            return _combined(use(a), config.b, config.mode), extra["x"]["y"]

        outer = ((self.a, (None, Config(b=self.b, mode=Mode.PRODUCT))), lambda t: t)
        got, other = nki.simulate(kernel)(outer, extra={"x": {"y": self.b}})
        assert np.array_equal(got, self.a * self.b)
        assert np.array_equal(other, self.b)

    def test_keywords_defaults_and_rest(self):
        @nki.jit
        def kernel(x, *more, factor=3.0, **rest):
            assert len(more) == 1
            assert rest["note"] == "text"
            return _combined(x, more[0], rest["mode"])

        got = nki.simulate(kernel)(self.a, self.b, mode=Mode.SUM, note="text")
        assert np.array_equal(got, self.a + self.b)

    def test_numbers_are_baked_in(self):
        assert np.array_equal(nki.simulate(scaled)(self.a, factor=0.5), self.a * np.float32(0.5))
        assert np.array_equal(nki.simulate(scaled)(self.a), self.a * 2)

    def test_lists_are_refused(self):
        @nki.jit
        def kernel(pair):
            return _combined(*pair)

        nki.simulate(kernel)((self.a, self.b))
        with pytest.raises(LegalityError) as caught:
            nki.simulate(kernel)([self.a, self.b])
        assert caught.value.rule == "argument_list"
        assert caught.value.line == kernel.function.__code__.co_firstlineno

    def test_a_wrong_call_names_the_kernel(self):
        with pytest.raises(SimulatorError, match=r"scaled.*argument"):
            nki.simulate(scaled)(self.a, 1.0, 2.0)


class TestResults:
    def test_structure_is_kept(self):
        @nki.jit
        def kernel(x):
            y = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(y, x)
            return Pair(y, (x, None))

        x = floats(2, 4)
        got = nki.simulate(kernel)(x)
        assert isinstance(got, Pair)
        assert isinstance(got.b, tuple)
        assert got.b[1] is None
        assert np.array_equal(got.a, x)

    def test_nothing(self):
        @nki.jit
        def kernel(x):
            nl.store(x, nl.add(nl.load(x), 1.0))

        x = np.zeros((2, 4), np.float32)
        assert nki.simulate(kernel)(x) is None
        assert (x == 1).all()

    @pytest.mark.parametrize(
        ("rule", "result"),
        [
            ("output_type", lambda x: 3), ("output_type", lambda x: {"x": x}),
            ("output_memory", lambda x: nl.load(x)),
            ("output_memory", lambda x: nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.private_hbm)),
        ],
    )  # fmt: skip
    def test_other_results_are_refused(self, rule, result):
        with pytest.raises(LegalityError) as caught:
            nki.simulate(nki.jit(result))(floats(2, 4))
        assert caught.value.rule == rule
        assert caught.value.line == result.__code__.co_firstlineno

    @pytest.mark.parametrize("dtype", [np.float32, np.int32])
    def test_what_no_instruction_wrote_reads_as_documented_with_a_warning(self, dtype, recwarn):
        def kernel(x, rows):
            out = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(out[:rows], x[:rows])
            return out

        x = floats(4, 8).astype(dtype)
        assert (nki.simulate(kernel)(x, 4) == x).all()
        assert not recwarn
        part = nki.simulate(kernel)(x, 3)
        assert (part[:3] == x[:3]).all()
        assert np.isnan(part[3]).all() if dtype is np.float32 else (part[3] == 0).all()
        (warning,) = recwarn
        assert warning.category is NkiWarning
        assert f":{kernel.__code__.co_firstlineno + 1}: " in str(warning.message)
        assert "8 of 32" in str(warning.message)
        assert "[3, 0]" in str(warning.message)

    def test_results_computed_from_unwritten_data_are_refused(self):
        def kernel(x, rows):
            tile = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(tile[:rows], x[:rows])
            nisa.tensor_scalar(tile, tile, nl.add, 1.0)
            out = nl.ndarray((4, 8), dtype=x.dtype, buffer=nl.shared_hbm)
            nisa.dma_copy(out, tile)
            return out

        x = floats(4, 8)
        assert (nki.simulate(kernel)(x, 4) == x + 1).all()
        with pytest.raises(LegalityError) as caught:
            nki.simulate(kernel)(x, 3)
        assert caught.value.rule == "unwritten_output"
        assert caught.value.line == kernel.__code__.co_firstlineno + 4
        assert "[3, 0]" in str(caught.value)
        assert "8 of 32" in str(caught.value)


class TestEnvironment:
    """A kernel file may set the target and the cores when it is imported, after `install`."""

    @staticmethod
    def kernel(x):
        out = nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.shared_hbm)
        tile = nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(tile[:, 0:1], int(nisa.get_nc_version()))
        nisa.memset(tile[:, 1:2], nl.num_programs())
        nisa.dma_copy(out, tile)
        return out

    @pytest.fixture(autouse=True)
    def open(self):
        install()

    def launch(self):
        return nki.simulate(self.kernel)(np.ones((1, 1), np.float32)).tolist()

    def test_is_read_at_each_launch(self, monkeypatch):
        assert self.launch() == [[3, 1]]
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
        monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
        assert self.launch() == [[4, 2]]

    def test_gives_way_to_the_arguments_of_install(self, monkeypatch):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
        install(target="trn2", lnc=1)
        assert self.launch() == [[3, 1]]

    @pytest.mark.parametrize("old", ["trn1", "inf2"])
    def test_of_an_old_target_is_judged_as_trn2_with_a_warning(self, monkeypatch, old):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", old)
        with pytest.warns(NkiWarning, match="trn2"):
            assert self.launch() == [[3, 1]]
        with pytest.raises(ValueError, match=old):
            install(target=old)


class TestCompare:
    """Named tiles against references."""

    @staticmethod
    def kernel(x, wrong=0.0):
        """exp(x) + 1 in steps, with an error of `wrong` in the middle."""
        tile = nl.load(x)
        grown = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf, name="grown")
        nisa.activation(grown, nl.exp, tile)
        nisa.tensor_scalar(grown[0:2, 3:5], grown[0:2, 3:5], nl.add, wrong)
        shifted = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.sbuf, name="shifted")
        nisa.tensor_scalar(shifted, grown, nl.add, 1.0)
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, shifted)
        return out

    x = floats(4, 8)

    @property
    def references(self):
        """What the named tiles should hold."""
        return {"shifted": np.exp(self.x) + 1, "grown": np.exp(self.x)}

    def test_what_agrees_passes(self):
        nki.simulate(self.kernel, compare=self.references)(self.x)

    def test_the_first_that_differs_is_reported_with_its_line(self):
        with pytest.raises(Divergence) as caught:
            nki.simulate(self.kernel, compare=self.references)(self.x, 0.5)
        found = caught.value
        assert found.tile == "grown"
        assert found.line == self.kernel.__code__.co_firstlineno + 6
        assert found.at[0] < 2 and found.at[1] in (3, 4)
        assert found.got - found.want == pytest.approx(0.5, rel=1e-3)

    def test_tolerance_is_relative_to_the_largest(self):
        nki.simulate(self.kernel, compare=self.references, tolerance=1.0)(self.x, 0.5)

    def test_torch_references(self):
        want = {"grown": torch.from_numpy(np.exp(self.x))}
        nki.simulate(self.kernel, compare=want)(torch.from_numpy(self.x))

    def test_tiles_of_a_loop_stack(self):
        def kernel(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            for i in range(x.shape[0]):
                tile = nl.ndarray(x.shape[1:], dtype=x.dtype, buffer=nl.sbuf, name=f"part_{i % 1}")
                nisa.dma_copy(tile, x[i])
                nisa.dma_copy(out[i], tile)
            return out

        x = floats(3, 4, 8)
        nki.simulate(kernel, compare={"part_0": x})(x)
        other = x.copy()
        other[2, 1, 5] += 1
        with pytest.raises(Divergence) as caught:
            nki.simulate(kernel, compare={"part_0": other})(x)
        assert caught.value.at == (1, 5)

    @pytest.mark.parametrize("wrong", [{"other": np.zeros((4, 8))}, {"grown": np.zeros((4, 7))}])
    def test_wrong_references(self, wrong):
        with pytest.raises(SimulatorError, match=next(iter(wrong))):
            nki.simulate(self.kernel, compare=wrong)(self.x)


class TestLaunch:
    def test_on_two_cores(self):
        @nki.jit
        def kernel(x):
            half, at = x.shape[0] // nl.num_programs(), nl.program_id(0) * (x.shape[0] // nl.num_programs())
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            nl.store(out[at : at + half], nl.multiply(nl.load(x[at : at + half]), 2.0))
            return out

        x = floats(8, 16)
        for run in (kernel, kernel[1], kernel[2], kernel[(2,)]):
            assert np.array_equal(nki.simulate(run)(x), x * 2)
        with pytest.raises(LegalityError) as caught:
            kernel[3]
        assert caught.value.rule == "launch"

    def test_a_direct_call_needs_the_simulator(self, monkeypatch):
        x = floats(2, 4)
        monkeypatch.delenv("NKI_SIMULATOR", raising=False)
        with pytest.raises(SimulatorError, match="NKI_SIMULATOR=1"):
            copy(x)
        monkeypatch.setenv("NKI_SIMULATOR", "1")
        assert np.array_equal(copy(x), x)

    def test_simulate_kernel(self):
        x = floats(2, 4)
        assert np.array_equal(simulate_kernel(copy, (x,)), x)
        assert np.array_equal(simulate_kernel(scaled, (x,), {"factor": 3.0}), x * 3)

    def test_high_precision_mode(self, monkeypatch):
        """NKI_PRECISE_FP=0 keeps low-precision tensors wide."""

        def kernel(x):
            tile = nl.load(x, dtype=nl.bfloat16)
            out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
            nl.store(out, tile)
            return out

        x = floats(2, 4)
        assert np.array_equal(nki.simulate(kernel)(x), x.astype(ml_dtypes.bfloat16).astype(np.float32))
        monkeypatch.setenv("NKI_PRECISE_FP", "0")
        assert np.array_equal(nki.simulate(kernel)(x), x)

    def test_print_shows_values(self, capsys):
        @nki.jit
        def kernel(x):
            tile = nl.load(x)
            print("tile", tile)
            nl.device_print("now: ", tile)
            return x

        nki.simulate(kernel)(np.full((1, 2), 7.25, np.float32))
        shown = capsys.readouterr().out
        assert shown.count("7.25") >= 2
        assert "now: " in shown

    def test_warnings_name_the_line(self):
        def odd(x):
            tile = nl.load(x)
            nisa.dma_copy(x, tile, dge_mode=1)  # a number in place of the enumeration
            return x

        with warnings.catch_warnings():
            warnings.simplefilter("error")
            nki.simulate(copy)(floats(2, 4))
        with pytest.warns(NkiWarning, match=rf"test_simulate\.py:{odd.__code__.co_firstlineno + 2}: "):
            nki.simulate(odd)(floats(2, 4))


class TestRecordings:
    """A trace depends on the kernel and its arguments only."""

    program = """
import sys
from nkismith.verify.simulator import install
install()
sys.path.insert(0, sys.argv[1])
from kernel import kernel
from nkismith.verify.simulator.kernel import TensorType, record
from nkismith.verify.simulator.wire import encode
trace, _ = record(kernel, (TensorType((256, 128), "float32"),), lnc=2)
sys.stdout.buffer.write(encode(trace))
"""
    kernel = """
import nki.isa as nisa, nki.language as nl

def kernel(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(2):
        tile = nl.load(x[i * 128 : (i + 1) * 128])
        tile = nl.softmax(tile, axis=1)
        nl.store(out[i * 128 : (i + 1) * 128], tile)
    return out
"""

    def test_not_on_hash_order_directory_or_paths(self, tmp_path):
        found = set()
        root = Path(__file__).resolve().parents[3]
        for number in range(3):
            folder = tmp_path / f"somewhere{number}"
            folder.mkdir()
            (folder / "kernel.py").write_text(self.kernel)
            environment = os.environ | {"PYTHONHASHSEED": str(number)}
            done = subprocess.run(
                [sys.executable, "-c", self.program, str(folder)], cwd=folder if number else root,
                env=environment, capture_output=True, check=True,
            )  # fmt: skip
            found.add(done.stdout)
        assert len(found) == 1
