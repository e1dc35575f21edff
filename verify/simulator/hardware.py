"""Every hardware number, once, with its source.

Sources (pages of the Neuron SDK documentation): A3 trainium2_arch, A4 trainium3_arch, HW neuron-hardware pages,
PERF nki_perf_guide, DMAB nki-dma-bandwidth-guide, DMAO nki-dma-overview, LANG nki.language.tile_size,
KLR the open-source NKI front end (usable SBUF bytes, alignments). Units are in the names.
"""

from __future__ import annotations

from dataclasses import dataclass

PARTITIONS = 128  # lanes of SBUF and PSUM (A3)
PSUM_BANKS = 8  # (A3)
PSUM_BANK_BYTES = 2048  # a partition and bank (A3)
PSUM_BYTES = PSUM_BANKS * PSUM_BANK_BYTES  # a partition
STATIONARY_FREE_MAX = 128  # columns of the stationary operand (LANG gemm_stationary_fmax)
BN_STATS_FREE_MAX = 512  # (LANG)
PSUM_ALIGN_BYTES = 4  # (KLR)
SBUF_ALIGN_BYTES = 1  # (KLR)
REGISTERS_PER_ENGINE = 64  # 32-bit registers of a sequencer (nki.isa.register_alloc)
QUADRANT = 32  # partitions that the reshape bank of VectorE spans (A3)


@dataclass(frozen=True, slots=True)
class Target:
    """One Trainium generation, numbers a NeuronCore unless named otherwise."""

    name: str  # as in NEURON_PLATFORM_TARGET_OVERRIDE
    generation: int  # nc_version: gen3 is trn2
    sbuf_bytes: int  # a partition, physical (A3, A4)
    sbuf_usable_bytes: int  # a partition, after the compiler's reserve (KLR)
    matmul_free_max_fp32: int  # moving free size with a float32 destination (nki.isa.nc_matmul)
    matmul_free_max_bf16: int  # with a bfloat16 destination; 0 where there is none
    tensor_ghz: float
    vector_ghz: float
    scalar_ghz: float
    gpsimd_ghz: float
    hbm_gb_s: float  # HBM bandwidth of a core: the chip's over its eight cores (A3, A4)
    hbm_stack_gb_s: float  # one stack, shared by two cores (A3, A4)
    dma_engines: int  # (A3, A4)
    dma_engine_gb_s: float  # achievable rate of one DMA engine (DMAB table)
    dma_peak_gb_s: float  # all engines of a core, as the profiler's metadata states (DMAO text x 16)

    @property
    def sbuf_total_bytes(self) -> int:
        """All partitions together."""
        return self.sbuf_bytes * PARTITIONS

    @property
    def tensor_tflops_bf16(self) -> float:
        """Peak dense bf16 rate: 128 x 128 multiply-adds a cycle."""
        return 2 * PARTITIONS * PARTITIONS * self.tensor_ghz / 1e3

    def clock_ghz(self, engine: str) -> float:
        """Clock of an engine by name; SyncE has none published and runs with GpSimdE."""
        return {
            "tensor": self.tensor_ghz,
            "vector": self.vector_ghz,
            "scalar": self.scalar_ghz,
            "gpsimd": self.gpsimd_ghz,
            "sync": self.gpsimd_ghz,
        }[engine]


TRN2 = Target(
    name="trn2",
    generation=3,
    sbuf_bytes=224 * 1024,
    sbuf_usable_bytes=212984,
    matmul_free_max_fp32=512,
    matmul_free_max_bf16=0,
    tensor_ghz=2.4,
    vector_ghz=0.96,
    scalar_ghz=1.2,
    gpsimd_ghz=1.2,
    hbm_gb_s=375.0,
    hbm_stack_gb_s=750.0,
    dma_engines=16,
    dma_engine_gb_s=23.0,
    dma_peak_gb_s=435.2,
)

TRN3 = Target(
    name="trn3",
    generation=4,
    sbuf_bytes=256 * 1024,
    sbuf_usable_bytes=245752,
    matmul_free_max_fp32=4096,
    matmul_free_max_bf16=8192,
    tensor_ghz=2.4,
    vector_ghz=1.2,
    scalar_ghz=1.2,
    gpsimd_ghz=1.2,
    hbm_gb_s=587.5,
    hbm_stack_gb_s=1175.0,
    dma_engines=16,
    dma_engine_gb_s=33.0,
    dma_peak_gb_s=614.4,
)

TARGETS = {"trn2": TRN2, "trn3": TRN3}
_ALIASES = {"gen3": "trn2", "gen4": "trn3"}


def target(name: str) -> Target:
    """Look a target up by name (trn2, trn3, gen3, gen4). Raises ValueError naming the known ones."""
    key = _ALIASES.get(name, name)
    if key not in TARGETS:
        raise ValueError(f"unknown target {name!r}: known are {', '.join(TARGETS)}")
    return TARGETS[key]
