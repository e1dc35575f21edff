"""Whole campaigns on small kernels: a strong spec finds the mistakes, a weak one is found out."""

import json
from functools import partial
from pathlib import Path

import pytest

from nkismith.agent import cli
from nkismith.kernels import spec as specs
from nkismith.verify.cases import plan
from nkismith.verify.mutation import NotRight, campaign, mutate
from nkismith.verify.mutation.subject import prepare
from nkismith.verify.mutation.traces import trace_mutants
from nkismith.verify.recording import Request
from tests.verify import own_specs

VERIFY = Path(__file__).parents[1]
TWICE = """\
import nki
import nki.isa as nisa
import nki.language as nl

P = 128


@nki.jit
def twice(x):
    S, C = x.shape
    y = nl.ndarray((S, C), dtype=x.dtype, buffer=nl.shared_hbm)
    for s in range(0, S, P):
        p = min(P, S - s)
        a = nl.ndarray((p, C), dtype=x.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=a, src=x[s : s + p])
        nisa.tensor_scalar(dst=a, data=a, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)
        nisa.dma_copy(dst=y[s : s + p], src=a)
    return y
"""


def twice(folder, more="", production=""):
    inputs, outputs = "{x: {shape: [S, C], dtype: float32}}", "{y: {shape: [S, C], dtype: x.dtype}}"
    return own_specs.write(folder, "twice", inputs, outputs, "(2 * x + 1,)", more=more, production=production)


def small_trials(spec, **options):
    """The listed cases only: no drawn one is by chance as large as a production case."""
    return plan(spec, drawn=0, **options)


@pytest.fixture(scope="module")
def score():
    spec = specs.load(VERIFY / "ops" / "row_softmax")
    source = (VERIFY / "honest" / "softmax_by_dtype.py").read_text()
    return mutate(source, spec, seed=7, limits=(60, 4))


def test_a_verdict_with_good_cases_kills_the_mutants(score):
    assert score.met and score.rate == 1.0 and len(score.outcomes) >= 60 and score.untried == 0
    assert {o.killed_by for o in score.outcomes} >= {"mismatch", "unwritten_output", "nonfinite"}


def test_a_softmax_without_its_maximum_or_with_another_is_killed(score):
    """What survived before the cases had spikes."""
    told = {o.what: o for o in score.outcomes}
    for what in ("activation: without its bias", "tensor_reduce: op=minimum, not maximum"):
        assert told[what].killed_by, what


def test_only_rules_exclude_and_they_are_named(score):
    assert {o.excluded_by for o in score.outcomes if o.excluded_by} == {"commutative_swap"}


def test_no_mutant_that_is_killed_can_be_proved_equivalent():
    spec = specs.load(VERIFY / "ops" / "matmul")
    source = (VERIFY / "honest" / "matmul_in_sbuf.py").read_text()
    subject = prepare(Request(source, "matmul", "2.33", "trn2", 1), spec, seed=3)
    killed = 0
    for mutant in list(trace_mutants(list(subject.scenes.values())))[::3]:
        outcome = campaign.judge(subject, mutant)
        if outcome.killed_by in ("mismatch", "unwritten_output"):
            killed += 1
            mutated = campaign.Mutated(subject, mutant)
            assert mutated.same_values() == mutated.excluded_by() == "", mutant
    assert killed > 20


def test_the_counts_add_up(score):
    plain = json.loads(json.dumps(score.to_dict()))
    assert plain["killed"] + plain["excluded"] + plain["survived"] == plain["mutants"] == len(score.outcomes)
    assert sum(kind["made"] for kind in plain["kinds"].values()) == plain["mutants"]
    assert sum(plain["killed_by"].values()) == plain["killed"]
    assert len(plain["exclusions"]) == plain["excluded"] and len(plain["survivors"]) == plain["survived"]


def test_a_seed_gives_the_same_mutants_and_another_kernel_others(tmp_path):
    spec = twice(tmp_path)
    first, again = (mutate(TWICE, spec, seed=1, limits=(10, 0), workers=workers) for workers in (1, 2))
    assert [str(o) for o in first.outcomes] == [str(o) for o in again.outcomes]
    other = mutate(TWICE + "\n", spec, seed=1, limits=(10, 0), workers=1)
    assert first.subject == again.subject != other.subject


