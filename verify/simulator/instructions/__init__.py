"""The instruction table: importing this package defines every instruction, one file an engine."""

from nkismith.verify.simulator.cards import cards
from nkismith.verify.simulator.instruction import TABLE
from nkismith.verify.simulator.instructions import (
    control,
    cores,
    dma,
    dma_transpose,
    gpsimd,
    gpsimd_gather,
    mx,
    scalar,
    tensor,
    vector,
    vector_random,
    vector_reduce,
    vector_search,
    vector_select,
)

__all__ = [
    "TABLE", "cards", "control", "cores", "dma", "dma_transpose", "gpsimd", "gpsimd_gather", "mx", "scalar", "tensor",
    "vector", "vector_random", "vector_reduce", "vector_search", "vector_select",
]  # fmt: skip
