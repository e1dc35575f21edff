"""Random numbers: reproducible from a seed or a state, in range, distributed as documented."""

import numpy as np
import pytest

from tests.verify.simulator.one import floats, like, nisa, nl, refused, run

TRN3 = "trn3"


def seed(value):
    tile = nl.ndarray((1, 1), dtype=nl.uint32)
    nisa.memset(tile, value)
    nisa.set_rng_seed(tile)


def drawn(dtype, seeds=(1,), shape=(4, 64), engine="vector"):
    """One tile a seed; None draws on without seeding."""

    def build():
        tiles = []
        for value in seeds:
            if value is not None:
                seed(value)
            out = nl.ndarray(shape, dtype=dtype)
            nisa.rng(out, engine=getattr(nisa.engine, engine))
            tiles.append(out)
        return tuple(tiles)

    return build


def test_equal_seeds_give_equal_numbers_and_others_do_not():
    a, b, c, d = run(drawn(nl.uint32, (7, None, 7, 8)))
    assert a.tolist() == c.tolist()
    assert a.tolist() != b.tolist() and a.tolist() != d.tolist()


@pytest.mark.parametrize("dtype,bits", [(nl.uint8, 8), (nl.uint16, 16), (nl.int32, 32)])
def test_random_integers_are_the_low_bits_of_32(dtype, bits):
    wide, narrow = run(drawn(nl.uint32)), run(drawn(dtype))
    assert (narrow.astype(np.int64) % 2**bits).tolist() == (wide.astype(np.int64) % 2**bits).tolist()


def test_random_bits_are_fair():
    words = run(drawn(nl.uint32, shape=(128, 256)))
    ones = np.unpackbits(words.view(np.uint8)).mean()
    assert abs(ones - 0.5) < 0.005
    assert len(np.unique(words)) > 0.999 * words.size


def test_rng_writes_integers():
    assert refused(drawn(nl.float32)) == "dtype"


@pytest.mark.parametrize("engine,words,target", [("gpsimd", 6, "trn2"), ("gpsimd", 6, TRN3), ("vector", 24, TRN3)])
def test_a_state_can_be_saved_and_restored(engine, words, target):
    which = getattr(nisa.engine, engine)

    def build(state):
        nisa.rand_set_state(state, engine=which)
        saved, first, again = like(state), nl.ndarray((8, 5), dtype=nl.uint32), nl.ndarray((8, 5), dtype=nl.uint32)
        nisa.rand_get_state(saved, engine=which)
        nisa.rng(first, engine=which)
        nisa.rand_set_state(saved, engine=which)
        nisa.rng(again, engine=which)
        return saved, first, again

    state = np.random.default_rng(0).integers(1, 2**32, (8, words)).astype(np.uint32)
    saved, first, again = run(build, state, target=target)
    assert saved.tolist() == state.tolist()
    assert first.tolist() == again.tolist()


def test_xorwow_as_published():
    state = np.array([[123456789, 362436069, 521288629, 88675123, 5783321, 6615241]], np.uint32)

    def build(x):
        nisa.rand_set_state(x)
        out = nl.ndarray((1, 4), dtype=nl.uint32)
        nisa.rng(out, engine=nisa.engine.gpsimd)
        return out

    x, y, z, w, v, d = state[0].tolist()
    want = []
    for _ in range(4):
        t = x ^ (x >> 2)
        x, y, z, w = y, z, w, v
        v = (v ^ (v << 4)) ^ (t ^ (t << 1))
        v &= 0xFFFFFFFF
        d = (d + 362437) & 0xFFFFFFFF
        want.append((d + v) & 0xFFFFFFFF)
    assert run(build, state).tolist() == [want]


def test_state_shapes_and_targets():
    def build(engine):
        def body(x):
            nisa.rand_set_state(x, engine=getattr(nisa.engine, engine))
            return x

        return body

    assert refused(build("gpsimd"), np.ones((4, 24), np.uint32)) == "operand_shapes"
    assert refused(build("vector"), np.ones((4, 24), np.uint32)) == "engine"
    assert refused(build("gpsimd"), np.ones((4, 6), np.int32)) == "dtype"
    assert run(build("vector"), np.ones((4, 24), np.uint32), target=TRN3).shape == (4, 24)


def uniform(low, high, dtype=None):
    def build(*columns):
        seed(3)
        out = nl.ndarray((128, 64), dtype=dtype or nl.float32)
        nisa.rand2(out, columns[0] if columns else low, high)
        return out

    return build


def test_rand2_is_uniform_between_its_bounds():
    values = run(uniform(-2.0, 6.0), target=TRN3)
    assert values.min() >= -2 and values.max() <= 6
    assert abs(values.mean() - 2) < 0.1 and abs(values.var() - 64 / 12) < 0.2
    low = np.linspace(-1, 4, 128, dtype=np.float32)[:, None]
    assert (run(uniform(None, 6.0), low, target=TRN3) >= low).all()
    assert refused(uniform(0.0, 1.0)) == "target"
    assert refused(uniform(1.0, 1.0), target=TRN3) == "random_range"
    assert refused(uniform(0.0, 1.0, nl.float8_e4m3fn), target=TRN3) == "dtype"


def dropped(prob):
    def build(x, *column):
        seed(5)
        out = like(x)
        nisa.dropout(out, x, column[0] if column else prob)
        return out

    return build


def test_dropout_keeps_values_unscaled():
    a = floats(128, 64) + np.float32(10)
    assert run(dropped(0.0), a).tolist() == a.tolist()
    assert (run(dropped(1.0), a) == 0).all()
    out = run(dropped(0.3), a)
    assert ((out == 0) | (out == a)).all()
    assert abs((out == 0).mean() - 0.3) < 0.03
    chances = np.repeat(np.array([0.0, 1.0], np.float32), 64)[:, None]
    by_row = run(dropped(None), a, chances)
    assert (by_row[:64] == a[:64]).all() and (by_row[64:] == 0).all()


def test_dropout_rules():
    a = np.ones((4, 6), np.int16)
    assert refused(dropped(1.5), a) == "random_range"
    assert refused(dropped(None), a, np.ones((4, 1), np.float16)) == "dtype"
    assert run(dropped(None), a, np.zeros((4, 1), np.float32)).tolist() == a.tolist()


def test_seeds_are_one_element_and_written():
    def two(x):
        nisa.set_rng_seed(x)
        return x

    def nothing(x):
        nisa.set_rng_seed(nl.ndarray((1, 1), dtype=nl.uint32))
        return x

    assert refused(two, np.ones((1, 2), np.uint32)) == "operand_shapes"
    assert refused(nothing, np.ones((1, 1), np.uint32)) == "unwritten_scalar"
