"""Each rule proves what it may, and nothing beside it; and what a rule rewrites leaves the same bits behind."""

import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkismith.verify.mutation.equivalence import RULES, excluded_by, form
from nkismith.verify.simulator.execute import execute
from nkismith.verify.simulator.kernel import TensorType, record

F32 = "float32"


def trace(kernel, *shapes):
    return record(kernel, tuple(TensorType(shape, F32) for shape in shapes))[0]


def out(shape=(8, 16)):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.shared_hbm)


def tile(shape=(8, 16), **where):
    return nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf, **where)


def loaded(x, **where):
    t = tile(x.shape, **where)
    nisa.dma_copy(t, x)
    return t


def combine(op, swapped=False):
    def kernel(x, y):
        a, b, c, z = loaded(x), loaded(y), tile(), out()
        nisa.tensor_tensor(c, b if swapped else a, a if swapped else b, op=op)
        nisa.dma_copy(z, c)
        return z

    return kernel


def pair(first, second, *shapes):
    shapes = shapes or ((8, 16), (8, 16))
    return [(trace(first, *shapes), trace(second, *shapes))]


@pytest.mark.parametrize("op", [nl.add, nl.multiply, nl.maximum, nl.minimum])
def test_inputs_of_a_commutative_operator_may_change_places(op):
    assert excluded_by(pair(combine(op), combine(op, swapped=True))) == "commutative_swap"


def test_inputs_of_a_subtraction_may_not():
    assert excluded_by(pair(combine(nl.subtract), combine(nl.subtract, swapped=True))) == ""


def test_another_operator_is_never_equivalent():
    assert excluded_by(pair(combine(nl.add), combine(nl.subtract))) == ""


def scaled(op, reverse):
    def kernel(x, y):
        a, c, z = loaded(x), tile(), out()
        nisa.tensor_scalar(c, a, op0=op, operand0=3.0, reverse0=reverse)
        nisa.dma_copy(z, c)
        return z

    return kernel


def test_reverse_says_nothing_for_a_product_and_much_for_a_difference():
    assert excluded_by(pair(scaled(nl.multiply, False), scaled(nl.multiply, True))) == "commutative_swap"
    assert excluded_by(pair(scaled(nl.subtract, False), scaled(nl.subtract, True))) == ""


def shifted(swapped, scale):
    def kernel(x, y):
        a, b, c, z = loaded(x), loaded(y), tile((8, 1)), out((8, 1))
        data, bias = (b, a) if swapped else (a, b)
        nisa.activation(c, op=nl.exp, data=data, bias=bias, scale=scale)
        nisa.dma_copy(z, c)
        return z

    return kernel


def test_data_and_bias_of_an_unscaled_activation_may_change_places():
    columns = (8, 1), (8, 1)
    assert excluded_by(pair(shifted(False, 1.0), shifted(True, 1.0), *columns)) == "commutative_swap"
    assert excluded_by(pair(shifted(False, 0.5), shifted(True, 0.5), *columns)) == ""


def copying(onto_itself=False, beside=False):
    def kernel(x, y):
        a, z = loaded(x), out()
        if onto_itself:
            nisa.tensor_copy(a[:, :8], a[:, :8])
        if beside:
            nisa.tensor_copy(a[:, :8], a[:, 8:])
        nisa.dma_copy(z, a)
        return z

    return kernel


def test_a_copy_of_a_region_onto_itself_does_nothing():
    assert excluded_by(pair(copying(), copying(onto_itself=True))) == "no_op_copy"
    assert excluded_by(pair(copying(), copying(beside=True))) == ""


def storing(first=None, columns=16, read_first=False):
    """Fill a tile, perhaps with something before, and store it."""

    def kernel(x, y):
        a, z = tile(), out()
        if first is not None:
            nisa.memset(a, first)
        if read_first:
            nisa.tensor_scalar(a, a, op0=nl.add, operand0=1.0)
        b = loaded(y)
        nisa.tensor_copy(a[:, :columns], b[:, :columns])
        nisa.dma_copy(z, a)
        return z

    return kernel


def test_what_is_overwritten_before_anyone_reads_it_is_dead():
    assert excluded_by(pair(storing(), storing(first=1.0))) == "dead_write"
    assert excluded_by(pair(storing(first=1.0), storing(first=2.0, read_first=True))) == "dead_write"


