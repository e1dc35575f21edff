"""The table of legality rules against the code that refuses, and the rules that no text of a kernel shows.

What a kernel does to meet each rule stands in test_examples; here is the rule that only a program from outside breaks,
and the budgets at their limits.
"""

import ast
from dataclasses import replace
from pathlib import Path

import pytest

from nkismith.verify.simulator import legality
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.execute import execute
from nkismith.verify.simulator.hardware import TRN2
from nkismith.verify.simulator.kernel import TensorType, record
from nkismith.verify.simulator.legality.rules import RULES, SECTIONS
from nkismith.verify.simulator.recorder import Recorder, recording
from nkismith.verify.simulator.trace import Instr, walk
from nkismith.verify.timing import profile_trace
from tests.verify.simulator.one import floats, kernel_of, nisa, nki, nl

ROOT = Path(__file__).parents[4]
RAISING = {"refuse", "_refuse", "LegalityError", "CallError"}
A = floats(4, 8)


def filled(shape):
    """A tile of ones."""
    tile = nl.ndarray(shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(tile, 1)
    return tile


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


def sum_with(operands):
    """The trace of a sum whose tensors were changed after it was recorded: operands(those recorded)."""
    trace, _ = record(kernel_of(lambda a: nl.add(a, a)), (TensorType((4, 8), "float32"),))
    program = trace.programs[0]
    for at, instr in enumerate(program.body):
        if isinstance(instr, Instr) and "data1" in instr.operands:
            program.body[at] = replace(instr, operands=operands(instr.operands))
    return trace


def test_the_operands_of_a_program_from_outside_are_those_of_the_instruction():
    legality.check(sum_with(dict))
    with pytest.raises(LegalityError, match="data9") as caught:
        legality.check(sum_with(lambda given: {**given, "data9": given["data1"]}))
    assert caught.value.rule == "operand_name"
    with pytest.raises(LegalityError, match="data1 is missing") as caught:
        legality.check(sum_with(lambda given: {name: one for name, one in given.items() if name != "data1"}))
    assert caught.value.rule == "operand_missing"


def test_a_number_of_a_program_from_outside_is_one():
    trace, _ = record(kernel_of(lambda a: nl.add(a, 1.0)), (TensorType((4, 8), "float32"),))
    legality.check(trace)
    (instr,) = (i for i in walk(trace.programs[0].body) if i.op == "tensor_scalar")
    instr.attrs["operand0"] = "1.0"
    with pytest.raises(LegalityError, match="operand0 is str") as caught:
        legality.check(trace)
    assert caught.value.rule == "operand_type"


@pytest.mark.parametrize("attr", ["result", "a", "b"])
def test_a_scalar_of_a_program_from_outside_is_one(attr):
    def build(a):
        nisa.scalar_load(a[0:1, 0:1]) + 1
        return a

    trace, _ = record(kernel_of(build), (TensorType((4, 8), "int32"),))
    legality.check(trace)
    (instr,) = (i for i in walk(trace.programs[0].body) if i.op == "scalar_add")
    instr.attrs[attr] = None
    with pytest.raises(LegalityError, match=f"{attr} is NoneType") as caught:
        legality.check(trace)
    assert caught.value.rule == "operand_type"


@pytest.mark.parametrize(("address", "rule"), [((0, 64), None), ((64,), "address"), ((0, 0, 64), "address")])
def test_an_address_of_a_program_from_outside_has_two_parts_on_chip(address, rule):
    trace, _ = record(kernel_of(lambda a: nl.add(a, a)), (TensorType((4, 8), "float32"),))
    buffers = [replace(b, address=address) if b.space == "sbuf" and b.name == "t1" else b for b in trace.buffers]
    moved = replace(trace, buffers=tuple(buffers))
    if rule is None:
        legality.check(moved)
        return
    with pytest.raises(LegalityError) as caught:
        legality.check(moved)
    assert caught.value.rule == rule


def test_an_instruction_that_needs_more_than_sbuf_holds_cannot_be_spilled():
    def build(columns):
        def body(a):
            nisa.memset(nl.ndarray((128, columns), dtype=nl.float32, buffer=nl.sbuf), 1.0)
            return a

        return record(kernel_of(body), (TensorType((1, 8), "float32"),))[0]

    most = TRN2.sbuf_usable_bytes // 4
    profile_trace(build(most), capacity="spill")
    with pytest.raises(LegalityError, match="at once") as caught:
        profile_trace(build(most + 1), capacity="spill")
    assert caught.value.rule == "sbuf_overflow"


def test_what_the_cores_exchange_has_one_shape():
    def exchange(width):
        def kernel(x):
            y = nl.ndarray((2, 8), dtype=x.dtype, buffer=nl.shared_hbm)
            core = nl.program_id(0)
            mine, theirs = nl.load(x[core : core + 1]), nl.ndarray((1, 8), dtype=x.dtype, buffer=nl.sbuf)
            part = slice(0, width(core))
            nisa.memset(theirs, 0.0)
            nisa.sendrecv(mine[:, part], theirs[:, part], 1 - core, 1 - core, pipe_id=0)
            nisa.dma_copy(y[core : core + 1], theirs)
            return y

        return nki.simulate(nki.jit(kernel)[2])(A[0:2])

    assert (exchange(lambda core: 8) == A[[1, 0]]).all()
    with pytest.raises(LegalityError, match="core 0 sends") as caught:
        exchange(lambda core: 8 - core)
    assert caught.value.rule == "operand_shapes"


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
