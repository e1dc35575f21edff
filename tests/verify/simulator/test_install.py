"""The modules of nki: names and parameters by release, targets, configurations, displaced packages."""

from __future__ import annotations

import importlib
import subprocess
import sys
from types import ModuleType

import numpy as np
import pytest

from nkismith.verify.simulator import install, uninstall
from nkismith.verify.simulator.errors import LegalityError, UnsupportedInstruction
from nkismith.verify.simulator.install import setting
from nkismith.verify.simulator.kernel import TensorType, record
from tests.verify.simulator.one import floats

# What the documentation of 0.7 lists.
ISA = """
activate2 activation activation_reduce affine_select bn_aggr bn_stats core_barrier dge_mode dma_compute dma_copy
dma_engine dma_transpose dropout engine exponential get_nc_sub_version get_nc_version gpsimd_engine iota local_gather
matmul_perf_mode max8 memset nc_find_index8 nc_match_replace8 nc_matmul nc_matmul_mx nc_n_gather nc_stream_shuffle
nc_transpose nc_version nonzero_with_count oob_mode quantize_mx rand2 rand_get_state rand_set_state range_select
reciprocal reduce_cmd register_alloc register_load register_move register_store rng scalar_engine scalar_load
scalar_store scalar_tensor_tensor select_reduce sendrecv sequence_bounds set_rng_seed tensor_copy
tensor_copy_predicated tensor_engine tensor_partition_reduce tensor_reduce tensor_scalar tensor_scalar_cumulative
tensor_scalar_reduce tensor_tensor tensor_tensor_scan topk unknown_engine vector_engine NkiInstruction
NkiValidationError NkiScalar VirtualRegister
"""
LANGUAGE = """
DType MemoryRegion NKIObject NkiTensor NkiGrid NkiTileGrid NkiBlockGrid abs abs_max abs_min add affine_range all
alloc_blocks alloc_tiles arctan average bfloat16 bitwise_and bitwise_or bitwise_xor blocks bool_ broadcast_to bypass
ceil copy cos device_print divide dropout ds empty_like equal erf erf_dx exp expand_dims float16 float32
float4_e2m1fn_x4 float8_e4m3 float8_e4m3fn float8_e4m3fn_x4 float8_e5m2 float8_e5m2_x4 float8_e8m0fnu floor fmod
fori_loop full gather_flattened gelu gelu_apprx_sigmoid gelu_apprx_sigmoid_dx gelu_apprx_tanh gelu_dx greater
greater_equal hbm int16 int32 int64 int8 invert is_hbm is_on_chip is_psum is_sbuf left_shift less less_equal load
load_transpose2d log logical_and logical_not logical_or logical_xor matmul max maximum mean min minimum mish mod
multiply ndarray negative no_reorder not_equal num_programs ones power prelu private_hbm prod program_id program_ndim
psum rand random_seed reciprocal relu right_shift rms_norm rsqrt sbuf sequential_range shared_constant shared_hbm
shared_identity_matrix sigmoid sign silu silu_dx sin softmax softplus sqrt square static_range store subtract sum tan
tanh tfloat32 tile_size tiles transpose trunc uint16 uint32 uint64 uint8 var where while_loop zeros zeros_like
"""


@pytest.fixture(autouse=True)
def _again():
    """Every test leaves the newest SDK on trn2 installed."""
    modules = {n: m for n, m in sys.modules.items() if n.split(".")[0] == "nki"}
    yield
    install()
    sys.modules.update(modules)  # the module objects that other test files imported


def fresh(name: str, **setting: object) -> ModuleType:
    """A module of a new installation."""
    install(**setting)  # type: ignore[arg-type]
    return importlib.import_module(name)


