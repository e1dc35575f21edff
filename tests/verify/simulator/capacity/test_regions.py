"""Regions against the sets of bytes they stand for."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from nkismith.verify.simulator.capacity.regions import region
from nkismith.verify.simulator.trace import Buffer, Dynamic, Operand, ScalarRef

BUFFER = Buffer(0, "t", "sbuf", "internal", False, "uint8", (128, 64), None, 0, 0, 0, 1)


def touched(operand: Operand) -> set[int]:
    steps = [range(0, s * n, s) if s else (0,) for s, n in operand.pattern]
    return {operand.offset + sum(index) for index in itertools.product(*steps)}


patterns = st.lists(st.tuples(st.sampled_from([0, 1, 2, 3, 4, 8, 16]), st.integers(1, 4)), min_size=1, max_size=2)
operands = st.builds(
    lambda offset, pattern: Operand(0, "uint8", 0, 128, offset, tuple(pattern)), st.integers(0, 20), patterns
)


@given(operands, operands)
def test_two_accesses_that_share_a_byte_overlap(a, b):
    if touched(a) & touched(b):
        assert region(a, BUFFER).overlaps(region(b, BUFFER))


def test_interleaved_halves_do_not_overlap():
    even = region(Operand(0, "float32", 0, 128, 0, ((2, 8),)), BUFFER)
    odd = region(Operand(0, "float32", 0, 128, 1, ((2, 8),)), BUFFER)
    assert not even.overlaps(odd)
    assert even.overlaps(even)


def test_dense_dimensions_fold_into_one_range():
    whole = region(Operand(0, "uint8", 0, 128, 0, ((16, 4), (4, 4), (1, 4))), BUFFER)
    assert (whole.low, whole.high, whole.stride) == (0, 64, 0)
    assert whole.covers(region(Operand(0, "uint8", 32, 32, 8, ((1, 8),)), BUFFER))


def test_other_partitions_and_other_bytes_are_other_regions():
    top = region(Operand(0, "uint8", 0, 64, 0, ((1, 64),)), BUFFER)
    bottom = region(Operand(0, "uint8", 64, 64, 0, ((1, 64),)), BUFFER)
    left = region(Operand(0, "uint8", 0, 128, 0, ((1, 32),)), BUFFER)
    right = region(Operand(0, "uint8", 0, 128, 32, ((1, 32),)), BUFFER)
    assert not top.overlaps(bottom)
    assert not left.overlaps(right)


def test_an_unknown_address_reaches_the_whole_buffer():
    operand = Operand(0, "uint8", 0, 128, 0, ((1, 8),), Dynamic("scalar", ScalarRef(0), None, 8, 8))
    assert (region(operand, BUFFER).low, region(operand, BUFFER).high) == (0, 64)
    assert (region(operand, BUFFER, 16).low, region(operand, BUFFER, 16).high) == (16, 24)
