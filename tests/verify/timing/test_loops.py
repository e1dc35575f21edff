"""Compiled loops: trip counts from control values, exact while short, extrapolated when steady."""

import nki.isa as nisa
import nki.language as nl
import pytest

from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.timing import profile_trace, schedule
from tests.verify.timing.recorded import trace

BLOCK = ((128, 512), "float32")
COUNT = ((1, 1), "int32")


def summed(x, n, extra=0):
    total = nl.zeros((128, 512), dtype=nl.float32)
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)

    def body(_):
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        nisa.tensor_tensor(total, total, tile, op=nl.add)

    nl.fori_loop(0, nisa.scalar_load(n) * 2 + extra, body)
    nisa.dma_copy(out, total)
    return out


def run(n, **options):
    return profile_trace(trace(summed, BLOCK, COUNT, **options), control={"n": [n]})


def test_the_trip_count_follows_scalar_arithmetic_on_control_values():
    assert run(3, extra=1).dma.transfer_count == 7 + 1


def test_a_loop_that_does_not_run_costs_nothing_but_its_bound():
    assert run(0).dma.transfer_count == 1
    assert run(0).latency_us < run(1).latency_us


def test_a_missing_control_value_is_refused_never_guessed():
    with pytest.raises(LegalityError) as refused:
        profile_trace(trace(summed, BLOCK, COUNT), control={})
    assert refused.value.rule == "unbound_scalar"
    assert "n" in refused.value.fix
    assert refused.value.line


def decided_by_data(x, n):
    count = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    first = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.sbuf)
    out = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(first, x[0:1, 0:1])
    nisa.tensor_scalar(count, first, op0=nl.greater, operand0=3.0)
    nl.fori_loop(0, nisa.scalar_load(count), lambda _: nisa.dma_copy(out, x))
    return out


def test_a_bound_that_data_decide_is_refused_with_what_to_loop_to():
    with pytest.raises(LegalityError) as refused:
        profile_trace(trace(decided_by_data, BLOCK, COUNT), control={"n": [3]})
    assert refused.value.rule == "unbound_scalar"
    assert "loop to a plain int or to what integer inputs decide (n)" in refused.value.fix


def test_extrapolation_gives_what_simulating_every_iteration_gives(monkeypatch):
    quick = run(100)
    monkeypatch.setattr(schedule, "EXACT_TRIPS", 10_000)
    exact = run(100)
    for name in ("latency_us", "low_us", "high_us", "hbm_read_bytes", "instruction_count", "matmul_utilisation"):
        assert getattr(quick, name) == pytest.approx(getattr(exact, name), rel=0.01)
    assert quick.engines["vector"].busy_us == pytest.approx(exact.engines["vector"].busy_us, rel=0.01)
    assert sum(u.busy_us for u in quick.by_line) == pytest.approx(quick.latency_us)


def nested(x, outer, inner):
    total = nl.zeros((128, 512), dtype=nl.float32)

    def row(i):
        tile = nl.ndarray((128, 512), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x)
        nl.fori_loop(0, inner, lambda _: nisa.tensor_tensor(total, total, tile, op=nl.add) and None)

    nl.fori_loop(0, outer, row)


def test_nested_loops_multiply():
    found = {n: profile_trace(trace(nested, BLOCK, outer=n, inner=50)) for n in (20, 2000)}
    assert found[2000].latency_us == pytest.approx(100 * found[20].latency_us, rel=0.02)
    assert found[2000].dma.transfer_count == 2000


def triangle(x, n):
    total = nl.zeros((128, 512), dtype=nl.float32)
    nl.fori_loop(
        0, n, lambda i: nl.fori_loop(0, i, lambda _: nisa.tensor_tensor(total, total, total, op=nl.add) and None)
    )


def test_a_loop_whose_body_grows_is_not_extrapolated():
    adds = profile_trace(trace(triangle, BLOCK, n=40)).engines["vector"].instruction_count
    assert adds == 40 * 39 // 2 + 1


def listed(pages, slots, count):
    out = nl.ndarray((128, 512), dtype=pages.dtype, buffer=nl.shared_hbm)
    total = nl.zeros((128, 512), dtype=nl.float32)

    def body(i):
        slot = nisa.scalar_load(slots[:, nl.ds(i, 1)])
        tile = nl.ndarray((128, 512), dtype=pages.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, pages.select(0, slot))
        nisa.tensor_tensor(total, total, tile, op=nl.add)

    nl.fori_loop(0, nisa.scalar_load(count), body)
    nisa.dma_copy(out, total)
    return out


def test_addresses_may_come_from_memory_and_make_the_dma_dynamic():
    recorded = trace(listed, ((8, 128, 512), "float32"), ((1, 8), "int32"), COUNT)
    found = profile_trace(recorded, control={"slots": [3, 1, 0, 0, 0, 0, 0, 0], "count": [2]})
    assert found.dma.queue_counts == {"store": 1, "hw_sync": 2}


def counted_down(x, n):
    total = nl.zeros((128, 512), dtype=nl.float32)
    one = nisa.scalar_load(n)

    def body(left):
        nisa.tensor_tensor(total, total, total, op=nl.add)
        return left - 1

    nl.while_loop(one, body)


def test_a_while_loop_on_followed_scalars_runs_to_its_end():
    found = profile_trace(trace(counted_down, BLOCK, COUNT), control={"n": [5]})
    assert found.engines["vector"].instruction_count == 5 + 1


def test_a_while_loop_without_an_end_is_refused(monkeypatch):
    monkeypatch.setattr(schedule, "SIMULATED_MAX", 1000)
    with pytest.raises(LegalityError, match="unbound_scalar"):
        profile_trace(trace(counted_down, BLOCK, COUNT), control={"n": [-1]})