def test_what_a_partial_overwrite_leaves_is_not_dead():
    assert excluded_by(pair(storing(first=1.0, columns=15), storing(first=2.0, columns=15))) == ""


def test_a_result_is_read_and_what_stays_on_chip_is_not():
    def kernel(value, kept):
        def build(x, y):
            z, a = out(), loaded(x)
            nisa.dma_copy(z, a)
            b = tile()
            nisa.memset(b, value)
            if kept:
                nisa.dma_copy(z[0:4], b[0:4])
            return z

        return build

    assert excluded_by(pair(kernel(1.0, False), kernel(2.0, False))) == "dead_write"
    assert excluded_by(pair(kernel(1.0, True), kernel(2.0, True))) == ""


def test_a_vector_operand_is_read():
    def kernel(value):
        def build(x, y):
            a, c, z, column = loaded(x), tile(), out(), tile((8, 1))
            nisa.memset(column, value)
            nisa.tensor_scalar(c, a, op0=nl.multiply, operand0=column)
            nisa.dma_copy(z, c)
            return z

        return build

    assert excluded_by(pair(kernel(1.0), kernel(2.0))) == ""


def looped(carried):
    """A loop whose body reads, at its beginning, what it wrote at its end in the turn before."""

    def kernel(x, y):
        a, c, z = loaded(x), loaded(y), out()

        def body(i):
            nisa.tensor_tensor(c, c, a, op=nl.add)
            if carried:
                nisa.tensor_scalar(a, a, op0=nl.multiply, operand0=2.0)

        nl.fori_loop(0, 3, body)
        nisa.dma_copy(z, c)
        return z

    return kernel


def test_what_the_next_iteration_reads_is_not_dead():
    assert excluded_by(pair(looped(False), looped(True))) == ""


def summed(flags, fresh=True):
    """x.T @ y accumulated over two halves of the rows."""

    def kernel(x, y):
        z, total, result = out((16, 16)), nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.psum), tile((16, 16))
        if not fresh:
            nisa.memset(total, 1.0)
        for half, flag in enumerate(flags):
            a, b = loaded(x[4 * half : 4 * half + 4]), loaded(y[4 * half : 4 * half + 4])
            nisa.nc_matmul(total, a, b, accumulate=flag)
        nisa.tensor_copy(result, total)
        nisa.dma_copy(z, result)
        return z

    return kernel


def test_accumulate_none_is_false_at_the_first_write_and_true_at_the_next():
    assert excluded_by(pair(summed((None, None)), summed((False, True)))) == "first_write"
    assert excluded_by(pair(summed((None, None)), summed((False, False)))) == ""
    assert excluded_by(pair(summed((None, None), fresh=False), summed((False, True), fresh=False))) == ""
    assert excluded_by(pair(summed((None, None), fresh=False), summed((True, True), fresh=False))) == "first_write"


def test_names_lines_and_addresses_do_not_matter():
    def renamed(x, y):
        a = loaded(x, address=(0, 0))
        b, c, z = loaded(y), tile(), out()
        nisa.tensor_tensor(c, a, b, op=nl.subtract, name="difference")
        nisa.dma_copy(z, c)
        return z

    assert excluded_by(pair(combine(nl.subtract), renamed)) == "same_program"


def test_one_shape_that_differs_is_enough_to_keep_a_mutant():
    same, other = pair(combine(nl.add), combine(nl.add)), pair(combine(nl.add), combine(nl.multiply))
    assert excluded_by(same) and not excluded_by(same + other)


KERNELS = {
    "dead and live writes": (storing(first=1.0, columns=15, read_first=True), 2),
    "a loop": (looped(True), 2),
    "sums in PSUM": (summed((None, None), fresh=False), 2),
    "copies": (copying(onto_itself=True, beside=True), 2),
    "an activation": (shifted(True, 1.0), 2),
    "operators": (scaled(nl.multiply, True), 2),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", KERNELS)
def test_a_rule_leaves_the_same_bits(rule, name):
    kernel, count = KERNELS[name]
    shape = (8, 1) if name == "an activation" else (8, 16)
    original = trace(kernel, *[shape] * count)
    arrays = [np.random.default_rng(i).standard_normal(shape, dtype=np.float32) for i in range(count)]
    before, after = (execute(t, arrays) for t in (original, RULES[rule](original)))
    assert [o.tobytes() for o in before.outputs] == [o.tobytes() for o in after.outputs]
    assert form(RULES[rule](original)) == form(RULES[rule](RULES[rule](original)))