def test_a_kernel_that_is_wrong_has_no_mutants(tmp_path):
    with pytest.raises(NotRight, match="mismatch"):
        mutate(TWICE.replace("operand1=1.0", "operand1=2.0"), twice(tmp_path), workers=1)


LARGE_ONLY = TWICE.replace(
    "    for s in range",
    """\
    if S > 400:
        for s in range(0, S, 100):
            b = nl.ndarray((100, C), dtype=x.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=b, src=x[s : s + 100])
            nisa.tensor_scalar(dst=b, data=b, op0=nl.multiply, operand0=2.0, op1=nl.add, operand1=1.0)
            nisa.dma_copy(dst=y[s : s + 100], src=b)
        return y
    for s in range""",
)


def test_a_mistake_on_a_path_for_production_shapes_is_killed_there(tmp_path, monkeypatch):
    spec = twice(tmp_path, production="{S: 500, C: 500}")
    monkeypatch.setattr("nkismith.verify.mutation.subject.plan", small_trials)
    found = {o.line: o for o in mutate(LARGE_ONLY, spec, limits=(0, 40)).outcomes if 12 < o.line < 19}
    assert found and all(o.killed_by for o in found.values()), [str(o) for o in found.values()]
    assert any("S=500" in o.at for o in found.values())


def test_without_time_for_production_shapes_what_differs_only_there_survives(tmp_path, monkeypatch):
    spec = twice(tmp_path, production="{S: 500, C: 500}")
    monkeypatch.setattr("nkismith.verify.mutation.subject.plan", small_trials)
    monkeypatch.setattr(campaign, "LAST", 0.0)
    waiting = [o for o in mutate(LARGE_ONLY, spec, limits=(0, 40)).outcomes if o.survived]
    assert waiting and all("differs only at production shapes" in str(o) for o in waiting)


def test_a_kernel_that_is_wrong_at_production_shapes_has_no_mutants(tmp_path, monkeypatch):
    spec = twice(tmp_path, production="{S: 500, C: 500}")
    monkeypatch.setattr("nkismith.verify.mutation.subject.plan", small_trials)
    with pytest.raises(NotRight, match="at its production shapes"):
        mutate(LARGE_ONLY.replace("operand1=1.0", "operand1=2.0", 1), spec, limits=(0, 40))


@pytest.fixture
def few(monkeypatch):
    """The command makes few mutants, to be quick."""
    monkeypatch.setattr("nkismith.verify.mutation.mutate", partial(mutate, limits=(30, 0)))


def test_a_weak_spec_lets_mutants_survive_and_the_command_says_so(tmp_path, capsys, few):
    spec = twice(tmp_path, more="tolerance: {factor: 1.0e+9, reason: so wide that it accepts anything}")
    (tmp_path / "kernel.py").write_text(TWICE)
    assert cli.run(["mutate", str(tmp_path / "kernel.py"), "--spec", str(spec.folder), "--json"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert not answer["met"] and answer["rate"] < 0.98
    told = {f"line {s['line']}: {s['what']}" for s in answer["survivors"]}
    assert "line 16: tensor_scalar: op0=add, not multiply" in told


def test_the_command_prints_a_table_and_its_verdict(tmp_path, capsys, few):
    spec = twice(tmp_path)
    (tmp_path / "kernel.py").write_text(TWICE)
    assert cli.run(["mutate", str(tmp_path / "kernel.py"), "--spec", str(spec.folder)]) == 0
    shown = capsys.readouterr().out
    assert "drop an instruction" in shown and "100.0 % of" in shown and "98 % asked for: met" in shown


def test_an_op_without_a_kernel_is_wrong_use(tmp_path, capsys):
    spec = twice(tmp_path)
    assert cli.run(["mutate", "twice", "--spec", str(spec.folder)]) == 2
    assert "No accepted kernel of twice" in capsys.readouterr().err
