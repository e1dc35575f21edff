"""Costs against the formulas of the API documentation (SDK 2.26) and the architecture guides."""

import nki.isa as nisa
import nki.language as nl
import pytest

from nkismith.verify.simulator import hardware
from nkismith.verify.simulator.hardware import Estimate
from nkismith.verify.simulator.instructions import TABLE
from nkismith.verify.timing.cost import COSTS
from nkismith.verify.timing.interval import ESTIMATES
from nkismith.verify.timing.work import Workbook
from tests.verify.timing.recorded import trace

F32, BF16 = nl.float32, nl.bfloat16


def tile(cols, dtype=F32, buffer=nl.sbuf, rows=128):
    return nl.ndarray((rows, cols), dtype=dtype, buffer=buffer)


def cycles(kernel, target="trn2"):
    """Engine cycles of the last instruction that `kernel` issues."""
    recorded = trace(lambda x: kernel() and None, ((1, 1), "float32"), target=target)
    machine = hardware.target(target)
    instr = recorded.programs[0].body[-1]
    work = Workbook(recorded, machine).of(instr)
    return work.ns * [machine.tensor_ghz, machine.vector_ghz, machine.scalar_ghz, machine.gpsimd_ghz][work.lane]


def copies(n, dtype, source=nl.sbuf):
    return lambda: nisa.tensor_copy(tile(n, dtype), tile(n, dtype, source), engine=nisa.engine.vector)


def pairs(n, dtype, other=nl.sbuf):
    return lambda: nisa.tensor_tensor(tile(n, dtype), tile(n, dtype), tile(n, dtype, other), op=nl.add)


def activations(n, dtype=F32):
    return lambda: nisa.activation(tile(n, dtype), nl.exp, tile(n, dtype))


def matmuls(n, m=128, dtype=BF16):
    return lambda: nisa.nc_matmul(tile(n, F32, nl.psum, rows=m), tile(m, dtype), tile(n, dtype))


def test_every_instruction_has_a_cost_and_every_cost_an_instruction():
    assert set(COSTS) == set(TABLE)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (copies(512, BF16), 512 / 4),  # A3: four times the rate, SBUF to SBUF, 16 bit, contiguous
        (copies(512, BF16, nl.psum), 512 / 2),  # A3: one side in PSUM
        (copies(512, F32, nl.psum), 512),
        (pairs(512, BF16), 512 / 2),  # A3: two 16-bit SBUF inputs
        (pairs(512, F32, nl.psum), 512),
        (activations(512), 512),
        (activations(8), 64),  # the shortest instruction
        (lambda: nisa.reciprocal(tile(512), tile(512)), 8 * 512),
        (lambda: nisa.tensor_tensor_scan(tile(64), tile(64), tile(64), 0.0, nl.multiply, nl.add), 2 * 64),
        (lambda: nisa.bn_aggr(tile(2), tile(60)), 13 * 60 / 3),
        (lambda: nisa.iota(tile(100, nl.int32), [[1, 100]]), 150 + 100),
        (matmuls(512), 512),
        (matmuls(1), 64),  # MM_INIT_LATENCY
        (matmuls(512, dtype=F32), 4 * 512),
        (lambda: nisa.nc_transpose(tile(128, BF16, nl.psum), tile(128, BF16), engine=nisa.engine.tensor), 128),
    ],
)
def test_cycles_on_trn2(kernel, expected):
    assert cycles(kernel) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("kernel", "expected"),
    [
        (activations(512, BF16), 512 / 2),  # A4: ScalarE twice as wide for 16 bits
        (activations(512, F32), 512),
        (lambda: nisa.exponential(tile(512), tile(512)), 512 / 4),
        (lambda: nisa.nc_transpose(tile(128, BF16, nl.psum), tile(128, BF16), engine=nisa.engine.tensor), 64),
    ],
)
def test_cycles_on_trn3(kernel, expected):
    assert cycles(kernel, "trn3") == pytest.approx(expected)


def test_partitions_do_not_change_the_time():
    narrow = cycles(lambda: nisa.activation(tile(512, rows=32), nl.exp, tile(512, rows=32)))
    assert narrow == cycles(activations(512))


def test_a_stride_beyond_16_bytes_costs_more_and_one_within_does_not():
    def spread(step):
        return lambda: nisa.activation(tile(64), nl.exp, tile(64 * step).slice(1, 0, 64 * step, step))

    assert cycles(spread(4)) == cycles(spread(1))
    assert cycles(spread(5)) > cycles(spread(1))


def test_every_estimate_has_a_range_a_source_and_a_reason():
    found = {name: e for name, e in vars(hardware).items() if isinstance(e, Estimate)}
    assert len(found) == len(ESTIMATES)
    for name, estimate in found.items():
        assert name.lower() == estimate.name
        assert estimate.source
        assert estimate.reason
        assert estimate.low <= estimate.value <= estimate.high


def test_a_value_outside_its_own_range_is_refused():
    with pytest.raises(ValueError, match="does not hold"):
        Estimate("x", 3, 1, 2, "source", "reason")
