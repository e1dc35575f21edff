"""Every hardware number, once, with its source.

Sources (pages of the Neuron SDK documentation): A3 trainium2_arch, A4 trainium3_arch, HW neuron-hardware pages,
PERF nki_perf_guide, DMAB nki-dma-bandwidth-guide, DMAO nki-dma-overview, LANG nki.language.tile_size,
KLR the open-source NKI front end (usable SBUF bytes, alignments), A2 trainium_inferentia2_arch, DGE nki-dge,
KOPT kernel-optimization tutorial, SUMM overview-summary-page of Neuron Explorer. Units are in the names.
"""

from __future__ import annotations

from dataclasses import dataclass

PARTITIONS = 128  # lanes of SBUF and PSUM (A3)
PSUM_BANKS = 8  # (A3)
PSUM_BANK_BYTES = 2048  # a partition and bank (A3)
PSUM_BYTES = PSUM_BANKS * PSUM_BANK_BYTES  # a partition
STATIONARY_FREE_MAX = 128  # columns of the stationary operand (LANG gemm_stationary_fmax)
BN_STATS_FREE_MAX = 512  # (LANG)
GEMM_MOVING_FREE_MAX = 512  # columns of the moving operand (LANG gemm_moving_fmax)
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
    dma_engine_gb_s: float  # achievable rate of one DMA engine, bytes/ns (DMAB table)
    dma_peak_gb_s: float  # all engines of a core, as the profiler's metadata states (DMAO text x 16)

    vector_lanes_16bit: int  # elements a partition and cycle of VectorE's data path, 16-bit floats (A3, A4)
    vector_lanes: int  # other dtypes
    scalar_lanes_16bit: int  # the same of ScalarE (A3, A4)

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
    vector_lanes_16bit=4,
    vector_lanes=2,
    scalar_lanes_16bit=1,
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
    vector_lanes_16bit=4,
    vector_lanes=2,
    scalar_lanes_16bit=2,
)

TARGETS = {"trn2": TRN2, "trn3": TRN3}
_ALIASES = {"gen3": "trn2", "gen4": "trn3"}


