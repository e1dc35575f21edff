"""Two cores side by side: shared HBM, exchange, barriers, deadlock, and control flow that differs."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkismith.verify.simulator.errors import LegalityError


def two(kernel, *arrays):
    return nki.simulate(nki.jit(kernel)[2])(*arrays)


def rule(kernel, *arrays, lnc=2):
    with pytest.raises(LegalityError) as caught:
        nki.simulate(nki.jit(kernel)[lnc])(*arrays)
    assert caught.value.line
    return caught.value.rule


def floats(*shape):
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def output(shape, name=""):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm, name=name)


def test_each_core_knows_itself():
    def kernel(x):
        out = output((2, 3))
        core = nl.program_id(0)
        assert (nl.num_programs(), nl.num_programs(axes=0), nl.program_ndim()) == (2, 2, 1)
        tile = nl.full((1, 3), float(core), nl.float32)
        nisa.dma_copy(out[core], tile)
        return out

    np.testing.assert_array_equal(two(kernel, floats(1, 1)), [[0, 0, 0], [1, 1, 1]])


def test_halves_of_one_output_meet():
    def kernel(x):
        out = output(x.shape)
        rows = x.shape[0] // nl.num_programs()
        mine = slice(nl.program_id() * rows, (nl.program_id() + 1) * rows)
        tile = nl.load(x[mine])
        nl.store(out[mine], nl.multiply(tile, 2.0))
        return out

    x = floats(128, 8)
    np.testing.assert_array_equal(two(kernel, x), 2 * x)


def test_shared_tensors_meet_by_name_else_by_order():
    def kernel(x):
        core = nl.program_id()
        names = ("left", "right") if core == 0 else ("right", "left")
        found = {name: output((2, 4), name=name) for name in names}
        first, second = output((2, 4)), output((2, 4))
        for at, tensor in enumerate((found["left"], found["right"], first, second)):
            nisa.dma_copy(tensor[core], nl.full((1, 4), 10.0 * at + core, nl.float32))
        return found["left"], found["right"], first, second

    for at, got in enumerate(two(kernel, floats(1, 1))):
        np.testing.assert_array_equal(got, [[10 * at] * 4, [10 * at + 1] * 4])


def test_a_name_used_twice_means_two_tensors():
    def kernel(x):
        core, outs = nl.program_id(), []
        for value in (1.0, 2.0):
            out = output((2, 1), name="same")
            nisa.dma_copy(out[core], nl.full((1, 1), value, nl.float32))
            outs.append(out)
        return tuple(outs)

    a, b = two(kernel, floats(1, 1))
    assert (a.max(), b.min()) == (1.0, 2.0)


def test_private_memory_is_each_core_s_own():
    def kernel(x):
        core = nl.program_id()
        scratch = nl.ndarray((1, 4), dtype=nl.float32, buffer=nl.private_hbm, name="scratch")
        nisa.dma_copy(scratch, nl.full((1, 4), float(core), nl.float32))
        out = output((2, 4))
        nisa.dma_copy(out[core], nl.load(scratch))
        return out

    np.testing.assert_array_equal(two(kernel, floats(1, 1))[:, 0], [0, 1])


def exchange(engine=None, other_pipe=False, skip=False, shape=(16, 8), dtype=nl.float32):
    def kernel(x):
        core = nl.program_id()
        out = output((2, *shape))
        mine = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
        nisa.dma_copy(mine, x[core])
        theirs = nl.ndarray(shape, dtype=dtype, buffer=nl.sbuf)
        if not (skip and core == 1):
            nisa.sendrecv(
                src=mine,
                dst=theirs,
                send_to_rank=1 - core,
                recv_from_rank=1 - core,
                pipe_id=core if other_pipe else 0,
                dma_engine=engine or nisa.dma_engine.dma,
            )
        else:
            nisa.memset(theirs, 0.0)
        nisa.dma_copy(out[core], theirs)
        return out

    return kernel


@pytest.mark.parametrize("engine", [nisa.dma_engine.dma, nisa.dma_engine.gpsimd_dma])
def test_sendrecv_swaps_tiles(engine):
    x = floats(2, 16, 8)
    np.testing.assert_array_equal(two(exchange(engine), x), x[::-1])


def test_pipes_are_separate_and_first_in_first_out():
    def kernel(x):
        core = nl.program_id()
        out = output((2, 3, 1, 4))
        tiles = [nl.load(x[core, i : i + 1]) for i in range(3)]
        order = [(0, 0), (1, 7), (2, 0)] if core == 0 else [(0, 0), (2, 7), (1, 0)]
        for place, (tile, pipe) in enumerate(order):
            received = nl.ndarray((1, 4), dtype=nl.float32, buffer=nl.sbuf)
            nisa.sendrecv(tiles[tile], received, 1 - core, 1 - core, pipe_id=pipe)
            nisa.dma_copy(out[core, place], received)
        return out

    x = floats(2, 3, 4)
    got = two(kernel, x)[:, :, 0]
    np.testing.assert_array_equal(got[0], x[1, [0, 2, 1]])
    np.testing.assert_array_equal(got[1], x[0, [0, 1, 2]])


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (exchange(other_pipe=True), "deadlock"),
        (exchange(skip=True), "deadlock"),
    ],
)
def test_exchanges_that_cannot_complete(kernel, expected):
    assert rule(kernel, floats(2, 16, 8)) == expected


@pytest.mark.parametrize(("dtype", "columns"), [(nl.float32, 256), (nl.bfloat16, 256), (nl.uint8, 256)])
def test_what_gpsimd_dma_moves_a_partition(dtype, columns):
    def kernel(x, n):
        tile = nl.zeros((16, n), dtype)
        received = nl.ndarray((16, n), dtype=dtype, buffer=nl.sbuf)
        nisa.sendrecv(tile, received, 1 - nl.program_id(), 1 - nl.program_id(), 0, nisa.dma_engine.gpsimd_dma)
        return x

    two(kernel, floats(1, 1), columns)
    assert rule(kernel, floats(1, 1), columns + 1) == "sendrecv_size"


def test_exchange_needs_two_cores_and_equal_tiles():
    def one_core(x):
        tile = nl.load(x)
        nisa.sendrecv(tile, tile, 0, 0, 0)
        return x

    assert rule(one_core, floats(4, 4), lnc=1) == "launch"

    def other_shape(x):
        tile = nl.load(x)
        nisa.sendrecv(tile, nl.zeros((4, 5), nl.float32), 1 - nl.program_id(), 1 - nl.program_id(), 0)
        return x

    assert rule(other_shape, floats(4, 4)) == "operand_shapes"


def lonely(core):
    """Only one core comes to the barrier."""

    def kernel(x):
        if nl.program_id() == core:
            nisa.core_barrier(x, (0, 1))
        return x

    return kernel


def barrier(before=True, cores=(0, 1), private=False):
    """Each core reads what the other wrote to shared HBM."""

    def kernel(x):
        core = nl.program_id()
        shared = output((2, 8))
        nisa.dma_copy(shared[core], nl.full((1, 8), core + 1.0, nl.float32))
        data = nl.ndarray((2, 8), dtype=nl.float32, buffer=nl.private_hbm) if private else shared
        if before:
            nisa.core_barrier(data, cores)
        out = output((2, 8))
        nisa.dma_copy(out[core], nl.load(shared[1 - core : 2 - core]))
        return out

    return kernel


def test_a_barrier_orders_writes_before_reads():
    np.testing.assert_array_equal(two(barrier(), floats(1, 1))[:, 0], [2, 1])


def test_reading_the_other_core_s_data_needs_a_barrier():
    assert rule(barrier(before=False), floats(1, 1)) == "core_race"


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (barrier(cores=(0,)), "core_number"),
        (barrier(private=True), "buffer"),
        (lonely(0), "deadlock"),
        (lonely(1), "deadlock"),
    ],
)
def test_rules_of_barriers(kernel, expected):
    assert rule(kernel, floats(1, 1)) == expected


def test_a_core_may_repeat_the_other_s_work_and_read_its_own():
    def kernel(x):
        scratch, out = output(x.shape), output(x.shape)
        nl.store(scratch, nl.multiply(nl.load(x), 2.0))
        nl.store(out, nl.load(scratch))
        return out

    x = floats(4, 4)
    np.testing.assert_array_equal(two(kernel, x), 2 * x)


def test_a_write_after_the_other_core_s_read_needs_a_barrier_too():
    def kernel(x, wait):
        core = nl.program_id()
        out = output((2, 4))
        if core == 0:
            nisa.dma_copy(out[0:1], nl.load(x))
        if wait:
            nisa.core_barrier(x, (0, 1))
        if core == 1:
            nisa.dma_copy(x, nl.zeros((1, 4), nl.float32))
            nisa.dma_copy(out[1:2], nl.zeros((1, 4), nl.float32))
        return out

    assert rule(kernel, floats(1, 4), False) == "core_race"
    two(kernel, floats(1, 4), True)


def test_barriers_repeat_in_loops():
    def kernel(x):
        core = nl.program_id()
        shared = output((2, 1))
        total = nl.zeros((1, 1), nl.float32)
        nisa.dma_copy(shared[core], nl.full((1, 1), core + 1.0, nl.float32))

        def body(i):
            nisa.core_barrier(shared, (0, 1))
            other = nl.load(shared[1 - core : 2 - core])
            nisa.tensor_tensor(total, total, other, op=nl.add)
            nisa.core_barrier(shared, (0, 1))
            nisa.dma_copy(shared[core], total)

        nl.fori_loop(0, 3, body)
        out = output((2, 1))
        nisa.dma_copy(out[core], total)
        return out

    mine, theirs, totals = 1.0, 2.0, [0.0, 0.0]
    shared = [mine, theirs]
    for _ in range(3):
        totals = [totals[0] + shared[1], totals[1] + shared[0]]
        shared = list(totals)
    np.testing.assert_array_equal(two(kernel, floats(1, 1))[:, 0], totals)


def test_a_barrier_of_one_core_waits_for_nobody():
    def kernel(x):
        out = output(x.shape)
        nisa.dma_copy(out, nl.load(x))
        nisa.core_barrier(out, (0, 1))
        return out

    x = floats(4, 4)
    np.testing.assert_array_equal(nki.simulate(kernel)(x), x)


@pytest.mark.parametrize("cores", [(0, 1), [0, 1], (0,), 0])
def test_a_barrier_of_one_core_may_name_it_alone(cores):
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        nisa.dma_copy(out, x)
        nisa.core_barrier(out, cores, engine=nisa.engine.dma)
        return out

    x = np.ones((2, 2), np.float32)
    assert (nki.simulate(kernel)(x) == x).all()
    two = nki.jit(kernel)[2]
    if cores in ((0, 1), [0, 1]):
        assert (nki.simulate(two)(x) == x).all()
    else:
        with pytest.raises(LegalityError) as caught:
            nki.simulate(two)(x)
        assert caught.value.rule == "core_number"


def test_control_flow_may_differ_where_nobody_waits():
    def kernel(x):
        out = output(x.shape)
        if nl.program_id() == 0:
            tile = nl.load(x)
            for _ in range(3):
                nisa.tensor_scalar(tile, tile, op0=nl.add, operand0=1.0)
            nisa.dma_copy(out, tile)
        return out

    x = floats(4, 4)
    np.testing.assert_allclose(two(kernel, x), x + 3, rtol=1e-6)


def test_run_time_loops_run_on_both_cores():
    def kernel(x, counts):
        core = nl.program_id()
        total = nl.zeros((1, 1), nl.float32)
        count = nisa.scalar_load(counts.reshape((2, 1))[core : core + 1])
        nl.fori_loop(0, count, lambda i: nisa.tensor_scalar(total, total, op0=nl.add, operand0=1.0))
        out = output((2, 1))
        nisa.dma_copy(out[core], total)
        return out

    np.testing.assert_array_equal(two(kernel, floats(1, 1), np.array([3, 5], np.int32))[:, 0], [3, 5])


def test_arguments_are_fresh_for_each_core():
    class Counter(nl.NKIObject):
        seen: int = 0

    def kernel(x, counter):
        assert counter.seen == 0
        counter.seen += 1
        return x

    counter = Counter(seen=0)
    two(kernel, floats(1, 1), counter)
    assert counter.seen == 0


def test_a_core_does_not_reach_the_tiles_of_the_other():
    tiles = []

    @nki.jit
    def kernel(x):
        out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
        tiles.append(nl.load(x))
        nl.store(out, tiles[0])
        return out

    with pytest.raises(LegalityError, match="dma_copy of core 1") as caught:
        nki.simulate(kernel[2])(np.zeros((4, 4), np.float32))
    assert caught.value.rule == "buffer" and caught.value.line
