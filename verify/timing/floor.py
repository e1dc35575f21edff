"""The time below which physics forbids: from a spec's `work` and the hardware alone, whatever the kernel does.

Each resource is given its best documented rate and all resources overlap perfectly, so no right kernel beats the
floor; a modelled latency below it means that work was left out (`faster_than_possible`). The floor is meant to be
safe, not tight: shares that neighbours usually take are not subtracted, no fixed latency is added.
"""

from __future__ import annotations

from dataclasses import dataclass

from nkismith.verify.simulator.dtypes import FLOATS, ITEMSIZE, PACKED
from nkismith.verify.simulator.hardware import PARTITIONS, Target

KEYS = ("hbm_read", "hbm_write", "matmul", "vector", "scalar", "gpsimd")
# Three bfloat16 products are the cheapest known way to float32 accuracy; the hardware's own float32 mode takes four.
_FLOAT32_PRODUCTS = 3


@dataclass(frozen=True, slots=True)
class Floor:
    """us: the floor in microseconds. bound: the resource that sets it. parts: microseconds a resource."""

    us: float
    bound: str
    parts: dict[str, float]


def floor(work: dict[str, float], machine: Target, lnc: int, itemsize: int = 2) -> Floor:
    """The floor of `work` with `lnc` physical cores (1 or 2) on it.

    work: bytes under hbm_read and hbm_write, FLOP under matmul, elements under vector, scalar, gpsimd. itemsize: bytes
    of the narrowest float input, which matrix products may be fed with.
    Resources: `hbm` (bytes both ways over the cores' DMA engines, at most one HBM stack), `tensor` (FLOP), `functions`
    (elements under `scalar`), `elementwise` (all elements over all engines that can take them).
    Raises ValueError for a key that no resource serves.
    """
    unknown = set(work) - set(KEYS)
    if unknown:
        raise ValueError(f"work has unknown keys {', '.join(sorted(unknown))}; known are {', '.join(KEYS)}")
    amount = dict.fromkeys(KEYS, 0.0) | work
    rate = rates(machine, lnc, itemsize)
    demand = {
        "hbm": amount["hbm_read"] + amount["hbm_write"],
        "tensor": amount["matmul"],
        "functions": amount["scalar"],
        "elementwise": amount["vector"] + amount["scalar"] + amount["gpsimd"],
    }
    parts = {name: demand[name] / rate[name] / 1e3 for name in demand}
    slowest = max(parts, key=lambda name: parts[name])
    return Floor(parts[slowest], slowest, parts)


def rates(machine: Target, lnc: int, itemsize: int = 2) -> dict[str, float]:
    """The best rates of `lnc` cores: bytes, FLOP or elements a nanosecond."""
    products = {1: 1 / 4 if machine.generation >= 4 else 1 / 2, 2: 1.0}.get(itemsize, _FLOAT32_PRODUCTS)
    scalar = machine.scalar_lanes_16bit * machine.scalar_ghz
    vector = machine.vector_lanes_16bit * machine.vector_ghz
    # trn3 has an exponential on VectorE at full width; before, a polynomial takes two float32 instructions at one
    # element a lane.
    functions = scalar + (vector if machine.generation >= 4 else machine.vector_ghz / 2)
    return {
        "hbm": min(machine.dma_peak_gb_s * lnc, machine.hbm_stack_gb_s),
        "tensor": machine.tensor_tflops_bf16 * 1e3 / products * lnc,
        "functions": PARTITIONS * functions * lnc,
        "elementwise": PARTITIONS * (vector + machine.gpsimd_ghz + scalar) * lnc,
    }


def narrowest(dtypes: list[str]) -> int:
    """Bytes of the narrowest float among some dtypes; a packed dtype counts as 8 bits an element."""
    sizes = [1 if d in PACKED else ITEMSIZE[d] for d in dtypes if d in FLOATS | PACKED]
    return min(sizes, default=4)
