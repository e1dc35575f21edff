"""Sizes that are zero, negative or beyond any machine: refused by name at the kernel's line, never a malformed trace.

A loop without an iteration is legal: `nl.fori_loop` runs as Python's range does, `nl.while_loop` tests first.
"""

import numpy as np
import pytest

from tests.verify.simulator.one import floats, like, nisa, nl, refused, run

A = floats(4, 8)
HUGE = 1 << 70


def copied(view):
    """A contiguous SBUF copy of a view."""
    copy = nl.ndarray(view.shape, dtype=view.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(copy, view)
    return copy


def number(value):
    """A run-time scalar."""
    tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
    nisa.memset(tile, value)
    return nisa.scalar_load(tile)


def looped(lower, upper, **options):
    """`a` set to 7 in every iteration of a compiled loop."""

    def build(a):
        nl.fori_loop(lower() if callable(lower) else lower, upper, lambda i: nisa.memset(a, 7.0), **options)
        return a

    return build


def nested(depth):
    """A loop in a loop in a loop ..."""

    def build(a):
        def inside(left):
            if left:
                nl.fori_loop(0, 1, lambda i: inside(left - 1))
            else:
                nisa.memset(a, 7.0)

        inside(depth)
        return a

    return build


def then(issue):
    """An instruction on `a`, which is returned."""

    def build(a):
        issue(a)
        return a

    return build


REFUSED = [
    ("index_bounds", lambda a: copied(a[:, nl.ds(number(0), 0)])),
    ("index_bounds", lambda a: copied(a[:, nl.ds(number(0), -2)])),
    ("index_bounds", lambda a: copied(a[:, nl.ds(number(0), 9)])),
    ("index_bounds", lambda a: copied(a[:, nl.ds(0, 0)])),
    ("index_bounds", lambda a: copied(a[:, nl.ds(-2, 2)])),  # a[:, -2:0]
    ("index_bounds", lambda a: copied(a[:, nl.ds(7, 2)])),
    ("index_bounds", lambda a: copied(a[:, 4:4])),
    ("index_bounds", lambda a: copied(a[:, 6:2:-1])),
    ("index_bounds", lambda a: copied(a.slice(1, 3, 3))),
    ("index_bounds", lambda a: copied(a.ap([[8, 4], [1, 0]]))),
    ("index_bounds", lambda a: copied(a.ap([[8, 4], [1, -1]]))),
    ("index_bounds", lambda a: copied(a.ap([]))),
    ("index_type", lambda a: copied(a.ap([[8, 4], [1, 8.5]]))),
    ("operand_bounds", lambda a: copied(a.ap([[8, 4], [HUGE, 1]]))),
    ("operand_bounds", lambda a: copied(a.ap([[8, 4], [1, 1]], offset=HUGE))),
    ("view_size", lambda a: copied(a.reshape((4, 0, 8)))),
    ("view_broadcast", lambda a: copied(a[:, 0:1].broadcast(1, 0))),
    ("view_broadcast", lambda a: copied(a[:, 0:1].broadcast(1, HUGE))),
    ("view_rearrange", lambda a: copied(a.rearrange(("p", "f"), ("p", (), "f")))),
    ("view_rearrange", lambda a: copied(a.rearrange(("p", ("x", "y")), ("p", "y", "x"), {"x": 0}))),
    ("view_rearrange", lambda a: copied(a.rearrange(("p", ("x", "y")), ("p", "y", "x"), {"x": -2, "y": -4}))),
    ("view_size", lambda a: copied(a.reshape((4, None)))),
    ("view_dim", lambda a: copied(a.permute((0, "f")))),
    ("view_dim", lambda a: copied(a.broadcast([], 4))),
    ("view_dim", lambda a: copied(a.slice(1.0, 0, 4))),
    ("view_dim", lambda a: copied(a.expand_dim(()))),
    ("view_dim", lambda a: copied(a.expand_dim(3))),
    ("tile_shape", lambda a: nl.shared_identity_matrix(0)),
    ("tile_shape", lambda a: nl.shared_identity_matrix(-1)),
    ("tile_shape", lambda a: nl.shared_identity_matrix(2.5)),
    ("partition_limit", lambda a: nl.shared_identity_matrix(129)),
    ("partition_limit", lambda a: nl.shared_identity_matrix(1 << 20)),
    ("tile_shape", lambda a: like(a, shape=(4, 0))),
    ("tile_shape", lambda a: like(a, shape=(4, -8))),
    ("tile_shape", lambda a: nl.ndarray((), dtype=nl.float32, buffer=nl.shared_hbm)),
    ("tile_shape", lambda a: nl.ndarray((1 << 30, 1 << 30), dtype=nl.float32, buffer=nl.shared_hbm)),
    ("address", lambda a: nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.sbuf, address=(0, HUGE))),
    ("operand_type", lambda a: nisa.memset(a, HUGE)),
    ("operand_type", lambda a: nisa.tensor_scalar(a, a, nl.add, HUGE)),
    ("operand_type", lambda a: nisa.memset(a, 1.0, name=5)),
    ("operand_type", lambda a: nl.ndarray((4, 8), dtype=nl.float32, buffer=nl.sbuf, name="n" * 5000)),
    ("affine_pattern", then(lambda a: nisa.iota(a, [[1, 0]], 0))),
    ("affine_pattern", then(lambda a: nisa.iota(a, [[1, -2], [1, -4]], 0))),
    ("affine_pattern", then(lambda a: nisa.iota(a, [], 0))),
    ("reduce_axis", then(lambda a: nisa.tensor_reduce(copied(a[:, 0:1]), nl.add, a, axis=()))),
    ("operand_count", then(lambda a: nisa.dma_compute(a, [], nl.add))),
    ("scalar_width", lambda a: number(0) + HUGE),
    ("loop_bound", looped(0, HUGE)),
    ("loop_bound", looped(1 << 31, (1 << 31) + 2)),
    ("loop_step", looped(0, 4, step=0)),
    ("loop_step", looped(0, 4, step=HUGE)),
    ("instruction_budget", nested(33)),
]


