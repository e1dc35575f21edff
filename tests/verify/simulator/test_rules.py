"""The table of legality rules against the code that refuses, and rules with an offender and an innocent neighbour.

Most rules have their offenders in the test of what they are about (test_tensor, test_dma, ...); here stand those that
belong to no single instruction.
"""

import ast
import dataclasses
from pathlib import Path

import pytest

from nkismith.verify.simulator import legality
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.execute import execute
from nkismith.verify.simulator.kernel import TensorType, record
from nkismith.verify.simulator.legality.rules import RULES, SECTIONS
from nkismith.verify.simulator.recorder import Recorder, recording
from nkismith.verify.simulator.trace import Instr, walk
from tests.verify.simulator.one import floats, in_psum, kernel_of, like, nisa, nl, refused, run

ROOT = Path(__file__).parents[3]
RAISING = {"refuse", "_refuse", "LegalityError", "CallError"}


# -- the table ----------------------------------------------------------------------------------------------------


def names_in(source: str, file: str) -> set[str]:
    """The rule names that a source passes to what refuses. A name that is not written out must be a parameter of a
    function that refuses itself."""
    tree = ast.parse(source)
    forwarded = {
        id(node)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name in RAISING
        for node in ast.walk(function)
    }
    found = set()
    for call in ast.walk(tree):
        if not isinstance(call, ast.Call):
            continue
        called = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if called not in RAISING or id(call) in forwarded:
            continue
        rule = call.args[0]
        for choice in (rule.body, rule.orelse) if isinstance(rule, ast.IfExp) else (rule,):
            assert isinstance(choice, ast.Constant), f"{file}:{call.lineno}: write the rule's name out"
            found.add(choice.value)
    return found


def test_the_code_raises_exactly_the_rules_of_the_table():
    files = [*(ROOT / "verify" / "simulator").rglob("*.py"), *(ROOT / "verify" / "timing").rglob("*.py")]
    raised = set().union(*(names_in(file.read_text(), str(file)) for file in files))
    assert raised - RULES.keys() == set(), "raised, but not in verify/simulator/legality/rules"
    assert RULES.keys() - raised == set(), "in the table, but raised nowhere"


def test_a_name_stands_in_the_table_once():
    names = [rule.name for section in SECTIONS.values() for rule in section]
    assert len(names) == len(set(names))


def test_a_rule_says_what_why_and_how_to_fix_it():
    for rule in RULES.values():
        assert rule.name.isidentifier() and rule.name.islower()
        for text in (rule.what, rule.why, rule.fix):
            assert len(text) > 10 and text.endswith("."), rule.name
        assert rule.source and not rule.source.endswith("."), rule.name


def test_every_rule_has_an_offender_in_the_tests():
    tests = "".join(file.read_text() for file in (ROOT / "tests" / "verify").rglob("test_*.py"))
    assert [name for name in RULES if f'"{name}"' not in tests] == []


# -- offenders and innocent neighbours ----------------------------------------------------------------------------


def filled(shape, buffer=None, dtype=None):
    """A tile of ones."""
    tile = nl.ndarray(shape, dtype=dtype or nl.float32, buffer=buffer or nl.sbuf)
    nisa.memset(tile, 1)
    return tile


def copied(source):
    """A contiguous SBUF copy of a view."""
    copy = nl.ndarray(source.shape, dtype=source.dtype, buffer=nl.sbuf)
    nisa.tensor_copy(copy, source)
    return copy


def summed(first, second, into=None, **options):
    """first + second, in a tile of SBUF or of another memory."""
    dst = like(first, buffer=into)
    nisa.tensor_tensor(dst, first, second, op=nl.add, **options)
    return dst


def on(engine, into=None):
    """An addition on an engine."""
    return lambda a: summed(a, a, into, engine=engine)


def pattern(steps, offset=0):
    """A copy of what an access pattern covers."""
    return lambda a: copied(a.ap(steps, offset=offset))


def run_time_slice(slice_of):
    """A slice of a tile that starts or ends at a run-time scalar (0)."""

    def build(a):
        start = nl.ndarray((1, 1), dtype=nl.int32, buffer=nl.sbuf)
        nisa.memset(start, 0)
        return copied(slice_of(a, nisa.scalar_load(start)))

    return build


def retiled(tile_shape):
    """Tiles of two rows of tiles that lie side by side on chip, seen as other tiles."""

    def build(a):
        grid = nl.alloc_tiles(tile_shape=(4, 8), element_shape=(8, 8), buffer=nl.sbuf, dtype=nl.float32)
        nl.tiles(grid, tile_shape=tile_shape)
        return a

    return build


