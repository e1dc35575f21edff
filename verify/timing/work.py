"""What an instruction asks of the machine, worked out once for all instructions of its kind."""

from __future__ import annotations

from typing import NamedTuple

from nkismith.verify.simulator import hardware
from nkismith.verify.simulator.hardware import Estimate, Target
from nkismith.verify.simulator.instruction import define
from nkismith.verify.simulator.site import Site
from nkismith.verify.simulator.trace import Buffer, Instr, Operand, Trace
from nkismith.verify.timing.cost import Cost, cost
from nkismith.verify.timing.dma import Transfer, transfer

# A lane issues in order: the five engines, then the DMA queues.
ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")
QUEUES = ("load", "store", "hw_sync", "hw_scalar", "spill")
LANES = (*ENGINES, *QUEUES)
TENSOR, VECTOR, SCALAR, GPSIMD, SYNC = range(5)

_LATENCY: dict[str, Estimate | None] = {
    "tensor": hardware.TENSOR_LATENCY_NS,
    "vector": hardware.VECTOR_LATENCY_NS,
    "scalar": hardware.SCALAR_LATENCY_NS,
    "gpsimd": hardware.GPSIMD_LATENCY_NS,
    "sync": None,
}
# Attributes that change the cost or the lane; with the operands they make the key of a kind.
_ATTRIBUTES = (
    "engine", "op", "perf_mode", "is_transpose", "is_stationary_onezero", "is_moving_onezero", "accumulate", "dge_mode",
    "num_elem_per_idx", "num_valid_indices", "n", "tile_position", "tile_size",
)  # fmt: skip
# Functions that every table of ScalarE holds, so that they never load one: moves and piecewise linear ones.
_TABLE_FREE = frozenset({"copy", "identity", "relu", "abs", "square", "sign"})


class Work(NamedTuple):
    """The demands of one kind of instruction."""

    lane: int
    ns: float  # the lane is occupied; for a DMA the distance to the next one of its queue
    estimate: Estimate | None  # what ns rests on
    load_ns: float  # TensorE: LoadStationary
    latency: Estimate | None  # from the end of ns to the visible result
    transfer: Transfer | None
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    flops: float  # of a matmul, transposes excluded
    rows: tuple[int, int]  # TensorE: quadrants of the array
    table: str  # ScalarE: function whose table must be loaded
    scalars: bool  # it may use run-time scalars, as an address or in a sequencer's arithmetic
    psum: tuple[str, ...]  # operands in PSUM


class Workbook:
    """Works of a trace, by kind."""

    def __init__(self, trace: Trace, machine: Target) -> None:
        self.trace, self.machine = trace, machine
        self._known: dict[tuple, Work] = {}
        self._space = [b.space for b in trace.buffers]

    def of(self, instr: Instr) -> Work:
        """The work of an instruction. Raises KeyError for an instruction without a cost."""
        space, attrs = self._space, instr.attrs
        key = (
            instr.op,
            tuple(
                [
                    (n, o.dtype, o.start, o.partitions, o.pattern, space[o.buffer], o.dynamic and _shape(o))
                    for n, o in instr.operands.items()
                ]
            ),
            tuple([attrs.get(a) for a in _ATTRIBUTES]),
            attrs.get("value") == 0,
        )
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._make(instr)
        return found

    @staticmethod
    def whole(buffer: Buffer, low: int, high: int) -> Operand:
        """Bytes low .. high-1 of every partition of a tile."""
        return Operand(buffer.id, "uint8", 0, buffer.shape[0], low, ((1, high - low),))

    def spill(self, buffer: Buffer, low: int, high: int, save: bool) -> Work:
        """The DMA that saves or reloads part of a tile."""
        rows, width = buffer.shape[0], high - low
        chip = self.whole(buffer, low, high)
        away = Operand(len(self.trace.buffers), "uint8", 0, 0, 0, ((width, rows), (1, width)))
        hbm = Buffer(
            len(self.trace.buffers), "spill", "hbm", "internal", False, "uint8", (rows, width), None, 0, 0, 0, 0
        )
        operands = {"dst": away, "src": chip} if save else {"dst": chip, "src": away}
        instr = Instr(0, "dma_copy", operands, {"dge_mode": "none"}, buffer.line)
        site = Site(instr, define("dma_copy"), (*self.trace.buffers, hbm), self.machine)
        moved = transfer(site)._replace(queue="spill")
        reads, writes = (("src",), ()) if save else ((), ("dst",))
        return _work(LANES.index("spill"), Cost(0.0), 1.0, None, moved, reads, writes)

    def _make(self, instr: Instr) -> Work:
        definition = define(instr.op)
        site = Site(instr, definition, self.trace.buffers, self.machine, self.trace.lnc, self.trace.files)
        writes = tuple(n for n in instr.operands if n in definition.writes)
        reads = tuple(
            n for n in instr.operands if n in definition.reads or n not in definition.params
        )  # a list parameter is recorded as name0, name1, ...
        if definition.accumulates(site):
            reads += tuple(n for n in writes if n not in reads)
        scalars = any(o.dynamic is not None for o in instr.operands.values())
        engine = site.engine
        if instr.op == "device_print":
            return _work(SYNC, Cost(0.0), 1.0, None, None, reads, ())
        if engine == "dma" or instr.op == "sendrecv":
            moved = transfer(site)
            lane = GPSIMD if moved.queue == "software" else LANES.index(moved.queue)
            return _work(lane, Cost(0.0), 1.0, None, moved, reads, writes)._replace(scalars=scalars)
        found = cost(site)
        work = _work(
            ENGINES.index(engine), found, self.machine.clock_ghz(engine), _LATENCY[engine], None, reads, writes
        )
        function = instr.attrs.get("op") if engine == "scalar" and "activ" in instr.op else None
        return work._replace(
            scalars=scalars or engine == "sync" or "pattern" in instr.attrs,
            flops=_flops(site) if engine == "tensor" else 0.0,
            rows=_rows(site) if engine == "tensor" else (0, 4),
            table="" if function is None or function in _TABLE_FREE else str(function),
            psum=tuple(n for n in instr.operands if site.space(n) == "psum"),
        )


def _work(
    lane: int,
    found: Cost,
    ghz: float,
    latency: Estimate | None,
    moved: Transfer | None,
    reads: tuple[str, ...],
    writes: tuple[str, ...],
) -> Work:
    ns, estimate = (moved.issue_ns, moved.issue) if moved else (found.cycles / ghz, found.estimate)
    return Work(lane, ns, estimate, found.load / ghz, latency, moved, reads, writes, 0.0, (0, 4), "", False, ())


def _shape(operand: Operand) -> tuple:
    term = operand.dynamic
    assert term is not None
    return term.kind, term.index and (term.index.partitions, term.index.pattern)


def _flops(site: Site) -> float:
    if site.instr.op == "nc_transpose" or site.attr("is_transpose"):
        return 0.0
    contraction = site.partitions("moving") * (4 if site.instr.op == "nc_matmul_mx" else 1)
    return 2.0 * contraction * site.free("stationary") * site.free("moving") / (
        2 if site.attr("perf_mode") == "double_row" else 1
    )  # fmt: skip


def _rows(site: Site) -> tuple[int, int]:
    """Quadrants of the array that a matmul takes: all, or those of its row tile."""
    position, size = site.attr("tile_position"), site.attr("tile_size")
    if not position or not size:
        return 0, 4
    first = int(position[0]) // hardware.QUADRANT
    return first, min(4, first + max(1, int(size[0]) // hardware.QUADRANT))
