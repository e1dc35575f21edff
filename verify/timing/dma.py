"""How long a DMA takes: contiguous runs, the DMA engines that share them, and who makes the descriptors.

A transfer is cut into descriptors, one for each piece that is contiguous on both sides. Eight partitions share a DMA
engine; an engine pays a fixed time for each descriptor and then moves its bytes at the rate of the target's table.
Before the first byte lies a fixed latency, after the last one a semaphore. Sources: nki-dma-overview,
nki-dma-bandwidth-guide, nki-dge, trainium2_arch (transposes).
"""

from __future__ import annotations

from typing import NamedTuple

from nkismith.verify.simulator import hardware
from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.hardware import PARTITIONS, Estimate
from nkismith.verify.simulator.site import Site
from nkismith.verify.simulator.trace import Operand

PARTITIONS_PER_ENGINE = 8  # 128 partitions over 16 DMA engines (DMAO)
SPREAD_BYTES = 512  # an HBM to HBM run is cut no finer than this when it is spread over the engines


class Transfer(NamedTuple):
    """One DMA instruction."""

    queue: str  # load, store (static descriptors), hw_sync, hw_scalar, software
    issue: Estimate  # distance to the next DMA of its queue
    issue_ns: float
    engines: tuple[int, int]  # first DMA engine, and one past the last
    overhead_ns: float  # per engine: descriptors
    data_ns: float  # per engine: bytes
    rate: Estimate  # what data_ns rests on
    descriptors: int
    run_bytes: int  # bytes of a descriptor
    bytes: int  # moved
    hbm_read: int
    hbm_write: int


def contiguous(operand: Operand) -> int:
    """Elements that lie side by side, innermost first; partitions never join."""
    run = 1
    for stride, count in reversed(operand.pattern):
        if count == 1:
            continue
        if stride != run:
            break
        run *= count
    return run


def transfer(site: Site) -> Transfer:
    """The cost of a DMA instruction, or of the DMA behind sendrecv."""
    target = site.target
    sources = [n for n in site.instr.operands if n != "dst"]
    dst = site.operand("dst")
    size = max(ITEMSIZE[dst.dtype], *(ITEMSIZE[site.dtype(n)] for n in sources))
    moved = sum(site.operand(n).size for n in sources) if site.instr.op == "dma_compute" else dst.size
    run = min(contiguous(dst), *(contiguous(site.operand(n)) for n in sources))
    descriptors = max(1, moved // run)
    engines = _engines(site, sources, moved * size, descriptors)
    width = engines[1] - engines[0]
    rate, factor = hardware.DMA_RATE, hardware.DMA_RATE.value
    if site.instr.op == "dma_transpose":
        rate = _transpose(site)
        factor = rate.value
        engines, width = (0, target.dma_engines), target.dma_engines
        descriptors, run = max(1, moved * size // SPREAD_BYTES), SPREAD_BYTES // size
    elif site.instr.op == "dma_compute":
        rate = hardware.DMA_COMPUTE
        factor = rate.value
    read = sum(site.bytes(n) for n in sources if site.space(n) == "hbm")
    written = site.bytes("dst") if site.space("dst") == "hbm" else 0
    data = moved * size / width / target.dma_engine_gb_s * factor
    # All engines together cannot outrun the core's share of HBM; a copy within HBM needs it twice.
    data = max(data, (read + written) / target.hbm_gb_s)
    queue, issue, issue_ns = _queue(site, written > 0)
    return Transfer(
        queue,
        issue,
        issue_ns,
        engines,
        -(-descriptors // width) * hardware.DMA_DESCRIPTOR_NS.value,
        data,
        rate,
        descriptors,
        run * size,
        moved * size,
        read,
        written,
    )


def _engines(site: Site, sources: list[str], bytes_: int, descriptors: int) -> tuple[int, int]:
    """DMA engines that take part: those of the SBUF partitions touched, or as many as HBM to HBM pieces fill."""
    total = site.target.dma_engines
    on_chip = [site.operand(n) for n in ("dst", *sources) if site.space(n) != "hbm"]
    if not on_chip:
        return 0, max(1, min(total, max(descriptors, bytes_ // SPREAD_BYTES)))
    widest = max(on_chip, key=lambda o: o.partitions)
    first = widest.start % PARTITIONS // PARTITIONS_PER_ENGINE
    last = (widest.start % PARTITIONS + widest.partitions - 1) // PARTITIONS_PER_ENGINE
    return first, min(last + 1, total)


def _transpose(site: Site) -> Estimate:
    """Which of the three rates a transpose gets (A3)."""
    if site.space("src") == "sbuf":
        return hardware.DMA_TRANSPOSE_SBUF
    two_bytes = ITEMSIZE[site.dtype("dst")] == 2
    aligned = site.partitions("dst") == PARTITIONS and site.shape("dst")[-1] % 16 == 0
    return hardware.DMA_TRANSPOSE if two_bytes and aligned else hardware.DMA_TRANSPOSE_ODD


def _queue(site: Site, store: bool) -> tuple[str, Estimate, float]:
    """The queue, what its pace rests on, and the pace: host-made descriptors, hardware or GpSimdE generation."""
    terms = [o.dynamic for o in site.instr.operands.values() if o.dynamic is not None]
    mode = site.attr("dge_mode")
    rows = [t.index.size for t in terms if t.kind != "scalar" and t.index is not None]
    if rows or mode == "swdge":
        pace = hardware.DMA_SWDGE_NS.value + sum(rows) * hardware.DMA_SWDGE_ROW_NS.value
        return "software", hardware.DMA_SWDGE_NS, pace
    if terms or mode == "hwdge":
        queue = "hw_scalar" if site.attr("engine") == "scalar" else "hw_sync"
        return queue, hardware.DMA_HWDGE_NS, hardware.DMA_HWDGE_NS.value
    return "store" if store else "load", hardware.DMA_ISSUE_NS, hardware.DMA_ISSUE_NS.value
