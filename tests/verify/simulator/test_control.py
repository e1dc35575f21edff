"""Scalars, registers and compiled loops: values against Python, and what must be refused."""

import nki
import nki.isa as nisa
import nki.language as nl
import numpy as np
import pytest

from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.execute import execute
from nkismith.verify.simulator.kernel import TensorType, record


def int32(*values):
    return np.array([values], np.int32)


def simulated(kernel, *arrays):
    return nki.simulate(kernel)(*arrays)


def rule(kernel, *arrays):
    with pytest.raises(LegalityError) as caught:
        simulated(kernel, *arrays)
    assert caught.value.line is not None
    return caught.value.rule


def output(shape=(1, 1), dtype=nl.int32):
    return nl.ndarray(shape, dtype=dtype, buffer=nl.shared_hbm)


# -- scalars ------------------------------------------------------------------------------------------------------


def arithmetic(expression, dtype=nl.int32):
    def kernel(x):
        out = output(dtype=dtype)
        nisa.scalar_store(out, expression(nisa.scalar_load(x)))
        return out

    return kernel


@pytest.mark.parametrize(
    ("expression", "given", "want"),
    [
        (lambda i: i * 4 + 1, 5, 21),
        (lambda i: 10 - i, 3, 7),
        (lambda i: -i, 3, -3),
        (lambda i: i * i, 100000, 1410065408),
        (lambda i: i + 1, 2147483647, -2147483648),
        (lambda i: i - i * 2, -7, 7),
        (lambda i: 3 + i, 4, 7),
    ],
)
def test_int32_arithmetic_wraps(expression, given, want):
    assert simulated(arithmetic(expression), int32(given))[0, 0] == want


def test_int64_does_not_narrow():
    kernel = arithmetic(lambda i: i * i + 1, nl.int64)
    assert simulated(kernel, np.array([[3_000_000_000]], np.int64))[0, 0] == 9_000_000_000_000_000_001


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (lambda i: i % 2, "scalar_operator"),
        (lambda i: i << 1, "scalar_operator"),
        (lambda i: i if i else 1, "host_control_flow"),
        (lambda i: int(i), "host_control_flow"),
        (lambda i: list(range(i)), "host_control_flow"),
        (lambda i: i > 3, "scalar_comparison"),
        (lambda i: (i > 3) + 1, "scalar_comparison"),
        (lambda i: 3, "operand_type"),
    ],
)
def test_what_scalars_do_not_do(expression, expected):
    assert rule(arithmetic(expression), int32(1)) == expected
    simulated(arithmetic(lambda i: i), int32(1))


def test_the_bounds_of_a_loop_are_read_once():
    def kernel(x):
        out, tile = output((1, 1)), nl.load(x)
        bound, total = nisa.register_alloc(), nl.zeros((1, 1), dtype=nl.int32)
        nisa.register_load(bound, tile)

        def body(i):
            nisa.tensor_scalar(total, total, nl.add, 1)
            nisa.register_move(bound, 100)

        nl.fori_loop(0, bound, body)
        nl.store(out, total)
        return out

    assert simulated(kernel, int32(3)).tolist() == [[3]]


def test_a_loop_bound_that_nothing_wrote_is_refused_at_the_loop():
    def kernel(x):
        bound = nisa.register_alloc()
        nl.fori_loop(0, bound, lambda i: None)
        return output((1, 1))

    with pytest.raises(LegalityError) as caught:
        simulated(kernel, int32(1))
    assert caught.value.rule == "unwritten_scalar"
    assert caught.value.line == kernel.__code__.co_firstlineno + 2


def test_a_scalar_as_a_python_value_is_a_type_error():
    with pytest.raises(TypeError):
        simulated(arithmetic(lambda i: int(i)), int32(1))


@pytest.mark.parametrize(
    ("source", "stored", "expected"),
    [("uint32", "int32", "scalar_width"), ("int32", "int64", "scalar_width"), ("int64", "int32", "scalar_width")],
)
def test_widths_must_match(source, stored, expected):
    def kernel(x):
        out = output(dtype=stored)
        nisa.scalar_store(out, nisa.scalar_load(x))
        return out

    assert rule(kernel, np.ones((1, 1), source)) == expected
    simulated(arithmetic(lambda i: i), int32(1))


