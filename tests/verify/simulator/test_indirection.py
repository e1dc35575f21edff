"""Tensor indirection: gathers and scatters along the free axis, who may use them, where indices lie."""

import numpy as np
import pytest

from tests.verify.simulator.one import floats, like, nisa, nl, refused, run, unwritten

TRN3 = "trn3"


def snake(order, partitions=16):
    """Index tile of one group: element i of the order at partition i mod 16, column i div 16."""
    columns = -(-len(order) // partitions)
    tile = np.zeros((partitions, columns), np.uint32)
    for i, value in enumerate(order):
        tile[i % partitions, i // partitions] = value
    return tile


def test_a_gather_reads_columns_in_snake_order():
    a, order = floats(16, 40), [3, 39, 0, 7, 7, 21, 5, 30, 12, 1, 2, 4, 6, 8, 9, 10, 11, 13, 14, 15]

    def build(x, index):
        out = like(x, shape=(16, len(order)))
        nisa.tensor_copy(out, x.indirect(index, num_elem=len(order)))
        return out

    assert run(build, a, snake(order), target=TRN3).tolist() == a[:, order].tolist()


def test_every_group_of_sixteen_partitions_has_its_own_indices():
    a = floats(32, 20)
    first, second = list(range(16)), list(range(4, 20))
    index = np.concatenate([snake(first), snake(second)])

    def build(x, i):
        out = like(x, shape=(32, 16))
        nisa.tensor_scalar(out, x.indirect(i, num_elem=16), op0=nl.multiply, operand0=2.0)
        return out

    want = np.concatenate([a[:16][:, first], a[16:][:, second]]) * 2
    assert run(build, a, index, target=TRN3).tolist() == want.tolist()


def test_a_scatter_writes_columns():
    a, order = floats(16, 16), [5, 0, 19, 3, 1, 2, 4, 6, 7, 8, 9, 10, 11, 12, 13, 14]

    def build(x, index):
        out = like(x, shape=(16, 20))
        nisa.memset(out, 0.0)
        nisa.activation(out.indirect(index, num_elem=16), nl.copy, x)
        return out

    want = np.zeros((16, 20), np.float32)
    want[:, order] = a
    assert run(build, a, snake(order), target=TRN3).tolist() == want.tolist()


CALLS = {
    "tensor_tensor_data1": lambda out, v, x: nisa.tensor_tensor(out, v, x, op=nl.add),
    "tensor_tensor_data2": lambda out, v, x: nisa.tensor_tensor(out, x, v, op=nl.add),
    "reciprocal": lambda out, v, x: nisa.reciprocal(out, v),
    "activation": lambda out, v, x: nisa.activation(out, nl.exp, v),
    "scan": lambda out, v, x: nisa.tensor_tensor_scan(out, v, x, 0.0, op0=nl.add, op1=nl.add),
    "predicated_src": lambda out, v, x: nisa.tensor_copy_predicated(out, v, x.view(nl.uint32)),
    "exponential": lambda out, v, x: nisa.exponential(out, v),
    "reduce": lambda out, v, x: nisa.tensor_reduce(out[:, 0:1], op=nl.add, data=v, axis=1),
}
ALLOWED = {"tensor_tensor_data1", "activation", "exponential", "reduce"}


@pytest.mark.parametrize("name", CALLS)
def test_only_documented_operands_may_be_indirect(name):
    def build(x, index):
        out = like(x)
        nisa.memset(out, 0.0)
        CALLS[name](out, x.indirect(index, num_elem=16), x)
        return out

    a, index = floats(16, 16), snake(list(range(16)))
    if name in ALLOWED:
        assert run(build, a, index, target=TRN3).shape == (16, 16)
        assert refused(build, a, index) == "target"
    else:
        assert refused(build, a, index, target=TRN3) == "indirect_operand"


def test_scalar_engine_scatters_into_sbuf_only():
    def build(engine):
        def body(x, index):
            out = like(x, buffer=nl.psum)
            nisa.memset(out, 0.0)
            nisa.tensor_copy(out.indirect(index, num_elem=16), x, engine=engine)
            return out

        return body

    a, index = floats(16, 16), snake(list(range(16)))
    assert refused(build(nisa.engine.scalar), a, index, target=TRN3) == "indirect_operand"
    assert run(build(nisa.engine.vector), a, index, target=TRN3).tolist() == a.tolist()


@pytest.mark.parametrize("index_at,data_at,rule", [(0, 0, None), (32, 0, "indirect_placement")])
def test_placed_indices_start_where_their_data_does(index_at, data_at, rule):
    def build(x, index):
        data = nl.ndarray((16, 16), dtype=nl.float32, buffer=nl.sbuf, address=(data_at, 0))
        where = nl.ndarray((16, 1), dtype=nl.uint32, buffer=nl.sbuf, address=(index_at, 1024))
        nisa.tensor_copy(data, x)
        nisa.tensor_copy(where, index)
        out = like(x)
        nisa.tensor_copy(out, data.indirect(where, num_elem=16))
        return out

    a, index = floats(16, 16), snake(list(range(16)))
    if rule:
        assert refused(build, a, index, target=TRN3) == rule
    else:
        assert run(build, a, index, target=TRN3).tolist() == a.tolist()


def test_tensor_engine_gathers_with_groups_of_32():
    a, b = floats(32, 40).astype(np.float16), floats(32, 6, seed=1).astype(np.float16)
    order = [39, 0, 7, 21]
    index = np.zeros((32, 1), np.uint32)
    index[: len(order), 0] = order

    def build(x, y, i):
        out = nl.ndarray((4, 6), dtype=nl.float32, buffer=nl.psum)
        nisa.nc_matmul(out, x.indirect(i, num_elem=4), y)
        return out

    want = a[:, order].astype(np.float32).T @ b.astype(np.float32)
    np.testing.assert_allclose(run(build, a, b, index, target=TRN3), want, rtol=1e-5, atol=1e-5)


def test_unwritten_data_moves_with_gathers_and_scatters():
    order = [3, 0, 2, 1, *range(4, 16)]

    def build(x, index):
        part, out = like(x), like(x)
        nisa.tensor_copy(part[:, 0:3], x[:, 0:3])
        nisa.tensor_copy(part[:, 4:16], x[:, 4:16])
        nisa.memset(out, 0.0)
        nisa.tensor_copy(out.indirect(index, num_elem=16), part)
        return out

    mask = unwritten(build, floats(16, 16), snake(order), target=TRN3)
    assert mask[:, 1].all() and not np.delete(mask, 1, axis=1).any()


def test_an_index_is_written_and_in_bounds():
    def build(write, value):
        def body(x):
            index, out = like(x, dtype=nl.uint32, shape=(16, 1)), like(x)
            if write:
                nisa.memset(index, value)
            nisa.tensor_copy(out, x.indirect(index, num_elem=16))
            return out

        return body

    a = floats(16, 16)
    assert run(build(True, 5), a, target=TRN3).tolist() == np.repeat(a[:, 5:6], 16, axis=1).tolist()
    assert refused(build(True, 16), a, target=TRN3) == "dynamic_bounds"
    assert refused(build(False, 0), a, target=TRN3) == "unwritten_index"
