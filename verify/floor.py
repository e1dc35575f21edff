"""The time below which physics forbids: from the spec's `work` and the hardware alone, whatever the kernel does.

Each resource is given its best documented rate and all resources overlap perfectly, so no right kernel beats the
floor; a modelled latency below it means that work was left out (`faster_than_possible`). The floor is meant to be
safe, not tight: shares that neighbours usually take are not subtracted, no fixed latency is added.
"""

from __future__ import annotations

from dataclasses import dataclass

from nkismith.kernels.spec import Bound
from nkismith.kernels.tensors import FLOATS, numpy_dtype
from nkismith.verify.simulator.hardware import PARTITIONS, Target, target

# Elements a cycle of the widest documented mode (trainium2_arch, trainium3_arch): 512 on VectorE for 16-bit data in
# SBUF, on GpSimdE one a lane; ScalarE doubles for 16-bit data from trn3 on.
_VECTOR_WIDTH = 4 * PARTITIONS
_GPSIMD_WIDTH = PARTITIONS
_SCALAR_WIDTH = {"trn2": PARTITIONS, "trn3": 2 * PARTITIONS}
# Exponentials and the like on VectorE: trn3 has an instruction at full width; on trn2 a polynomial takes two
# float32 instructions at one element a lane.
_VECTOR_FUNCTION_WIDTH = {"trn2": PARTITIONS / 2, "trn3": 4 * PARTITIONS}
# Three bfloat16 products are the cheapest known way to float32 accuracy; the hardware's own float32 mode takes four.
_FLOAT32_PRODUCTS = 3


@dataclass(frozen=True)
class Floor:
    """us: the floor in microseconds. bound: the resource that sets it. parts: microseconds a resource."""

    us: float
    bound: str
    parts: dict[str, float]


def floor(bound: Bound, target_name: str, lnc: int) -> Floor:
    """The floor of one case on `target_name` (trn2, trn3) with `lnc` physical cores (1 or 2) working on it.

    Resources: `hbm` (bytes both ways over the cores' DMA engines, at most one HBM stack), `tensor` (FLOP), `functions`
    (elements under `scalar`), `elementwise` (all elements over all engines that can take them).
    """
    hw = target(target_name)
    work = bound.work
    bytes_us = _bytes_us(hw, work["hbm_read"] + work["hbm_write"], lnc)
    functions = _SCALAR_WIDTH[hw.name] * hw.scalar_ghz + _VECTOR_FUNCTION_WIDTH[hw.name] * hw.vector_ghz
    elementwise = _VECTOR_WIDTH * hw.vector_ghz + _GPSIMD_WIDTH * hw.gpsimd_ghz + _SCALAR_WIDTH[hw.name] * hw.scalar_ghz
    products = 1 if _itemsize(bound) <= 2 else _FLOAT32_PRODUCTS
    parts = {
        "hbm": bytes_us,
        "tensor": products * work["matmul"] / (hw.tensor_tflops_bf16 * 1e6 * lnc),
        "functions": work["scalar"] / (functions * 1e3 * lnc),
        "elementwise": (work["vector"] + work["scalar"] + work["gpsimd"]) / (elementwise * 1e3 * lnc),
    }
    slowest = max(parts, key=lambda name: parts[name])
    return Floor(parts[slowest], slowest, parts)


def floor_us(bound: Bound, target_name: str, lnc: int) -> float:
    """`floor(...)`, only the microseconds."""
    return floor(bound, target_name, lnc).us


def _bytes_us(hw: Target, total: float, lnc: int) -> float:
    """Microseconds to move `total` bytes to or from HBM at the peak rate of the cores' DMA engines and their stack."""
    return total / (min(hw.dma_peak_gb_s * lnc, hw.hbm_stack_gb_s) * 1e3)


def _itemsize(bound: Bound) -> int:
    """Bytes per element of the narrowest float input, the one that matrix products may be fed with."""
    sizes = [numpy_dtype(t.dtype).itemsize for t in bound.inputs.values() if t.dtype in FLOATS]
    return min(sizes, default=4)