def test_scalars_of_two_widths_do_not_mix():
    def kernel(a, b):
        out = output()
        nisa.scalar_store(out, nisa.scalar_load(a) + nisa.scalar_load(b))
        return out

    assert rule(kernel, int32(1), np.ones((1, 1), np.int64)) == "scalar_width"
    assert simulated(kernel, int32(1), int32(2))[0, 0] == 3


def test_scalar_load_takes_one_written_element():
    def kernel(x, whole):
        out = output()
        tile = nl.ndarray((1, 2), dtype=nl.int32, buffer=nl.sbuf)
        nisa.dma_copy(tile[:, 0:1], x)
        nisa.scalar_store(out, nisa.scalar_load(tile if whole else tile[:, 1:2]))
        return out

    assert rule(kernel, int32(1), True) == "scalar_tile"
    assert rule(kernel, int32(1), False) == "unwritten_scalar"


def test_an_int64_scalar_does_not_address_on_chip():
    def kernel(x, index):
        out = output((1, 1), nl.float32)
        tile = nl.load(x)
        result = nl.ndarray((1, 1), dtype=nl.float32, buffer=nl.sbuf)
        at = nisa.scalar_load(index)
        nisa.tensor_copy(result, tile.ap([[4, 1], [1, 1]], scalar_offset=at, indirect_dim=1))
        nisa.dma_copy(out, result)
        return out

    x = np.arange(4, dtype=np.float32)[None]
    assert simulated(kernel, x, int32(2))[0, 0] == 2
    assert rule(kernel, x, np.array([[2]], np.int64)) == "scalar_width"


# -- registers ----------------------------------------------------------------------------------------------------


def test_registers_move_load_and_store():
    def kernel(x):
        out = output((1, 4))
        first, second = nisa.register_alloc(41), nisa.register_alloc()
        nisa.register_move(second, first)
        loaded = nisa.register_alloc(None)
        nisa.register_load(loaded, x)
        nisa.register_move(first, -5)
        for column, register in enumerate((first, second, loaded)):
            nisa.register_store(out[:, column : column + 1], register)
        nisa.register_store(out[:, 3:4], loaded)
        return out

    np.testing.assert_array_equal(simulated(kernel, int32(7)), [[-5, 41, 7, 7]])


def test_the_documentation_writes_register_tiles_with_one_dimension():
    def kernel(x):
        out = output((1, 1), nl.float32)
        tile = nl.ones([1], dtype=nl.int32, buffer=nl.sbuf)
        register = nisa.register_alloc()
        nisa.register_load(register, tile)
        result = nl.ndarray([1], dtype=nl.float32, buffer=nl.sbuf)
        nisa.register_store(result, register)
        nisa.dma_copy(out, result)
        return out

    assert simulated(kernel, int32(0))[0, 0] == 1.0


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (lambda r, x: nisa.register_store(output(), nisa.register_alloc()), "unwritten_scalar"),
        (lambda r, x: nisa.register_move(r, 1 << 33), "register_value"),
        (lambda r, x: nisa.register_move(r, 1.5), "register_value"),
        (lambda r, x: nisa.register_load(r, x.broadcast(1, 2)), "scalar_tile"),
        (lambda r, x: nisa.register_store(output(), 3), "register_value"),
        (lambda r, x: nisa.register_load(3, x), "register_value"),
        (lambda r, x: bool(r), "host_control_flow"),
    ],
)
def test_rules_of_registers(body, expected):
    def kernel(x, do):
        out = output()
        register = nisa.register_alloc(1)
        do(register, x)
        nisa.register_store(out, register)
        return out

    assert rule(kernel, int32(1), body) == expected
    assert simulated(kernel, int32(1), lambda r, x: nisa.register_load(r, x))[0, 0] == 1


# -- loops --------------------------------------------------------------------------------------------------------