class TestNames:
    @pytest.mark.parametrize(("module", "names"), [("nki.isa", ISA), ("nki.language", LANGUAGE)])
    def test_of_the_newest_release(self, module, names):
        assert [n for n in names.split() if not hasattr(fresh(module), n)] == []

    @pytest.mark.parametrize(
        ("sdk", "there", "missing"),
        [
            ("2.29", "nki.isa.tensor_copy", "nki.isa.activate2"), ("2.30", "nki.isa.activate2", "nki.isa.topk"),
            ("2.31", "nki.language.average", "nki.language.fori_loop"),
            ("2.32", "nki.language.fori_loop", "nki.language.tiles"),
            ("2.32", "nki.language.dynamic_range", "nki.isa.scalar_load"),
            ("2.33", "nki.language.tiles", "nki.language.dynamic_range"),
        ],
    )  # fmt: skip
    def test_by_release(self, sdk, there, missing):
        module, name = there.rsplit(".", 1)
        assert getattr(fresh(module, sdk=sdk), name)
        module, name = missing.rsplit(".", 1)
        with pytest.raises(UnsupportedInstruction, match=name):
            getattr(fresh(module, sdk=sdk), name)

    def test_an_unknown_name_says_so(self):
        with pytest.raises(UnsupportedInstruction, match=r"nki\.isa\.tensor_magic"):
            fresh("nki.isa").tensor_magic  # noqa: B018
        assert not hasattr(fresh("nki.isa"), "__wrapped__")  # what inspect asks every module for

    def test_a_misspelt_name_is_answered_with_near_ones(self):
        with pytest.raises(UnsupportedInstruction, match=r"nki\.language\.rsqr .*: did you mean rsqrt"):
            fresh("nki.language").rsqr  # noqa: B018

    def test_a_refusal_reads_as_two_sentences(self):
        refusal = LegalityError("partition_limit", "dst has 200 partitions, at most 128", "tile dimension 0", 7, "k.py")
        assert str(refusal) == "k.py:7: [partition_limit] dst has 200 partitions, at most 128. Fix: tile dimension 0"

    def test_parameters_by_release(self):
        def kernel(x):
            nisa.topk(*tiles(x), n=8, sorted=True)

        def tiles(x):
            tile = nl.load(x)
            made = nl.ndarray((2, 8), dtype=x.dtype, buffer=nl.sbuf)
            return made, nl.ndarray((2, 8), dtype=nl.uint32, buffer=nl.sbuf), tile

        isa, language = fresh("nki.isa", sdk="2.32"), sys.modules["nki.language"]
        nisa, nl = isa, language
        with pytest.raises(LegalityError) as caught:
            record(kernel, (TensorType((2, 64), "float32"),), sdk="2.32")
        assert caught.value.rule == "later_parameter"
        assert "sorted" in str(caught.value)

    def test_import_forms(self):
        install()
        program = """
import nki, nki.isa as nisa, nki.language as nl, nki.collectives as ncc, nki.compiler, nki.typing, nki.dtype
from nki import jit, simulate
from nki.isa import dma_copy, engine
from nki.isa.constants import oob_mode, dge_mode
from nki.language import NKIObject, bfloat16
from nki.compiler import CompileConfig, SpecializationConfig, AddressRotation
assert nisa.oob_mode is oob_mode and nki.isa is nisa and nki.language is nl and nl.NKIObject is nki.NKIObject
def annotated(x: nki.typing.tensor[nl.float32, 128, 512], y: nl.NkiTensor) -> nki.typing.mutable_tensor: ...
"""
        exec(compile(program, "imports", "exec"), {})

    def test_versions(self):
        assert fresh("nki", sdk="2.31").__version__ == "0.5.0"
        assert fresh("nki").__version__ == "0.7.0"


class TestSetting:
    def test_generations_compare(self):
        nisa = fresh("nki.isa", target="trn3")
        assert nisa.get_nc_version() == nisa.nc_version.gen4
        assert nisa.get_nc_version() >= nisa.nc_version.gen3
        nisa = fresh("nki.isa", target="trn2")
        assert nisa.get_nc_version() == nisa.nc_version.gen3 < nisa.nc_version.gen4
        assert nisa.get_nc_sub_version() == 0

    def test_the_environment_chooses(self, monkeypatch):
        monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")
        monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
        install()
        assert setting() == ("2.33", "trn3", 2)
        install(target="trn2", lnc=1)
        assert setting() == ("2.33", "trn2", 1)

    @pytest.mark.parametrize("wrong", [{"target": "trn9"}, {"sdk": "1.0"}, {"lnc": 3}])
    def test_unknown_ones_are_refused(self, wrong):
        with pytest.raises(ValueError, match=str(next(iter(wrong.values())))):
            install(**wrong)

    def test_cores_of_the_setting_launch(self):
        nki, nl = fresh("nki", lnc=2), sys.modules["nki.language"]

        def kernel(x):
            out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
            core = nl.program_id(0)
            assert nl.num_programs() == 2
            nl.store(out[core : core + 1], nl.load(x[core : core + 1]))
            return out

        x = floats(2, 8)
        assert np.array_equal(nki.simulate(kernel)(x), x)


