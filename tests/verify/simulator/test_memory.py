"""What is written and what is not; high-precision mode; memory held while a trace runs."""

import ml_dtypes
import numpy as np
import pytest

from nkismith.verify.simulator.execute import execute
from nkismith.verify.simulator.kernel import TensorType, record
from nkismith.verify.simulator.memory import Memory
from nkismith.verify.simulator.trace import Buffer, Operand
from tests.verify.simulator.one import floats, kernel_of, like, nisa, nki, nl, replayed, run, unwritten

BF16 = ml_dtypes.bfloat16


def buffer(dtype="float32", shape=(4, 6), space="sbuf"):
    return Buffer(
        id=0, name="t", space=space, kind="internal", shared=False, dtype=dtype, shape=shape, address=None, core=0,
        at=0, scope=0, line=1,
    )  # fmt: skip


def region(start, partitions, offset, count, dtype="float32", stride=1):
    return Operand(0, dtype, start, partitions, offset, ((stride, count),))


def test_a_fresh_buffer_is_unwritten_and_reads_as_nan_or_zero():
    for dtype, display in (("float32", np.nan), ("bfloat16", np.nan), ("int32", 0)):
        memory = Memory()
        memory.allocate(buffer(dtype))
        whole = region(0, 4, 0, 6, dtype)
        assert memory.taint(whole).all()
        np.testing.assert_array_equal(memory.view(whole).astype(np.float32), np.full((4, 6), display, np.float32))


def test_a_partial_write_leaves_the_rest_unwritten():
    memory = Memory()
    memory.allocate(buffer())
    part = region(1, 2, 2, 3)
    memory.view(part, overwrite=True)[...] = 5
    memory.mark(part, False)
    want = np.ones((4, 6), bool)
    want[1:3, 2:5] = False
    assert memory.taint(region(0, 4, 0, 6)).tolist() == want.tolist()
    assert np.isnan(memory.view(region(0, 4, 0, 6))[want]).all()
    assert memory.taint(part) is None


def test_a_buffer_written_piece_by_piece_is_written():
    memory = Memory()
    memory.allocate(buffer())
    for offset in (0, 3):
        memory.mark(region(0, 4, offset, 3), False)
    assert memory.taint(region(0, 4, 0, 6)) is None


def test_masks_follow_views_of_other_item_sizes():
    memory = Memory()
    memory.allocate(buffer("uint8", (2, 8)))
    memory.mark(region(0, 2, 0, 7, "uint8"), False)
    words = memory.taint(region(0, 2, 0, 2, "uint32"))
    assert words.tolist() == [[False, True]] * 2  # byte 7 of 8 was never written
    memory.mark(region(0, 2, 1, 1, "uint32"), False)
    assert memory.taint(region(0, 2, 0, 8, "uint8")) is None
    memory.mark(region(0, 1, 0, 1, "uint16"), True)
    assert memory.taint(region(0, 2, 0, 8, "uint8")).tolist() == [[True] * 2 + [False] * 6, [False] * 8]


def test_bytes_of_a_wider_tile_share_its_elements():
    memory = Memory()
    memory.allocate(buffer("float32", (1, 2)))
    memory.mark(region(0, 1, 4, 4, "uint8"), False)
    assert memory.taint(region(0, 1, 0, 2)).tolist() == [[True, False]]


def test_a_view_cannot_leave_its_buffer():
    memory = Memory()
    memory.allocate(buffer())
    with pytest.raises(ValueError, match="buffer"):
        memory.view(region(0, 4, 0, 7))


def test_a_tile_of_a_loop_body_is_fresh_in_every_iteration():
    def build(x):
        out = like(x)
        nisa.memset(out, 0.0)

        def body(i):
            part = like(x)
            nisa.tensor_copy(part[:, nl.ds(i, 1)], x[:, nl.ds(i, 1)])
            nisa.tensor_copy(out, part)

        nl.fori_loop(0, 2, body)
        return out

    assert unwritten(build, floats(2, 4)).tolist() == [[True, False, True, True]] * 2


def chained(x):
    """x + 1/3 rounded to bfloat16 four times over."""
    for _ in range(4):
        out = like(x)
        nisa.tensor_scalar(out, x, op0=nl.add, operand0=1.0 / 3)
        x = out
    return x


def test_high_precision_mode_keeps_float32_in_low_precision_tiles():
    for dtype in (BF16, np.float16, ml_dtypes.float8_e5m2):
        a = floats(4, 8).astype(dtype)
        third, exact, rounded = np.float32(1.0 / 3), a.astype(np.float32), a
        for _ in range(4):
            exact, rounded = exact + third, (rounded.astype(np.float32) + third).astype(dtype)
        assert replayed(chained, a).outputs[0].tobytes() == rounded.tobytes()
        wide = replayed(chained, a, precise=False).outputs[0]
        assert wide.dtype == np.float32 and wide.tobytes() == exact.tobytes()


def test_high_precision_mode_through_nki_simulate(monkeypatch):
    a = floats(4, 8, dtype=BF16)
    monkeypatch.setenv("NKI_PRECISE_FP", "0")
    (wide,) = nki.simulate(kernel_of(chained))(a)
    assert wide.tobytes() == replayed(chained, a, precise=False).outputs[0].tobytes()
    monkeypatch.setenv("NKI_PRECISE_FP", "1")
    (narrow,) = nki.simulate(kernel_of(chained))(a)
    assert narrow.dtype == BF16


def test_a_bit_cast_rounds_the_tile_it_looks_into():
    def build(x):
        y = chained(x)
        bits = like(y, dtype=nl.uint16)
        nisa.tensor_copy(bits, y.view(nl.uint16))
        return bits, y

    a = floats(4, 8, dtype=BF16)
    bits, values = replayed(build, a, precise=False).outputs
    exact = replayed(chained, a, precise=False).outputs[0]
    assert bits.tobytes() == exact.astype(BF16).tobytes()
    assert values.tobytes() == bits.view(BF16).astype(np.float32).tobytes()


def test_high_precision_mode_leaves_integers_and_packed_types_alone():
    def build(x):
        out = like(x, dtype=nl.int8)
        nisa.tensor_scalar(out, x, op0=nl.multiply, operand0=1.5)
        return out

    a = np.array([[1, 3, 5]], BF16)
    assert replayed(build, a, precise=False).outputs[0].tolist() == run(build, a).tolist()


def test_tiles_go_after_their_last_use():
    peak = []

    def build(x):
        for _ in range(50):
            y = like(x)
            nisa.tensor_copy(y, x)
            x = y
        return x

    class Watching(Memory):
        def free(self, id):
            peak.append(self.bytes)
            super().free(id)

    a = floats(4, 100)
    trace, _ = record(kernel_of(build), (TensorType(a.shape, "float32"),))
    import nkismith.verify.simulator.execute as module

    before, module.Memory = module.Memory, Watching
    try:
        execute(trace, [a])
    finally:
        module.Memory = before
    assert len(peak) >= 50
    assert max(peak) <= 5 * a.nbytes
