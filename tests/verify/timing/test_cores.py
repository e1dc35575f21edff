"""LNC 2: two cores with their own engines, one HBM stack, and points where they meet."""

import nki.isa as nisa
import nki.language as nl
import pytest

from nkismith.verify.timing import model, profile_trace
from tests.verify.timing.recorded import trace


def halved(x):
    """Each core squares its share of the rows."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    mine = x.shape[0] // nl.num_programs(0)
    for i in range(nl.program_id(0) * mine, (nl.program_id(0) + 1) * mine, 128):
        tile, result = (nl.ndarray((128, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
        nisa.dma_copy(tile, x[i : i + 128])
        nisa.tensor_tensor(result, tile, tile, op=nl.multiply)
        nisa.dma_copy(out[i : i + 128], result)
    return out


def test_two_cores_halve_the_time_of_split_work():
    rows = ((128 * 64, 512), "float32")
    one, two = (profile_trace(trace(halved, rows, lnc=n)) for n in (1, 2))
    assert two.lnc == 2
    assert two.latency_us == pytest.approx(one.latency_us / 2, rel=0.1)
    assert two.hbm_read_bytes == one.hbm_read_bytes
    assert two.engines["vector"].instruction_count == one.engines["vector"].instruction_count


def uneven(x, met):
    """Core 0 works long before the barrier, core 1 not at all; both work a little after it."""
    shared = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(tile, x)
    if nl.program_id(0) == 0:
        for _ in range(100):
            nisa.reciprocal(tile, tile)
        nisa.dma_copy(shared, tile)
    if met:
        nisa.core_barrier(shared, (0, 1))
    seen = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
    nisa.dma_copy(seen, shared)
    return shared


def test_a_core_waits_at_a_barrier_for_the_other_one():
    block = ((128, 512), "float32")
    apart, met = (model(trace(uneven, block, met=m, lnc=2)).cores for m in (False, True))
    assert apart[1].latency_ns < 0.1 * apart[0].latency_ns
    assert met[1].latency_ns > 0.95 * apart[0].latency_ns


def swapped(x):
    mine, theirs = (nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(mine, x)
    if nl.program_id(0) == 0:
        nisa.reciprocal(mine, mine)
    other = 1 - nl.program_id(0)
    nisa.sendrecv(mine, theirs, send_to_rank=other, recv_from_rank=other, pipe_id=0)
    out = nl.ndarray((2, 128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out[nl.program_id(0)], theirs)
    return out


def test_an_exchange_starts_when_both_are_ready():
    cores = model(trace(swapped, ((128, 512), "float32"), lnc=2)).cores
    starts = [next(c.steps.start[i] for i, s in enumerate(c.steps.instrs) if s.op == "sendrecv") for c in cores]
    ready = next(cores[0].steps.finish[i] for i, s in enumerate(cores[0].steps.instrs) if s.op == "reciprocal")
    assert min(starts) >= ready
