"""Which mistakes are made: all kinds, only what the hardware takes, and none that makes another right kernel."""

import ast

import nki.isa as nisa
import nki.language as nl
import pytest

from nkismith.verify.mutation.mutant import Kind, Scene
from nkismith.verify.mutation.sources import source_mutants
from nkismith.verify.mutation.traces import trace_mutants
from nkismith.verify.simulator import legality
from nkismith.verify.simulator.kernel import TensorType, record


def kernel(x, y, slot):
    """A bit of everything: two row tiles, a matmul over two halves, a loop, a run-time address, a reduction."""
    rows, columns = x.shape
    z = nl.ndarray((rows, columns), dtype=nl.float32, buffer=nl.shared_hbm)
    index = nisa.scalar_load(slot.reshape((1, 1)))
    for r in range(0, rows, 64):
        a = nl.ndarray((64, columns), dtype=nl.float32, buffer=nl.sbuf)
        b = nl.ndarray((64, columns), dtype=nl.float32, buffer=nl.sbuf)
        top = nl.ndarray((64, 1), dtype=nl.float32, buffer=nl.sbuf)
        product = nl.ndarray((columns, columns), dtype=nl.float32, buffer=nl.psum)
        nisa.dma_copy(a, x[r : r + 64])
        nisa.dma_copy(b, y[index, :64, :])
        nisa.tensor_reduce(top, op=nl.maximum, data=a, axis=1, negate=True)
        nisa.activation(a, op=nl.exp, data=a, bias=top, scale=0.5)
        nisa.tensor_tensor(a, a, b, op=nl.subtract)
        for half in range(2):
            nisa.nc_matmul(product, a[32 * half : 32 * half + 32], b[32 * half : 32 * half + 32], accumulate=half > 0)
        nisa.tensor_copy(b[:columns], product)

        def body(i, b=b):
            nisa.tensor_scalar(b, b, op0=nl.add, operand0=1.0)

        nl.fori_loop(0, 3, body)
        nisa.dma_copy(z[r : r + 64], b)
    return z


SHAPES = TensorType((128, 64), "float32"), TensorType((4, 64, 64), "float32"), TensorType((1,), "int32")
TRACED = {kind for kind in Kind if not kind.name.startswith("SOURCE")}


@pytest.fixture(scope="module")
def scene():
    return Scene(record(kernel, SHAPES)[0])


@pytest.fixture(scope="module")
def mutants(scene):
    return [m for m in trace_mutants([scene]) if m.changes(scene)]


def test_every_kind_of_mistake_is_made(mutants):
    assert {m.kind for m in mutants} == TRACED


def test_a_mutant_is_a_program_that_the_hardware_takes(scene, mutants):
    for mutant in mutants:
        legality.check(mutant.change(scene))


def test_the_kernel_itself_stays_as_it_is(scene, mutants):
    again = record(kernel, SHAPES)[0]
    for mutant in mutants:
        mutant.change(scene)
    assert scene.trace == again


@pytest.mark.parametrize(
    "said",
    [
        "tensor_reduce: op=minimum, not maximum",
        "tensor_reduce: negate=False",
        "activation: without its bias",
        "activation: without its scale",
        "activation: op=sigmoid, not exp",
        "tensor_tensor: op=add, not subtract",
        "tensor_tensor: data1 and data2 change places",
        "tensor_scalar: operand0=2, not 1",
        "nc_matmul: accumulate=True",
        "the last dma_copy is left out",
        "dma_copy: src lies one row of its pattern further",
        "dma_copy: src without its run-time address",
        "dma_copy: the run-time address of src is one more",
        "tensor_reduce: data without the last element",
        "tensor_tensor: data2 is the tile of the iteration before",
        "the first iteration is left out",
        "one iteration too many",
        "the float32 tile made here is bfloat16",
    ],
)
def test_a_mistake_that_people_make_is_among_them(said, mutants):
    assert said in {m.what for m in mutants}


def test_a_line_is_wrong_everywhere_or_in_its_last_tile_only(scene, mutants):
    def changed(mutant):
        new = mutant.change(scene)
        return sum(a != b for a, b in zip(new.programs[0].body, scene.trace.programs[0].body, strict=True))

    what = "tensor_tensor: op=add, not subtract"
    everywhere = next(m for m in mutants if m.what == what)
    last = next(m for m in mutants if m.what == f"{what}, in the last tile only")
    assert (changed(everywhere), changed(last)) == (2, 1) and last.spare and not everywhere.spare


# -- sources ------------------------------------------------------------------------------------------------------

SOURCE = '''\
import nki
import nki.isa as nisa
import nki.language as nl

P = 128


@nki.jit
def double(x):
    """Twice x, 3 times a charm."""
    N, C = x.shape
    step = 64
    y = nl.ndarray((N, C + 1), dtype=x.dtype, buffer=nl.shared_hbm)
    for n in range(0, N, P):
        p = min(P, N - n)
        if p > 1:
            nisa.activation(dst=y, op=nl.exp, data=x[n + 1 : n + p], scale=2.0, bias=0.5, name="a", engine=nisa.scalar)
    return y
'''


@pytest.fixture(scope="module")
def of_source():
    return list(source_mutants(SOURCE))


def test_each_source_mutant_is_one_change_that_parses(of_source):
    original = ast.unparse(ast.parse(SOURCE)).splitlines()
    for mutant in of_source:
        changed = ast.unparse(ast.parse(mutant.source)).splitlines()
        assert sum(a != b for a, b in zip(original, changed, strict=True)) == 1, mutant


@pytest.mark.parametrize(
    ("kind", "line", "what"),
    [
        (Kind.SOURCE_RANGE, 14, "range(0, N, P) without its first turn"),
        (Kind.SOURCE_RANGE, 14, "range(0, N, P) without its last turn"),
        (Kind.SOURCE_RANGE, 14, "range(0, N, P) with its end one short"),
        (Kind.SOURCE_OPERATOR, 15, "max for min(P, N - n)"),
        (Kind.SOURCE_OPERATOR, 15, "+ in N - n"),
        (Kind.SOURCE_OPERATOR, 16, ">= in p > 1"),
        (Kind.SOURCE_NUMBER, 17, "2 for 1"),
        (Kind.SOURCE_NUMBER, 17, "0 for 1"),
        (Kind.SOURCE_NUMBER, 17, "4 for 2"),
        (Kind.SOURCE_NUMBER, 17, "1 for 0.5"),
        (Kind.SOURCE_KEYWORD, 17, "activation without scale=2.0"),
        (Kind.SOURCE_KEYWORD, 17, "activation without bias=0.5"),
    ],
)
def test_a_mistake_in_the_source(kind, line, what, of_source):
    assert (kind, line, what) in {(m.kind, m.line, m.what) for m in of_source}


def test_tile_sizes_allocations_text_and_placement_are_left_alone(of_source):
    said = {(m.line, m.what) for m in of_source}
    assert not {line for line, _ in said} & {5, 10, 12, 13}
    assert not any(word in what for _, what in said for word in ("name=", "engine=", "dst=", "data="))