def running_sum(lower=0, step=1, registers=False):
    """Row i of the output is the sum of rows lower, lower+step, ... <= i."""

    def kernel(x, count):
        out = output(x.shape, x.dtype)
        total = nl.zeros((1, x.shape[1]), x.dtype)
        nisa.dma_copy(out, nl.load(x))
        if registers:
            upper = nisa.register_alloc()
            nisa.register_load(upper, count)
        else:
            upper = nisa.scalar_load(count)

        def body(i):
            row = nl.ndarray((1, x.shape[1]), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(row, x.select(0, i))
            nisa.tensor_tensor(total, total, row, op=nl.add)
            nisa.dma_copy(out.select(0, i), total)

        nl.fori_loop(lower, upper, body, step)
        return out

    return kernel


@pytest.mark.parametrize("registers", [False, True])
@pytest.mark.parametrize(("lower", "step", "count"), [(0, 1, 5), (1, 2, 6), (0, 3, 7), (0, 1, 0), (3, 1, 2)])
def test_counted_loops_run_on_the_device(registers, lower, step, count):
    x = np.random.default_rng(0).standard_normal((7, 3)).astype(np.float32)
    want, total = x.copy(), np.zeros(3, np.float32)
    for i in range(lower, count, step):
        total = total + x[i]
        want[i] = total
    kernel = running_sum(lower, step, registers)
    np.testing.assert_allclose(simulated(kernel, x, int32(count)), want, rtol=1e-6)
    types = (TensorType(x.shape, "float32"), TensorType((1, 1), "int32"))
    trace, _ = record(kernel, types)  # one recording serves every count
    np.testing.assert_allclose(execute(trace, [x, int32(count)]).outputs[0], want, rtol=1e-6)


def test_the_index_is_a_scalar_unless_a_bound_is_a_register():
    seen = []

    def kernel(x):
        register = nisa.register_alloc(2)
        nl.fori_loop(0, 2, lambda i: seen.append(type(i)))
        nl.fori_loop(0, register, lambda i: seen.append(type(i)))
        nl.fori_loop(0, nisa.scalar_load(x), lambda i: seen.append(type(i)))
        return x

    simulated(kernel, int32(2))
    assert [t.__name__ for t in seen] == ["NkiScalar", "VirtualRegister", "NkiScalar"]


def test_loops_nest_and_offsets_combine():
    def kernel(x):
        out = output(x.shape, x.dtype)
        inner = x.shape[1]

        def row(i):
            def column(j):
                tile = nl.ndarray((1, 1), dtype=x.dtype, buffer=nl.sbuf)
                nisa.dma_copy(tile, x[i, j])
                nisa.tensor_scalar(tile, tile, op0=nl.multiply, operand0=2.0)
                nisa.dma_copy(out.reshape((x.size, 1)).select(0, i * inner + j), tile)

            nl.fori_loop(0, inner, column)

        nl.fori_loop(0, x.shape[0], row)
        return out

    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    np.testing.assert_array_equal(simulated(kernel, x), 2 * x)


def halving():
    def kernel(x, start):
        out = output((1, 1), nl.int32)
        count = nl.load(start)
        steps = nl.zeros((1, 1), nl.int32)
        register = nisa.register_alloc()
        nisa.register_load(register, count)

        def body(r):
            nisa.tensor_scalar(count, count, op0=nl.right_shift, operand0=1)
            nisa.tensor_scalar(steps, steps, op0=nl.add, operand0=1)
            nisa.register_load(r, count)
            return r

        nl.while_loop(register, body)
        nisa.dma_copy(out, steps)
        return out

    return kernel


@pytest.mark.parametrize("start", [0, 1, 9, 1024])
def test_while_loops_test_before_each_iteration(start):
    assert simulated(halving(), int32(0), int32(start))[0, 0] == start.bit_length()


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (lambda n, r: nl.fori_loop(0, n, lambda i: None, step=0), "loop_step"),
        (lambda n, r: nl.fori_loop(0, n, lambda i: None, step=n), "loop_step"),
        (lambda n, r: nl.fori_loop(0, 2.5, lambda i: None), "loop_bound"),
        (lambda n, r: nl.while_loop(r, lambda c: None), "while_condition"),
        (lambda n, r: nl.while_loop(n > 0, lambda c: c), "scalar_comparison"),
    ],
)
def test_rules_of_loops(build, expected):
    def kernel(x, do):
        do(nisa.scalar_load(x), nisa.register_alloc(1))
        return x

    assert rule(kernel, int32(1), build) == expected
    simulated(kernel, int32(1), lambda n, r: nl.fori_loop(0, n, lambda i: None))