class TestDisplaced:
    def test_a_real_package_comes_back(self):
        uninstall()
        real = {n: ModuleType(n) for n in ("nki", "nki.isa", "nki.other")}
        sys.modules.update(real)
        try:
            install()
            assert sys.modules["nki"] is not real["nki"]
            assert "nki.other" not in sys.modules
            install(sdk="2.31")  # a second time
            uninstall()
            assert all(sys.modules[n] is m for n, m in real.items())
        finally:
            for name in real:
                sys.modules.pop(name, None)

    def test_nothing_is_left_behind(self):
        uninstall()
        assert not [n for n in sys.modules if n.split(".")[0] in ("nki", "neuronxcc")]

    def test_a_program_that_only_installs(self):
        program = (
            "from nkismith.verify.simulator import install; install(); import nki.isa; "
            "import sys; print('torch' in sys.modules)"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
        assert done.stdout.strip() == "False"


class TestCollectives:
    def test_import_but_do_not_run(self):
        collectives = fresh("nki.collectives")
        group = collectives.ReplicaGroup([[0, 1]])
        with pytest.raises(UnsupportedInstruction, match="all_reduce"):
            collectives.all_reduce(dsts=[], srcs=[], replica_group=group, op=None)


class TestConfigurations:
    def test_are_checked(self):
        nki, compiler = fresh("nki"), importlib.import_module("nki.compiler")

        def kernel(x):
            return x

        configured = nki.jit(
            compile_config=compiler.CompileConfig(address_rotation=compiler.AddressRotation.DISABLE),
            specialization_config=compiler.SpecializationConfig(),
        )(kernel)
        x = floats(2, 2)
        assert np.array_equal(nki.simulate(configured)(x), x)
        with pytest.raises(TypeError, match="CompileConfig"):
            nki.jit(kernel, compile_config={"address_rotation": True})
        with pytest.raises(TypeError, match="AddressRotation"):
            compiler.CompileConfig(address_rotation=True)
        with pytest.raises(TypeError):
            compiler.CompileConfig(unknown=True)

    @pytest.mark.parametrize("allowed", [False, True])
    def test_a_nested_kernel_has_the_outer_one(self, allowed):
        nki, compiler = fresh("nki"), importlib.import_module("nki.compiler")
        other = compiler.CompileConfig(prefetch_auto=True)

        @nki.jit
        def plain(x):
            return x

        @nki.jit(compile_config=other)
        def inner(x):
            return x

        def outer(x):
            return inner(plain(x))

        x = floats(2, 2)
        nki.simulate(nki.jit(outer, compile_config=other))(x)
        special = compiler.SpecializationConfig(allow_nested_config_override=allowed)
        kernel = nki.jit(outer, specialization_config=special)
        if allowed:
            with pytest.warns(UserWarning, match="compile_config"):
                nki.simulate(kernel)(x)
            return
        with pytest.raises(LegalityError) as caught:
            nki.simulate(kernel)(x)
        assert caught.value.rule == "nested_config"

    def test_options_of_old_kernels(self):
        nki = fresh("nki")
        with pytest.warns(DeprecationWarning, match="mode"):
            nki.jit(mode="torchxla")(lambda x: x)
        with pytest.raises(TypeError, match="NEURON_PLATFORM_TARGET_OVERRIDE"):
            nki.jit(platform_target="trn2")

    def test_schedules_order_named_instructions(self):
        nki, nisa, nl = fresh("nki"), sys.modules["nki.isa"], sys.modules["nki.language"]

        @nki.jit
        def kernel(x):
            tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(tile, x, name="load")
            other = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
            nisa.memset(other, 0.0, name="clear")
            return x

        trace, _ = record(kernel.with_schedule([("clear", ["load"])]), (TensorType((2, 2), "float32"),))
        load, clear = trace.programs[0].body
        assert (clear.id, load.id) in trace.programs[0].edges
        with pytest.raises(LegalityError, match="missing"):
            record(kernel.with_schedule([("clear", "missing")]), (TensorType((2, 2), "float32"),))
