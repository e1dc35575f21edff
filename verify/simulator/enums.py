"""The enumerations of nki.isa and the memory regions of nki.language.

Values as documented (nki.isa, nki.language.MemoryRegion of NKI 0.7).
"""

from __future__ import annotations

from enum import Enum, IntEnum


class engine(Enum):
    """Engines of a NeuronCore."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


class reduce_cmd(Enum):
    """What an instruction does with its engine's accumulator registers."""

    idle = 0
    reset = 1
    reduce = 2
    reset_reduce = 3
    load_reduce = 4


class dge_mode(Enum):
    """Who builds the descriptors of a DMA."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


class oob_mode(Enum):
    """What a dynamic access outside its tensor does."""

    error = 0
    skip = 1


class matmul_perf_mode(Enum):
    """Performance mode of nc_matmul."""

    none = "none"
    double_row = "double_row"


class nc_version(IntEnum):
    """NeuronCore generations, in order."""

    gen2 = 2
    gen3 = 3
    gen4 = 4


class dma_engine(Enum):
    """Engine that carries a sendrecv."""

    dma = 1
    gpsimd_dma = 2


class MemoryRegion(Enum):
    """Where a tensor lives."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    @property
    def space(self) -> str:
        """sbuf, psum or hbm."""
        return _SPACES[self]


_SPACES = {
    MemoryRegion.sbuf: "sbuf",
    MemoryRegion.psum: "psum",
    MemoryRegion.private_hbm: "hbm",
    MemoryRegion.shared_hbm: "hbm",
}
ENUMS = (engine, reduce_cmd, dge_mode, oob_mode, matmul_perf_mode, nc_version, dma_engine, MemoryRegion)
