"""How long each instruction occupies its engine: one row an instruction, cycles of the engine's own clock.

N is the number of elements a partition. The formulas are those that the API documentation printed up to SDK 2.26,
with the data-path widths of the target's architecture guide; a formula that rests on an estimate names it, so that a
profile can say how sure it is. The meaning of an instruction is in its definition and the same on every target; what
it costs is a property of the target, hence this table beside it. A test holds that no instruction lacks a row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from nkismith.verify.simulator import hardware
from nkismith.verify.simulator.dtypes import FP8, ITEMSIZE, SIXTEEN_BIT_FLOATS
from nkismith.verify.simulator.hardware import Estimate
from nkismith.verify.simulator.site import Site
from nkismith.verify.simulator.trace import Operand

GPSIMD_START = 150  # cycles before GpSimdE's first element (instruction costs of SDK 2.26)
READ_ACCUMULATOR = 64  # cycles to read an accumulator out (A2; the + MI of the 2.26 formulas)
MATMUL_MIN = 64  # cycles between two matmuls, MM_INIT_LATENCY (PERF)
LOAD_SPEEDUP = 4  # LoadStationary takes a column in a quarter of a cycle (PERF: fast weight load)
STRIDE_LIMIT = 16  # bytes between elements up to which memory keeps full rate (A2)


class Cost(NamedTuple):
    """Cycles that an instruction occupies its engine, and the estimate they rest on."""

    cycles: float
    estimate: Estimate | None = None
    load: float = 0.0  # TensorE: cycles of LoadStationary, hidden behind the previous matmul where possible


def cost(site: Site) -> Cost:
    """What an instruction costs on the engine that executes it. Raises KeyError for one without a row."""
    found = COSTS[site.instr.op](site)
    if site.engine == "tensor":
        return found
    if any(o.dynamic is not None for o in site.instr.operands.values()):
        found = _at_least(found, hardware.DYNAMIC_CYCLES)
    return _at_least(found, hardware.ISSUE_CYCLES)


def _at_least(found: Cost, floor: Estimate) -> Cost:
    return found if found.cycles >= floor.value else Cost(floor.value, floor)


# -- what formulas ask of an instruction ------------------------------------------------------------------------------


def elements(site: Site) -> int:
    """N: the most elements a partition of any operand."""
    return max((o.free for o in site.instr.operands.values()), default=1)


def _tiles(site: Site) -> list[str]:
    """Operands that are tiles, not a value a partition."""
    operands = site.instr.operands
    widest = elements(site)
    return [name for name, o in operands.items() if o.free > 1 or widest == 1]


def _narrow(site: Site) -> bool:
    """Do all tiles hold 16-bit floats (on trn3 also 8-bit ones)?"""
    allowed = SIXTEEN_BIT_FLOATS | FP8 if site.target.generation >= 4 else SIXTEEN_BIT_FLOATS
    return all(site.dtype(name) in allowed for name in _tiles(site))


def _step(operand: Operand) -> int:
    """Bytes between neighbours of the innermost dimension."""
    for stride, count in reversed(operand.pattern):
        if count > 1:
            return abs(stride) * ITEMSIZE[operand.dtype]
    return ITEMSIZE[operand.dtype]


def _contiguous(site: Site) -> bool:
    return all(_step(site.operand(n)) == ITEMSIZE[site.dtype(n)] for n in _tiles(site))


def _in_sbuf(site: Site, names: list[str]) -> bool:
    return all(site.space(name) == "sbuf" for name in names)


def _one_element_a_cycle(site: Site, factor: float = 1.0) -> Cost:
    n = elements(site) * factor
    if any(_step(site.operand(name)) > STRIDE_LIMIT for name in _tiles(site)):
        return Cost(n * hardware.STRIDED.value, hardware.STRIDED)
    return Cost(n)


# -- VectorE ----------------------------------------------------------------------------------------------------------


def vector_move(site: Site) -> Cost:
    """One tile in, one out (tensor_copy, tensor_scalar): the performance modes of trn2 and trn3 (A3, A4)."""
    on_chip, dense = _in_sbuf(site, _tiles(site)), _contiguous(site)
    if _narrow(site) and (on_chip or dense):
        return Cost(elements(site) / (site.target.vector_lanes_16bit if on_chip and dense else 2))
    if on_chip and dense:
        return Cost(elements(site) * hardware.VECTOR_WIDE.value, hardware.VECTOR_WIDE)
    return _one_element_a_cycle(site)


def vector_pair(site: Site) -> Cost:
    """Two tiles in, one out: twice as fast for 16 bits (A3)."""
    inputs = [n for n in _tiles(site) if n != "dst"]
    if len(inputs) < 2 or not _in_sbuf(site, inputs):
        return _one_element_a_cycle(site)
    if _narrow(site) and site.instr.op == "tensor_tensor":
        return Cost(elements(site) / 2)
    plain = _one_element_a_cycle(site)
    return plain if plain.estimate else Cost(plain.cycles * hardware.VECTOR_PAIR.value, hardware.VECTOR_PAIR)


def vector_once(site: Site) -> Cost:
    """One element a cycle whatever the dtype."""
    return _one_element_a_cycle(site)


def vector_twice(site: Site) -> Cost:
    """Two cycles an element (scans, predicated copies within SBUF)."""
    return _one_element_a_cycle(site, 2.0)


def vector_reduce(site: Site) -> Cost:
    """16-bit sums and maxima go two elements a cycle (SDK 2.26)."""
    fast = _narrow(site) and site.attr("op") in ("add", "maximum")
    return _one_element_a_cycle(site, 0.5 if fast else 1.0)


def vector_read_out(site: Site) -> Cost:
    """One element a cycle, then the accumulator is read out."""
    base = _one_element_a_cycle(site)
    return base._replace(cycles=base.cycles + READ_ACCUMULATOR)


def vector_unlisted(site: Site) -> Cost:
    """No published cost: one element a cycle, widely uncertain."""
    return Cost(elements(site) * hardware.VECTOR_UNLISTED.value, hardware.VECTOR_UNLISTED)


def predicated_copy(site: Site) -> Cost:
    """N if the source or the predicate is in PSUM, else 2N (SDK 2.26)."""
    inputs = [n for n in _tiles(site) if n != "dst"]
    return _one_element_a_cycle(site, 2.0 if _in_sbuf(site, inputs) and len(inputs) > 1 else 1.0)


def fill(site: Site) -> Cost:
    """Zeros of 16-bit floats go two a cycle (SDK 2.26)."""
    fast = site.dtype("dst") in SIXTEEN_BIT_FLOATS and site.attr("value") == 0
    return _one_element_a_cycle(site, 0.5 if fast else 1.0)


def reciprocal(site: Site) -> Cost:
    """Eight cycles an element (SDK 2.26); the function on ScalarE takes one."""
    return _one_element_a_cycle(site, 8.0)


def bn_aggregate(site: Site) -> Cost:
    """13 cycles for each group of three (SDK 2.26)."""
    return _one_element_a_cycle(site, 13 / 3)


def quantize(site: Site) -> Cost:
    """Four elements a partition and cycle (A4)."""
    return Cost(elements(site) / 4)


def fast_exponential(site: Site) -> Cost:
    """Four times the throughput of ScalarE (A4)."""
    return Cost(elements(site) / 4)


# -- ScalarE ----------------------------------------------------------------------------------------------------------


def scalar_pass(site: Site) -> Cost:
    """One element a cycle, two of 16 or 8 bits on trn3 (A4); scale and bias are free."""
    lanes = site.target.scalar_lanes_16bit if _narrow(site) else 1
    base = _one_element_a_cycle(site, 1.0 / lanes)
    if site.has("reduce_res"):
        return base._replace(cycles=base.cycles + READ_ACCUMULATOR)
    return base


# -- TensorE ----------------------------------------------------------------------------------------------------------


def matmul(site: Site) -> Cost:
    """max(N, 64) for N moving columns; float32 is four passes, two for a transpose or an operand of zeros and ones."""
    columns = site.free("moving")
    if site.attr("perf_mode") == "double_row":
        columns //= 2
    passes = 1
    if site.dtype("moving") == "float32":
        halved = site.attr("is_stationary_onezero") or site.attr("is_moving_onezero") or site.attr("is_transpose")
        passes = 2 if halved else 4
    load = site.free("stationary") / LOAD_SPEEDUP
    return Cost(max(columns, MATMUL_MIN) * passes, load=load * passes)


def transpose(site: Site) -> Cost:
    """TensorE moves an identity as wide as the data has partitions; trn3 runs two at a time (A4)."""
    passes = 2 if site.dtype("data") == "float32" else 1  # transpose mode (A3)
    cycles = float(max(site.partitions("data"), MATMUL_MIN) * passes)
    if site.target.generation >= 4:
        cycles /= 2
    return Cost(cycles, load=site.free("data") / LOAD_SPEEDUP * passes)


# -- GpSimdE ----------------------------------------------------------------------------------------------------------


def gpsimd_listed(site: Site) -> Cost:
    """150 + N (SDK 2.26: iota, affine_select)."""
    return Cost(GPSIMD_START + elements(site))


def gpsimd_pass(site: Site) -> Cost:
    """No published cost: the start of a listed one and some cycles an element."""
    return Cost(GPSIMD_START + elements(site) * hardware.GPSIMD_ELEMENT.value, hardware.GPSIMD_ELEMENT)


def local_gather(site: Site) -> Cost:
    """SDK 2.26: 150 + indices * e / C with C = ((28 + 4e) / 4e) / min(4 / itemsize, e)."""
    e = site.attr("num_elem_per_idx") or 1
    indices = site.attr("num_valid_indices") or site.free("dst") // e
    c = ((28 + 4 * e) / (4 * e)) / min(4 / ITEMSIZE[site.dtype("dst")], e)
    return Cost(GPSIMD_START + indices * e / c)


def gather_columns(site: Site) -> Cost:
    """nc_n_gather issues one instruction for each 512 elements."""
    return gpsimd_pass(site)._replace(cycles=-(-site.free("dst") // 512) * GPSIMD_START + gpsimd_pass(site).cycles)


def topk(site: Site) -> Cost:
    """4n + K (NKI 0.6)."""
    return Cost(4 * (site.attr("n") or elements(site)) + site.free("val_dst"))


# -- sequencers -------------------------------------------------------------------------------------------------------


def register(site: Site) -> Cost:
    """Integer arithmetic of a sequencer."""
    return Cost(hardware.REGISTER_NS.value * site.target.clock_ghz("sync"), hardware.REGISTER_NS)


def register_memory(site: Site) -> Cost:
    """A register filled from memory or written to it."""
    return Cost(hardware.SCALAR_LOAD_NS.value * site.target.clock_ghz("sync"), hardware.SCALAR_LOAD_NS)


def barrier(site: Site) -> Cost:
    """Both cores of a launch meet."""
    return Cost(hardware.BARRIER_NS.value * site.target.clock_ghz(site.engine), hardware.BARRIER_NS)


def no_time(_: Site) -> Cost:
    """A DMA occupies queues and DMA engines (`dma.py`), no compute engine; a print is for debugging."""
    return Cost(0.0)


Formula = Callable[[Site], Cost]


def by_engine(**formulas: Formula) -> Formula:
    """A formula for each engine that an instruction may run on."""
    return lambda site: formulas[site.engine](site)


COSTS: dict[str, Formula] = {
    # moves
    "tensor_copy": by_engine(vector=vector_move, scalar=scalar_pass, gpsimd=gpsimd_pass),
    "tensor_copy_predicated": predicated_copy,
    "memset": by_engine(vector=fill, gpsimd=gpsimd_pass),
    "nc_transpose": by_engine(tensor=transpose, vector=vector_once),
    "nc_stream_shuffle": vector_once,
    # VectorE
    "tensor_tensor": by_engine(vector=vector_pair, gpsimd=gpsimd_pass),
    "tensor_scalar": by_engine(vector=vector_move, scalar=scalar_pass, gpsimd=gpsimd_pass),
    "scalar_tensor_tensor": vector_pair,
    "tensor_reduce": vector_reduce,
    "tensor_scalar_reduce": vector_read_out,
    "tensor_scalar_cumulative": vector_unlisted,
    "tensor_tensor_scan": vector_twice,
    "exponential": fast_exponential,
    "reciprocal": reciprocal,
    "bn_stats": vector_once,
    "bn_aggr": bn_aggregate,
    "max8": vector_once,
    "nc_find_index8": vector_once,
    "nc_match_replace8": vector_once,
    "range_select": vector_once,
    "select_reduce": vector_unlisted,
    "dropout": vector_once,
    "rng": by_engine(vector=vector_unlisted, gpsimd=gpsimd_pass),
    "rand2": vector_unlisted,
    "set_rng_seed": vector_unlisted,
    "rand_set_state": by_engine(vector=vector_unlisted, gpsimd=gpsimd_pass),
    "rand_get_state": by_engine(vector=vector_unlisted, gpsimd=gpsimd_pass),
    "quantize_mx": quantize,
    # ScalarE
    "activation": by_engine(scalar=scalar_pass, gpsimd=gpsimd_pass),
    "activation_reduce": scalar_pass,
    "activate2": by_engine(scalar=scalar_pass, gpsimd=gpsimd_pass),
    # TensorE
    "nc_matmul": matmul,
    "nc_matmul_mx": matmul,
    # GpSimdE
    "iota": gpsimd_listed,
    "affine_select": gpsimd_listed,
    "local_gather": local_gather,
    "nc_n_gather": gather_columns,
    "tensor_partition_reduce": gpsimd_pass,
    "nonzero_with_count": gpsimd_pass,
    "sequence_bounds": gpsimd_pass,
    "topk": topk,
    # DMA and both cores
    "dma_copy": no_time,
    "dma_transpose": no_time,
    "dma_compute": no_time,
    "sendrecv": no_time,
    "core_barrier": barrier,
    "device_print": no_time,
    # sequencers
    "register_move": register,
    "register_load": register_memory,
    "register_store": register_memory,
    "scalar_load": register_memory,
    "scalar_store": register_memory,
    "scalar_add": register,
    "scalar_subtract": register,
    "scalar_multiply": register,
}
