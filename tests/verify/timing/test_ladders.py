"""The model against what others measured and against the order of the tutorials' variants."""

import pytest

from tests.verify.timing.ladders import attention, transpose
from tests.verify.timing.ladders.measured import MAMBA, MAMBA_LONG, MATMUL, MATMUL_FP32, POINTS, at_rate
from tests.verify.timing.recorded import trace

WIDEST = 1.6


def latencies(kernels, *shapes, **options):
    from nkismith.verify.timing import profile_trace

    return [profile_trace(trace(kernel, *shapes, **options)).latency_us for kernel in kernels]


@pytest.fixture(scope="module")
def profiles():
    return {point.name: point.profile() for point in POINTS}


@pytest.mark.parametrize("ladder", [MATMUL, MAMBA, MAMBA_LONG], ids=["matmul", "mamba", "mamba, long"])
def test_measured_ladders_are_in_order(profiles, ladder):
    modelled = [profiles[point.name].latency_us for point in ladder]
    assert modelled == sorted(modelled, reverse=True)


def test_measured_points_lie_in_their_interval(profiles):
    inside = [p.name for p in POINTS if profiles[p.name].low_us <= p.us <= profiles[p.name].high_us]
    assert len(inside) >= 0.8 * len(POINTS)
    assert {p.name for p in MATMUL} <= set(inside)


def test_no_interval_is_wider_than_1_6(profiles):
    assert all(p.high_us <= WIDEST * p.low_us * (1 + 1e-9) for p in profiles.values())


def test_attention_gets_faster_as_more_stays_on_chip():
    kernels = (
        attention.scores_in_hbm,
        attention.scores_in_sbuf,
        attention.combined_instructions,
        attention.without_transposes,
    )
    heads = ((128, 1024), "bfloat16"), ((128, 2048), "bfloat16"), ((2048, 128), "bfloat16")
    found = latencies(kernels, *heads)
    assert found == sorted(found, reverse=True)
    assert found[-1] < found[0] / 4


def test_transpose_gets_faster_with_fewer_copies():
    found = latencies(
        (transpose.by_element, transpose.by_row, transpose.at_once), ((128, 1024), "float32"), rows=32, cols=32
    )
    assert found == sorted(found, reverse=True)
    assert found[0] > 5 * found[1]


def test_dma_rates_rise_with_the_row_length():
    times = [at_rate("", row, 100.0, count=100).profile().latency_us / row for row in (256, 512, 1024, 2048, 4096)]
    assert times == sorted(times, reverse=True)


@pytest.mark.acceptance
def test_the_float32_matmuls_of_the_optimisation_tutorial():
    found = [point.profile() for point in MATMUL_FP32]
    assert found[0].latency_us > 1.2 * max(f.latency_us for f in found[1:])
    assert all(f.low_us <= p.us <= f.high_us for f, p in zip(found, MATMUL_FP32, strict=True))
