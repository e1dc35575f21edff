"""The model's own logic: what must be faster than what, and why."""

import nki.isa as nisa
import nki.language as nl
import pytest

from nkismith.verify.simulator.hardware import TRN2
from nkismith.verify.timing import model, profile_trace
from nkismith.verify.timing.work import LANES
from tests.verify.timing.ladders.matmul import loaded
from tests.verify.timing.recorded import trace

WIDE = 512


def us(kernel, *shapes, **options):
    return profile_trace(trace(kernel, *shapes, **options)).latency_us


def sbuf(rows=128, cols=WIDE, dtype=nl.float32):
    return nl.ndarray((rows, cols), dtype=dtype, buffer=nl.sbuf)


def squares(x, tiles):
    """Square [n, 512] block by block with the tiles that `tiles(i)` gives for input and output."""
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    for i in range(x.shape[0] // 128):
        rows = slice(i * 128, (i + 1) * 128)
        source, result = tiles(i)
        nisa.dma_copy(source, x[rows])
        nisa.tensor_tensor(result, source, source, op=nl.multiply)
        nisa.dma_copy(out[rows], result)
    return out


def one_pair(x):
    pair = sbuf(), sbuf()
    return squares(x, lambda i: pair)


def two_alternating_pairs(x):
    pairs = [(sbuf(), sbuf()) for _ in range(2)]
    return squares(x, lambda i: pairs[i % 2])


def fresh_pairs(x):
    return squares(x, lambda i: (sbuf(), sbuf()))


def test_two_alternating_tiles_beat_one_allocated_outside_the_loop():
    rows = ((128 * 32, WIDE), "float32")
    assert us(two_alternating_pairs, rows) < 0.8 * us(one_pair, rows)
    assert us(fresh_pairs, rows) < 0.8 * us(one_pair, rows)


def test_prefetch_stops_when_sbuf_is_full():
    def streamed(x, held):
        """32 KiB tiles with slow work on each, beside `held` tiles that stay alive."""
        kept = [sbuf(cols=8192) for _ in range(held)]
        for k in kept:
            nisa.memset(k, 0.0)
        for _ in range(16):
            tile = sbuf(cols=8192)
            nisa.dma_copy(tile, x)
            for _ in range(2):
                nisa.reciprocal(tile, tile)
        for k in kept:
            nisa.tensor_copy(kept[0], k)

    steps = {}
    for held in (0, 5):
        found = model(trace(streamed, ((128, 8192), "float32"), held=held)).cores[0].steps
        loads = [i for i, work in enumerate(found.works) if work.transfer]
        steps[held] = [found.start[i] for i in loads]
    assert steps[0][5] < 10_000  # six tiles fit and load at once
    assert steps[5][1] > 100_000  # one tile fits: the second load waits for the work on the first


def chained(a, b, count):
    left, right = loaded(a), loaded(b)
    sums = nl.ndarray((128, WIDE), dtype=nl.float32, buffer=nl.psum)
    for _ in range(count):
        nisa.nc_matmul(sums, left, right)
    done = sbuf()
    nisa.tensor_copy(done, sums)
    out = nl.ndarray(done.shape, dtype=done.dtype, buffer=nl.shared_hbm)
    nisa.dma_copy(out, done)
    return out


CHAIN = ((128, 128), "bfloat16"), ((128, WIDE), "bfloat16")


def test_a_matmul_chain_is_bound_by_tensor_e_and_reaches_its_floor():
    flop = 2 * 128 * 128 * WIDE * 4096
    found = profile_trace(trace(chained, *CHAIN, count=4096), work={"matmul": flop})
    assert found.bound == "tensor"
    assert 98 < found.percent_of_floor <= 100
    assert found.engines["tensor"].busy_percent > 98
    assert 0.98 < found.matmul_utilisation <= 1


def test_accumulation_does_not_wait_for_the_previous_result():
    steps = model(trace(chained, *CHAIN, count=64)).cores[0].steps
    late = [i for i, work in enumerate(steps.works) if LANES[work.lane] == "tensor"][-2:]
    assert steps.start[late[1]] - steps.start[late[0]] == pytest.approx(WIDE / TRN2.tensor_ghz)


def test_tensor_e_starts_at_half_rate():
    found = model(trace(chained, *CHAIN, count=64)).cores[0]
    first, last = (found.steps.busy_end[i] - found.steps.start[i] for i in (2, 65))
    assert first == pytest.approx(2 * last)
    assert 2500 < found.totals.throttled < 4000  # about 3 us


def test_loading_the_stationary_hides_behind_the_previous_matmul():
    def pairs(a, b, alternate):
        lefts, right = [loaded(a), loaded(a)], loaded(b)
        sums = nl.ndarray((128, WIDE), dtype=nl.float32, buffer=nl.psum)
        for i in range(256):
            nisa.nc_matmul(sums, lefts[i % 2 if alternate else 0], right)

    assert us(pairs, *CHAIN, alternate=True) == pytest.approx(us(pairs, *CHAIN, alternate=False), rel=0.01)


def test_row_tiles_of_the_array_run_side_by_side():
    def products(a, b, rows):
        left, right = loaded(a), loaded(b)
        for i in range(64):
            sums = nl.ndarray((128, 128), dtype=nl.float32, buffer=nl.psum)
            at = i % (128 // rows) * rows
            place = {"tile_position": (at, 0), "tile_size": (rows, 128)} if rows < 128 else {}
            nisa.nc_matmul(sums, left[at : at + rows], right[at : at + rows], **place)

    shapes = ((128, 128), "bfloat16"), ((128, 128), "bfloat16")
    assert us(products, *shapes, rows=32) < 0.75 * us(products, *shapes, rows=128)


def dependent(x, count):
    tile = loaded(x)
    for _ in range(count):
        nisa.activation(tile, nl.exp, tile)


def independent(x, count):
    tile = loaded(x)
    for _ in range(count):
        nisa.activation(sbuf(cols=1), nl.exp, tile)


def test_dependent_short_instructions_pay_the_engine_s_latency():
    one = ((128, 1), "float32")
    step = (us(dependent, one, count=200) - us(dependent, one, count=100)) / 100
    free = (us(independent, one, count=200) - us(independent, one, count=100)) / 100
    assert free == pytest.approx(64 / 1.2 / 1e3)
    assert 0.15 < step < 0.35  # PERF saw 264 cycles, 189 ns at 1.4 GHz


def halves(x, whole):
    """Two engines work on one tile: on its halves, or on all of it."""
    tile, results = loaded(x), [sbuf(), sbuf()]
    cols = x.shape[1]
    for i in range(50):
        left = slice(0, cols) if whole else slice(0, cols // 2)
        right = slice(0, cols) if whole else slice(cols // 2, cols)
        nisa.activation(tile[:, left], nl.exp, tile[:, left])
        nisa.tensor_tensor(tile[:, right], tile[:, right], results[i % 2][:, right], op=nl.add)


def test_instructions_wait_only_for_regions_they_share():
    shape = ((128, WIDE), "float32")
    apart, together = (model(trace(halves, shape, whole=w)).profile for w in (False, True))
    assert apart.latency_us < 0.6 * together.latency_us


def two_engines(x, ordered):
    """Long and short work of ScalarE written before what VectorE could do meanwhile."""
    from contextlib import nullcontext

    tile = loaded(x)
    with nl.no_reorder() if ordered else nullcontext():
        for _ in range(10):
            long = sbuf()
            nisa.activation(long, nl.exp, tile)
            nisa.tensor_copy(sbuf(), long, engine=nisa.engine.vector)
            nisa.activation(sbuf(cols=64), nl.exp, long[:, :64])
            nisa.tensor_copy(sbuf(cols=64), tile[:, :64], engine=nisa.engine.scalar)


def test_no_reorder_keeps_program_order_on_an_engine():
    def scalar_starts(ordered):
        steps = model(trace(two_engines, ((128, WIDE), "float32"), ordered=ordered)).cores[0].steps
        return [steps.start[i] for i, work in enumerate(steps.works) if LANES[work.lane] == "scalar"]

    assert scalar_starts(True) == sorted(scalar_starts(True))
    assert scalar_starts(False) != sorted(scalar_starts(False))
    assert scalar_starts(False)[-1] < scalar_starts(True)[-1]


def test_depends_on_adds_a_wait():
    def kernel(x, wired):
        tile = loaded(x)
        first = nisa.activation(sbuf(), nl.exp, tile)
        second = nisa.tensor_copy(sbuf(), tile, engine=nisa.engine.vector)
        if wired:
            second.depends_on(first)

    shape = ((128, WIDE), "float32")
    free, wired = (model(trace(kernel, shape, wired=w)).cores[0].steps for w in (False, True))
    assert free.start[2] < free.finish[1] < wired.start[2]


def test_vector_e_and_scalar_e_do_not_share_a_psum_bank():
    def kernel(x, apart):
        tile = loaded(x)
        banks = [nl.ndarray((128, WIDE), dtype=nl.float32, buffer=nl.psum) for _ in range(2)]
        for b in banks:
            nisa.memset(b, 0.0)
        nisa.tensor_tensor(sbuf(), tile, banks[0], op=nl.add)
        nisa.activation(sbuf(), nl.exp, banks[1 if apart else 0])

    shape = ((128, WIDE), "float32")
    start, end = {}, {}
    for apart in (True, False):
        steps = model(trace(kernel, shape, apart=apart)).cores[0].steps
        start[apart], end[apart] = sorted((steps.start[i], steps.busy_end[i]) for i in (3, 4))
    assert start[True][1] > end[True][0]  # side by side
    assert start[False][1] <= end[False][0]  # one after the other


def scaled(x):
    return squares(x, lambda i: (sbuf(cols=x.shape[1], dtype=x.dtype), sbuf(cols=x.shape[1], dtype=x.dtype)))


@pytest.mark.parametrize("cols", [64, 512, 4096])
def test_latency_is_monotone_in_size_and_never_below_the_floor(cols):
    latencies = []
    for rows in (128, 512, 2048):
        size = rows * cols * 4
        work = {"hbm_read": size, "hbm_write": size, "vector": rows * cols}
        found = profile_trace(trace(scaled, ((rows, cols), "float32")), work=work)
        assert found.floor_us <= found.low_us <= found.latency_us <= found.high_us
        latencies.append(found.latency_us)
    assert latencies == sorted(latencies)


def test_a_spill_costs_traffic_and_time():
    def live(x, tiles):
        held = [sbuf(cols=8192) for _ in range(tiles)]
        for t in held:
            nisa.dma_copy(t, x)
        for t in held:
            nisa.tensor_copy(held[0], t)

    recorded = trace(live, ((128, 8192), "float32"), tiles=8)
    found = profile_trace(recorded, capacity="spill")
    size = 128 * 8192 * 4
    assert found.spill_save_bytes == found.spill_reload_bytes == 2 * size
    assert found.hbm_read_bytes == 8 * size + found.spill_reload_bytes
    assert found.dma.queue_counts["spill"] == 4
