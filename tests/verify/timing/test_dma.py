"""DMAs against the examples of nki-dma-overview and the rules of nki-dma-bandwidth-guide and nki-dge."""

import nki.isa as nisa
import nki.language as nl
import pytest

from nkismith.verify.simulator.hardware import TRN2
from nkismith.verify.timing import profile_trace
from nkismith.verify.timing.work import Workbook
from tests.verify.timing.recorded import trace


def moved(kernel, *shapes, **options):
    """The Transfer of the last instruction of a kernel."""
    recorded = trace(kernel, *shapes, **options)
    return Workbook(recorded, TRN2).of(recorded.programs[0].body[-1]).transfer


def load(x):
    nisa.dma_copy(nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf), x)


def test_four_rows_of_8_kib_use_one_engine_for_1416_ns():
    found = moved(load, ((4, 4096), "bfloat16"))
    assert found.engines == (0, 1)
    assert (found.descriptors, found.run_bytes) == (4, 8192)
    assert found.data_ns == pytest.approx(1416, rel=0.02)


def test_128_rows_of_256_bytes_use_all_sixteen_engines():
    found = moved(load, ((128, 128), "bfloat16"))
    assert found.engines == (0, 16)
    assert (found.descriptors, found.run_bytes) == (128, 256)


def load_use_store(x):
    out = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm)
    tile, result = (nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf) for _ in range(2))
    nisa.dma_copy(tile, x)
    nisa.activation(result, nl.exp, tile)
    nisa.dma_copy(out, result)
    return out


@pytest.mark.parametrize(("shape", "load_us"), [((4, 4096), 2.73), ((128, 128), 1.5)])
def test_a_load_takes_what_the_published_timelines_show(shape, load_us):
    """From the trigger of the load to the first activation: 22.28 to 25.01 us, and 33.3 to 34.8 us."""
    from nkismith.verify.timing import model

    steps = model(trace(load_use_store, (shape, "bfloat16"))).cores[0].steps
    assert (steps.start[1] - steps.start[0]) / 1e3 == pytest.approx(load_us, rel=0.1)


def test_a_row_with_a_stride_is_cut_into_elements():
    def columns(x):
        nisa.dma_copy(nl.ndarray((128, 64), dtype=x.dtype, buffer=nl.sbuf), x[:, 0:128:2])

    found = moved(columns, ((128, 128), "float32"))
    assert (found.descriptors, found.run_bytes) == (128 * 64, 4)


def test_a_copy_within_hbm_takes_its_bandwidth_twice():
    def within(x):
        nisa.dma_copy(nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.shared_hbm), x)

    found = moved(within, ((1024, 8192), "float32"))
    assert found.hbm_read == found.hbm_write == 1024 * 8192 * 4
    assert found.data_ns == pytest.approx(2 * 1024 * 8192 * 4 / TRN2.hbm_gb_s)


def streamed(x, width):
    for i in range(0, x.shape[0], 128):
        nisa.dma_copy(nl.ndarray((128, width), dtype=x.dtype, buffer=nl.sbuf), x[i : i + 128, :width])


def rate(row_bytes):
    """GB/s of loads of 128 rows one after another."""
    found = profile_trace(trace(streamed, ((128 * 64, row_bytes), "bfloat16"), width=row_bytes // 2))
    return found.hbm_read_bytes / found.latency_us / 1e3


def test_halving_the_contiguous_run_slows_dma():
    rates = [rate(b) for b in (256, 512, 1024, 2048, 4096)]
    assert rates == sorted(rates)
    assert rates[0] < 0.3 * rates[-1]  # below 256 bytes: a small fraction of the peak
    assert rate(8192) < 1.08 * rates[-1]  # 4 KiB saturates


def test_who_makes_the_descriptors_decides_the_queue():
    def with_mode(x, mode, engine="unknown"):
        tile = nl.ndarray(x.shape, dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(tile, x, dge_mode=nisa.dge_mode[mode], engine=nisa.engine[engine])

    shape = ((128, 512), "float32")
    assert moved(with_mode, shape, mode="none").queue == "load"
    assert moved(with_mode, shape, mode="hwdge").queue == "hw_sync"
    assert moved(with_mode, shape, mode="hwdge").issue_ns == 600  # DGE
    assert moved(with_mode, shape, mode="hwdge", engine="scalar").queue == "hw_scalar"
    assert moved(with_mode, shape, mode="swdge").queue == "software"


def test_a_transpose_is_slower_than_a_copy_and_most_so_within_sbuf():
    def turned(x):
        nisa.dma_transpose(nl.ndarray((128, 1, 1, 512), dtype=x.dtype, buffer=nl.sbuf), x, axes=(3, 1, 2, 0))

    shape = (512, 1, 1, 128)
    copy = moved(load, ((128, 512), "bfloat16")).data_ns
    from_hbm = moved(turned, (shape, "bfloat16")).data_ns
    assert from_hbm == pytest.approx(copy / 0.9, rel=0.01)  # A3: up to 90 % of a copy
