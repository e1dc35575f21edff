"""The two cores of a launch: exchange of tiles and barriers. A core that waits for the other is executed again later.

`m.post` is shared by the cores: `log` grows with every progress, `inbox` holds sent tiles, `arrived` counts barriers.
"""

from nkismith.verify.simulator.dtypes import ITEMSIZE
from nkismith.verify.simulator.enums import dma_engine, engine
from nkismith.verify.simulator.instruction import ENUM, HBM, PLAIN, SBUF, instruction, out, tile

DMA = dma_engine.dma
GPSIMD = engine.gpsimd
CORES = (0, 1)
# Bytes a partition that GpSimdE's own DMA moves, by item size (nki.isa.sendrecv).
GPSIMD_DMA_BYTES = {4: 1024, 2: 512, 1: 256}


@instruction(
    engines=("dma", "gpsimd"),
    limits=(
        "LNC 2; ranks 0 and 1",
        "src and dst in SBUF, equal dtype and shape",
        "gpsimd_dma: 1024, 512 or 256 bytes a partition for 4-, 2- and 1-byte dtypes",
    ),
    cost="fixed latency plus bytes over the bandwidth",
)
class sendrecv:
    """Send src to another core's dst and receive into dst; operations of one pipe_id complete together."""

    def signature(
        src: tile(SBUF, aligned=False),
        dst: out(SBUF, aligned=False),
        send_to_rank: PLAIN,
        recv_from_rank: PLAIN,
        pipe_id: PLAIN,
        dma_engine: ENUM = DMA,
    ): ...

    def engine(site):
        return "gpsimd" if site.attr("dma_engine") == "gpsimd_dma" else "dma"

    def check(site):
        if site.lnc != 2:
            raise site.refuse("launch", f"sendrecv at LNC {site.lnc}", "launch with kernel[2]")
        for name in ("send_to_rank", "recv_from_rank"):
            if site.attr(name) not in CORES:
                raise site.refuse("core_number", f"{name}={site.attr(name)!r}", "0 or 1")
        if (site.shape("src"), site.dtype("src")) != (site.shape("dst"), site.dtype("dst")):
            raise site.refuse(
                "operand_shapes",
                f"src is {site.shape('src')} {site.dtype('src')}, dst {site.shape('dst')} {site.dtype('dst')}",
                "equal shapes and dtypes",
            )
        if site.attr("dma_engine") == "gpsimd_dma":
            size = ITEMSIZE[site.dtype("src")]
            if size * site.free("src") > GPSIMD_DMA_BYTES[size]:
                raise site.refuse(
                    "sendrecv_size",
                    f"{size * site.free('src')} bytes a partition through gpsimd_dma",
                    f"at most {GPSIMD_DMA_BYTES[size]} for {site.dtype('src')}: split it, or use dma_engine.dma",
                )

    def run(m, site):
        inbox = m.post.setdefault("inbox", {})
        target, source, pipe = (site.attr(n) for n in ("send_to_rank", "recv_from_rank", "pipe_id"))
        if not waiting(m, "sendrecv"):
            message = (site.shape("src"), site.dtype("src"), m.raw("src").copy(), m.taint("src"))
            inbox.setdefault((target, m.core, pipe), []).append(message)
            wait(m, "sendrecv")
        received = inbox.get((m.core, source, pipe))
        if not received:
            return f"a sendrecv from core {source} with pipe_id={pipe} (line {site.instr.line})"
        shape, dtype, values, tainted = received.pop(0)
        if (shape, dtype) != (site.shape("dst"), site.dtype("dst")):
            raise site.refuse(
                "operand_shapes",
                f"core {source} sends {shape} {dtype}, dst is {site.shape('dst')} {site.dtype('dst')}",
                "equal shapes and dtypes on both cores",
            )
        m.put_raw("dst", values)
        m.mark("dst", False if tainted is None else tainted)
        proceed(m, "sendrecv")
        return None

    def taint(m, site):
        """`run` has recorded what arrived."""


@instruction(
    engines=("gpsimd", "tensor", "vector", "scalar", "sync"),
    limits=("data in shared HBM", "cores=(0, 1); at LNC 1 also (0,)"),
    cost="not documented",
)
class core_barrier:
    """Wait until both cores have come here; afterwards each sees what the other wrote to `data` before.

    In a launch of one core nobody is waited for.
    """

    def signature(data: tile(HBM), cores: PLAIN, engine: ENUM = GPSIMD): ...

    def engine(site):
        asked = site.attr("engine")
        return "sync" if asked == "dma" else asked  # the engine whose instructions start DMAs

    def check(site):
        if not site.buffer("data").shared:
            raise site.refuse("buffer", "data is in private HBM", "a tensor of nl.shared_hbm, which both cores see")
        if named_cores(site) != CORES and (site.lnc == 2 or named_cores(site) != CORES[:1]):
            raise site.refuse("core_number", f"cores={site.attr('cores')}", "(0, 1)")

    def run(m, site):
        if m.lnc == 1:
            if named_cores(site) != CORES:
                m.warn("cores names the only core there is; the documentation knows cores=(0, 1)")
            return None
        arrived = m.post.setdefault("arrived", {}).setdefault(site.operand("data").buffer, [0, 0])
        if not waiting(m, "core_barrier"):
            arrived[m.core] += 1
            wait(m, "core_barrier")
        if arrived[1 - m.core] < arrived[m.core]:
            return f"the core_barrier on {site.buffer('data').name!r} (line {site.instr.line})"
        proceed(m, "core_barrier")
        return None

    def taint(m, site):
        """A barrier writes nothing."""


def named_cores(site):
    """The cores of a barrier; one may stand without a tuple."""
    cores = site.attr("cores")
    return cores if isinstance(cores, tuple) else (cores,)


def waiting(m, what):
    """Has this core already done its part and waits for the other's?"""
    return m.post.get(("waiting", m.core)) == what


def wait(m, what):
    """This core has done its part."""
    m.post["waiting", m.core] = what
    m.post.setdefault("log", []).append((m.core, what))


def proceed(m, what):
    """This core goes on."""
    del m.post["waiting", m.core]
    m.post.setdefault("log", []).append((m.core, f"{what} done"))
