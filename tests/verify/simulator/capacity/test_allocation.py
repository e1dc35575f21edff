"""Peaks and refusals, worked out by hand: 212,984 bytes a partition of SBUF, 8 banks of 2,048 bytes of PSUM."""

import itertools

import nki.isa as nisa
import nki.language as nl
import pytest

from nkismith.verify.simulator.capacity.allocation import allocate
from nkismith.verify.simulator.errors import LegalityError
from tests.verify.timing.recorded import trace

ROW = ((128, 8192), "float32")  # 32 KiB a partition


def tile(shape=(128, 8192), dtype=nl.float32, buffer=nl.sbuf, **place):
    return nl.ndarray(shape, dtype=dtype, buffer=buffer, **place)


def all_live(x, count):
    tiles = [tile() for _ in range(count)]
    for t in tiles:
        nisa.dma_copy(t, x)
    for t in tiles:
        nisa.dma_copy(x, t)


def one_after_another(x, count):
    for _ in range(count):
        t = tile()
        nisa.dma_copy(t, x)
        nisa.dma_copy(x, t)


def test_tiles_that_live_together_add_up():
    assert allocate(trace(all_live, ROW, count=6)).sbuf_peak_bytes == 6 * 32768


def test_a_tile_is_gone_after_its_last_access():
    assert allocate(trace(one_after_another, ROW, count=50)).sbuf_peak_bytes == 32768


def test_what_does_not_fit_is_refused_with_line_and_numbers():
    with pytest.raises(LegalityError) as refused:
        allocate(trace(all_live, ROW, count=7))
    assert refused.value.rule == "sbuf_overflow"
    assert refused.value.line == tile.__code__.co_firstlineno + 1
    assert "229,376 of 212,984" in refused.value.what


def test_what_does_not_fit_spills_once_each_way():
    found = allocate(trace(all_live, ROW, count=7), capacity="spill")
    kinds = [s.kind for s in found.spills[0]]
    assert kinds == ["save", "reload"]
    assert found.spill_bytes == 2 * 128 * 32768


def test_slices_that_nothing_crosses_live_on_their_own():
    def streamed(x):
        whole = tile((128, 8 * 8192))  # 256 KiB a partition, but only one eighth is live at a time
        for i in range(8):
            part = whole[:, i * 8192 : (i + 1) * 8192]
            nisa.dma_copy(part, x)
            nisa.dma_copy(x, part)

    assert allocate(trace(streamed, ROW)).sbuf_peak_bytes == 32768


def test_an_access_across_slices_keeps_them_together():
    def gathered(x, y):
        whole = tile((128, 2 * 8192))
        for i in range(2):
            nisa.dma_copy(whole[:, i * 8192 : (i + 1) * 8192], x)
        nisa.dma_copy(y, whole)

    assert allocate(trace(gathered, ROW, ((128, 16384), "float32"))).sbuf_peak_bytes == 65536


def test_a_compiled_loop_holds_all_its_tiles_at_once():
    def looped(x):
        def body(_):
            one_after_another(x, 3)

        nl.fori_loop(0, 10, body)

    assert allocate(trace(looped, ROW)).sbuf_peak_bytes == 3 * 32768


def test_narrow_tiles_share_the_bytes_of_other_quadrants():
    def narrow(x):
        tiles = [tile((32, 8192)) for _ in range(4)]
        for t in tiles:
            nisa.dma_copy(t, x)
        for t in tiles:
            nisa.dma_copy(x, t)

    found = allocate(trace(narrow, ((32, 8192), "float32")))
    assert found.sbuf_peak_bytes == 32768
    assert sorted(a.partition for a in found.addresses[0]) == [0, 32, 64, 96]


def sums(x, count, width=512):
    banks = [tile((128, width), buffer=nl.psum) for _ in range(count)]
    out = tile((128, width))
    for b in banks:
        nisa.memset(b, 0.0)
    for b in banks:
        nisa.tensor_copy(out, b)


def test_eight_banks_fit_and_nine_do_not():
    assert allocate(trace(sums, ROW, count=8)).psum_peak_bytes == 8 * 2048
    with pytest.raises(LegalityError) as refused:
        allocate(trace(sums, ROW, count=9), capacity="spill")  # PSUM has no way to HBM
    assert refused.value.rule == "psum_overflow"


def test_small_tiles_share_a_bank_but_never_straddle_one():
    assert allocate(trace(sums, ROW, count=16, width=256)).psum_peak_bytes == 8 * 2048
    with pytest.raises(LegalityError):
        allocate(trace(sums, ROW, count=9, width=300))


def test_addresses_of_tiles_that_live_together_do_not_meet():
    placed = allocate(trace(all_live, ROW, count=6)).addresses[0]
    ranges = sorted((a.offset, a.offset + a.bytes) for a in placed)
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))


def test_the_author_s_addresses_are_kept():
    def placed(x):
        t = tile(address=(0, 4096))
        nisa.dma_copy(t, x)
        nisa.dma_copy(x, t)

    assert allocate(trace(placed, ROW)).addresses[0][0].offset == 4096