def test_an_int64_bound_is_refused():
    def kernel(x):
        nl.fori_loop(0, nisa.scalar_load(x), lambda i: None)
        return x

    assert rule(kernel, np.ones((1, 1), np.int64)) == "scalar_width"
    simulated(kernel, int32(1))


def test_a_tile_of_a_loop_body_ends_with_the_loop():
    def kernel(x, inside):
        kept = []

        def body(i):
            tile = nl.zeros((1, 1), nl.int32)
            kept.append(tile)
            if inside:
                nisa.dma_copy(x, tile)

        nl.fori_loop(0, 1, body)
        if not inside:
            nisa.dma_copy(x, kept[0])
        return x

    assert rule(kernel, int32(1), False) == "loop_scope"
    assert simulated(kernel, int32(1), True)[0, 0] == 0


def test_also_as_one_of_several_operands():
    def kernel(x, inside):
        kept = [nl.zeros((1, 1), nl.float32)]

        def body(i):
            tile = nl.zeros((1, 1), nl.float32)
            if not inside:
                kept.append(tile)

        nl.fori_loop(0, 1, body)
        nisa.dma_compute(kept[0], [kept[0], kept[-1]], nl.add)
        nisa.dma_copy(x, kept[0])
        return x

    assert rule(kernel, np.ones((1, 1), np.float32), False) == "loop_scope"
    assert simulated(kernel, np.ones((1, 1), np.float32), True)[0, 0] == 0


def test_a_loop_body_starts_with_unwritten_tiles_every_time():
    def kernel(x, count):
        out = output((1, 1))

        def body(i):
            tile = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
            nisa.dma_copy(out, tile)
            nisa.memset(tile, 1)

        nl.fori_loop(0, count, body)
        return out

    assert rule(kernel, int32(1), 2) == "unwritten_output"


def test_no_compiled_loop_inside_no_reorder():
    def kernel(x, outside):
        def body(i):
            with nl.no_reorder():
                nisa.dma_copy(x, nl.zeros((1, 1), nl.int32))

        if outside:
            nl.fori_loop(0, 2, body)
        else:
            with nl.no_reorder():
                nl.fori_loop(0, 2, body)
        return x

    assert rule(kernel, int32(1), False) == "loop_in_no_reorder"
    simulated(kernel, int32(1), True)


def test_with_schedule_names_instructions():
    @nki.jit
    def kernel(x):
        out = output(x.shape, x.dtype)
        tile = nl.load(x)
        a, b = nl.ndarray(x.shape, x.dtype), nl.ndarray(x.shape, x.dtype)
        nisa.reciprocal(a, tile, name="recip")
        nisa.tensor_scalar(b, tile, op0=nl.add, operand0=1.0, name="plus1")
        nisa.dma_copy(out, b)
        return out

    trace, _ = record(kernel.with_schedule([("plus1", ["recip"])]), (TensorType((2, 2), "float32"),))
    names = {i.id: i.name for i in trace.programs[0].body if i.name}
    assert [(names[a], names[b]) for a, b in trace.programs[0].edges] == [("plus1", "recip")]


@pytest.mark.parametrize("own", [True, False], ids=["itself", "a later one"])
def test_an_instruction_cannot_wait_for_what_comes_after_it(own):
    def kernel(x):
        t = nl.ndarray((2, 2), dtype=nl.float32, buffer=nl.sbuf)
        first = nisa.memset(t, 0.0)
        second = nisa.memset(t, 1.0)
        second.depends_on(first)
        first.depends_on(first if own else second)

    with pytest.raises(LegalityError, match="comes after it") as caught:
        record(kernel, (TensorType((2, 2), "float32"),))
    assert caught.value.rule == "deadlock" and caught.value.line