def kept_until_the_end(count, columns, buffer=None):
    """`count` tiles that all live at once, summed up at last. All partitions: smaller tiles share a place."""

    def build(a):
        tiles = [filled((128, columns), buffer) for _ in range(count)]
        total = filled((128, columns))
        for tile in tiles:
            nisa.tensor_tensor(total, total, tile, op=nl.add)
        return total

    return build


A = floats(4, 8)
PAIRS = [
    # rule, offender, innocent neighbour
    ("tile_shape", lambda a: filled((4,)), lambda a: filled((4, 1))),
    ("tile_shape", lambda a: filled((4, 0)), lambda a: filled((1,))),  # (1,) is a register tile
    ("partition_limit", lambda a: filled((129, 1)), lambda a: filled((128, 1))),
    ("start_partition", lambda a: copied(filled((64, 1))[16:48]), lambda a: copied(filled((64, 1))[32:64])),
    ("start_partition", lambda a: copied(filled((128, 1))[32:96]), lambda a: copied(filled((128, 1))[64:128])),
    ("buffer", lambda a: filled((4, 8), "sbuf"), lambda a: filled((4, 8), nl.sbuf)),
    ("sbuf_overflow", kept_until_the_end(7, 8192), kept_until_the_end(5, 8192)),
    ("psum_overflow", kept_until_the_end(9, 512, nl.psum), kept_until_the_end(8, 512, nl.psum)),
    ("operand_bounds", pattern([[8, 4], [1, 9]]), pattern([[8, 4], [1, 8]])),
    ("operand_bounds", pattern([[8, 4], [-1, 8]], offset=6), pattern([[8, 4], [-1, 8]], offset=7)),
    ("operand_shapes", lambda a: summed(a, filled((4, 7))), lambda a: summed(a, filled((4, 2, 4)))),
    ("two_psum_inputs", lambda a: summed(in_psum(a), in_psum(a)), lambda a: summed(in_psum(a), a)),
    ("gpsimd_psum", on(nisa.engine.gpsimd, into=nl.psum), on(nisa.engine.vector, into=nl.psum)),
    ("engine", on(nisa.engine.tensor), on(nisa.engine.gpsimd)),
    ("enum_value", on("vector"), on(nisa.engine.vector)),
    ("tensor_operator", lambda a: a + a, lambda a: nl.add(a, a)),
    ("index_bounds", lambda a: copied(a[:, 4:9]), lambda a: copied(a[:, 4:8])),
    ("dynamic_slice", run_time_slice(lambda a, i: a[:, i:4]), run_time_slice(lambda a, i: a[:, nl.ds(i, 4)])),
    ("grid_retile", retiled((2, 8)), retiled((4, 8))),
]


@pytest.mark.parametrize(("rule", "offender", "innocent"), PAIRS, ids=[f"{i}-{p[0]}" for i, p in enumerate(PAIRS)])
def test_the_offender_is_refused_and_its_neighbour_is_not(rule, offender, innocent):
    assert refused(offender, A) == rule
    run(innocent, A)


def test_a_parameter_that_the_instruction_does_not_have_is_refused():
    trace, _ = record(kernel_of(lambda a: nl.add(a, a)), (TensorType((4, 8), "float32"),))
    legality.check(trace)
    program = trace.programs[0]
    for at, instr in enumerate(program.body):
        if isinstance(instr, Instr) and "data1" in instr.operands:
            program.body[at] = dataclasses.replace(instr, operands={**instr.operands, "data9": instr.operands["data1"]})
    with pytest.raises(LegalityError, match="data9") as caught:
        legality.check(trace)
    assert caught.value.rule == "operand_name"


def test_a_kernel_that_does_not_end_in_time_is_stopped():
    def build(a):
        tile = filled((4, 8))
        nl.fori_loop(0, 10, lambda i: nisa.memset(tile, 2.0))
        return tile

    trace, _ = record(kernel_of(build), (TensorType((4, 8), "float32"),))
    assert (execute(trace, [A], steps=100).outputs[0] == 2).all()
    with pytest.raises(LegalityError, match="budget") as caught:
        execute(trace, [A], steps=8)
    assert caught.value.rule == "step_budget"


def test_a_kernel_that_records_too_much_is_stopped():
    recorder = Recorder("trn2", "2.33", 1, max_nodes=3)
    with recording(recorder):
        tile = filled((4, 8))
        nisa.memset(tile, 2.0)
        nisa.memset(tile, 3.0)
        with pytest.raises(LegalityError, match="3 instructions") as caught:
            nisa.memset(tile, 4.0)
    assert caught.value.rule == "instruction_budget"
    assert len(list(walk(recorder.body))) == 3