@pytest.mark.parametrize(("rule", "build"), REFUSED, ids=[f"{i}-{r}" for i, (r, _) in enumerate(REFUSED)])
def test_a_size_that_no_program_has_is_refused_by_name(rule, build):
    assert refused(build, A) == rule


def test_a_tile_of_one_element_may_be_written_with_one_dimension():
    assert run(lambda a: copied(nl.full((1,), 3.0, dtype=nl.float32)), A).tolist() == [[3.0]]


def test_a_dimension_of_an_hbm_tensor_stays():
    def build(a):
        row = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.shared_hbm)
        return row.reshape(())

    assert refused(build, A) == "view_size"


def while_counting_from(count):
    """`a` set to 7 in every iteration of a loop that counts down."""

    def build(a):
        def body(left):
            nisa.memset(a, 7.0)
            return left - 1

        nl.while_loop(number(count), body)
        return a

    return build


@pytest.mark.parametrize(
    ("build", "runs"),
    [
        (looped(0, 0), False),
        (looped(5, 2), False),
        (looped(-1, 0), True),
        (looped(lambda: number(3), 3), False),
        (looped(lambda: number(2), 3), True),
        (while_counting_from(0), False),
        (while_counting_from(1), True),
        (nested(32), True),
    ],
)
def test_a_loop_may_have_no_iteration(build, runs):
    assert (run(build, A) == (7.0 if runs else A)).all()


@pytest.mark.parametrize(("start", "size"), [(0, 8), (7, 1), (-3, 2), (-8, 7)])
def test_a_window_from_a_known_start_is_the_slice(start, size):
    assert np.array_equal(run(lambda a: copied(a[:, nl.ds(start, size)]), A), A[:, start : start + size])


def test_a_step_beyond_the_tensor_selects_one_element():
    assert np.array_equal(run(lambda a: copied(a[:, 2:8:HUGE]), A), A[:, 2:3])


def test_a_run_time_index_steps_backwards_through_a_reversed_view():
    def build(a):
        backwards = a.ap([[8, 4], [-1, 8]], offset=7)
        return copied(backwards[:, nl.ds(number(1), 2)])

    assert np.array_equal(run(build, A), A[:, ::-1][:, 1:3])


def test_a_run_time_slice_stays_in_the_view_it_is_taken_from():
    assert refused(lambda a: copied(a[:, 0:4][:, nl.ds(number(3), 2)]), A) == "dynamic_bounds"
    assert np.array_equal(run(lambda a: copied(a[:, 0:4][:, nl.ds(number(2), 2)]), A), A[:, 2:4])