def target(name: str) -> Target:
    """Look a target up by name (trn2, trn3, gen3, gen4). Raises ValueError naming the known ones."""
    key = _ALIASES.get(name, name)
    if key not in TARGETS:
        raise ValueError(f"unknown target {name!r}: known are {', '.join(TARGETS)}")
    return TARGETS[key]


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number of the timing model that no source states outright: what is used, its likely range, and why."""

    name: str
    value: float
    low: float  # the fast end
    high: float  # the slow end
    source: str  # the nearest document or published profile
    reason: str

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high:
            raise ValueError(f"{self.name}: {self.low} <= {self.value} <= {self.high} does not hold")


# Published profiles: DMAO shows a trn2 timeline of two small kernels, KOPT (kernel-optimization tutorial) that of a
# matmul. They are pictures in the documentation; times read off them are good to about 20 ns.
# fmt: off
ISSUE_CYCLES = Estimate(
    "issue_cycles", 64, 48, 100,
    source="A2, instruction costs of SDK 2.26",
    reason="shortest distance of two instructions of an engine; stated as about 64 cycles on trn1, as 100 in "
           "the rule of thumb for small tiles",
)
VECTOR_LATENCY_NS = Estimate(
    "vector_latency_ns", 158, 104, 260,
    source="KOPT: 0.69 us for 512 cycles",
    reason="VectorE from its last element to the visible result; low is 100 cycles (A2), high the 264 cycles "
           "that PERF saw between dependent instructions",
)
SCALAR_LATENCY_NS = Estimate(
    "scalar_latency_ns", 190, 84, 300,
    source="PERF: 264 cycles between dependent instructions",
    reason="the same for ScalarE; DMAO shows about 300 ns beyond the data",
)
TENSOR_LATENCY_NS = Estimate(
    "tensor_latency_ns", 170, 60, 250,
    source="KOPT: 0.60 us for 1024 cycles",
    reason="the same for TensorE; low is the fill of the array",
)
GPSIMD_LATENCY_NS = Estimate(
    "gpsimd_latency_ns", 160, 100, 400,
    source="none",
    reason="the same for GpSimdE; taken like VectorE",
)
SEMAPHORE_NS = Estimate(
    "semaphore_ns", 40, 20, 120,
    source="DMAO: 30 ns from ScalarE to GpSimdE",
    reason="signal from one engine to a waiting one",
)
TABLE_LOAD_NS = Estimate(
    "table_load_ns", 1300, 600, 1500,
    source="DMAO: 1.33 us before the first activation",
    reason="ScalarE loads the tables of another function; which functions share a table is not documented",
)
DMA_START_NS = Estimate(
    "dma_start_ns", 1000, 750, 1300,
    source="DMAB: about 1300 ns; DMAO: 745 and 1000 ns",
    reason="from the trigger to the first byte",
)
DMA_DONE_NS = Estimate(
    "dma_done_ns", 300, 200, 500,
    source="DMAO: 300 ns",
    reason="from the last byte to the start of the engine that waits for it",
)
DMA_ISSUE_NS = Estimate(
    "dma_issue_ns", 495, 420, 620,
    source="naive bf16 matmul: 0.52 us a DMA; KOPT: 0.61 us",
    reason="distance of two DMAs of one queue whose descriptors were made before; both profiles issue two DMAs a "
           "matmul, in the second one their bytes count, too",
)
DMA_HWDGE_NS = Estimate(
    "dma_hwdge_ns", 600, 500, 750,
    source="DGE: about 600 ns",
    reason="distance of two DMAs of a hardware generator",
)
DMA_SWDGE_NS = Estimate(
    "dma_swdge_ns", 1000, 600, 1600,
    source="none",
    reason="GpSimdE writes the descriptors of one DMA; at least what hardware takes",
)
DMA_SWDGE_ROW_NS = Estimate(
    "dma_swdge_row_ns", 4, 1, 10,
    source="none",
    reason="and so much for each row of a gather or scatter",
)
DMA_DESCRIPTOR_NS = Estimate(
    "dma_descriptor_ns", 18, 10, 28,
    source="259 GB/s at 1 KiB and 354 GB/s at 4 KiB rows; KOPT",
    reason="what a contiguous run costs its DMA engine beside its bytes",
)
DMA_RATE = Estimate(
    "dma_rate", 1.0, 0.92, 1.22,
    source="DMAB table; DMAO: 32 KiB in 1416 ns",
    reason="time of a byte over the table's rate; rates of two generations of text differ by 15 %",
)
DMA_TRANSPOSE = Estimate(
    "dma_transpose", 1.11, 1.11, 1.5,
    source="A3: up to 90 % of a copy",
    reason="time of an aligned HBM to SBUF transpose",
)
DMA_TRANSPOSE_SBUF = Estimate(
    "dma_transpose_sbuf", 2.0, 2.0, 3.0,
    source="A3: up to 50 % of a copy",
    reason="time of an SBUF to SBUF transpose",
)
DMA_TRANSPOSE_ODD = Estimate(
    "dma_transpose_odd", 4.0, 2.5, 8.0,
    source="PERF: much lower bandwidth",
    reason="time of a transpose whose shape the hardware does not favour",
)
DMA_COMPUTE = Estimate(
    "dma_compute", 1.5, 1.0, 2.0,
    source="DMAO: half throughput before trn3",
    reason="time of a reduction in the DMA",
)
SBUF_CONTENTION = Estimate(
    "sbuf_contention", 0.05, 0.0, 0.1,
    source="memory-hierarchy-overview: SBUF has about 20 times the bandwidth of HBM",
    reason="share of the time of a DMA that VectorE loses to it while both use SBUF",
)
VECTOR_PAIR = Estimate(
    "vector_pair", 1.0, 0.9, 1.5,
    source="A3 data-path width; SDK 2.26 states 2N for trn1",
    reason="cycles for each element of two 32-bit SBUF inputs; the path is two elements wide",
)
VECTOR_WIDE = Estimate(
    "vector_wide", 0.5, 0.5, 0.8,
    source="A3 data-path width; KOPT: 0.425 us for 512",
    reason="cycles for each element of one 32-bit input, SBUF to SBUF",
)
VECTOR_UNLISTED = Estimate(
    "vector_unlisted", 1.0, 0.7, 1.6,
    source="none",
    reason="relative cost of VectorE instructions without a published one",
)
GPSIMD_ELEMENT = Estimate(
    "gpsimd_element", 2.0, 1.3, 3.0,
    source="A2: 16 lanes of 32 bits for each of 8 cores",
    reason="cycles for each element of GpSimdE arithmetic without a published cost",
)
STRIDED = Estimate(
    "strided", 1.6, 1.0, 2.0,
    source="A2: half rate on trn1",
    reason="elements more than 16 bytes apart; not restated for trn2",
)
DYNAMIC_CYCLES = Estimate(
    "dynamic_cycles", 300, 64, 600,
    source="SDK 2.26: 600 for a copy with a dynamic address on trn1",
    reason="shortest instruction of a compute engine with an address in a register",
)
SCALAR_LOAD_NS = Estimate(
    "scalar_load_ns", 1500, 700, 2500,
    source="none",
    reason="a register load from HBM, taken like a small DMA",
)
REGISTER_NS = Estimate(
    "register_ns", 55, 30, 110,
    source="none",
    reason="one integer instruction of a sequencer, taken as 64 cycles",
)
LOOP_NS = Estimate(
    "loop_ns", 150, 60, 500,
    source="none",
    reason="branch and counter of one iteration of a compiled loop",
)
BARRIER_NS = Estimate(
    "barrier_ns", 1500, 800, 3000,
    source="none",
    reason="both cores of an LNC 2 pair meet, taken like a small DMA",
)
SCHEDULE = Estimate(
    "schedule", 1.0, 0.88, 1.14,
    source="difference to published profiles, docs/timing.md",
    reason="the compiler orders independent instructions in its own way",
)
# fmt: on
TENSOR_WARM_NS = 3000.0  # TensorE runs at half rate until it has worked this long (SUMM: about 3 us)
TENSOR_COLD_RATE = 0.5  # and again after its use fell below half in such a window (SUMM)
