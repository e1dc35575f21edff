"""Evidence of accepted kernels: what it holds, what makes it stale, what recheck says."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from nkismith.agent import cli
from nkismith.agent.judge import NotIsolated, Verifier
from nkismith.kernels import registry
from nkismith.kernels import spec as specs
from nkismith.verify import check, evidence, meaning
from nkismith.verify.mutation import mutate
from nkismith.verify.simulator import hardware
from nkismith.verify.simulator.instructions import TABLE
from nkismith.verify.timing.cost import COSTS

HERE = Path(__file__).parent
SOURCE = (HERE / "honest" / "in_place_arithmetic.py").read_text()
USED = ("dma_copy", "scalar_tensor_tensor")


@pytest.fixture(scope="module")
def spec():
    return specs.load(HERE / "ops" / "scale_add")


@pytest.fixture(scope="module")
def verdict(spec):
    found = check(SOURCE, spec)
    assert found.accepted, found.message
    return found


@pytest.fixture
def stored(spec, verdict, tmp_path):
    """The kernel accepted into a folder of its own; returns how to read it back."""
    kept = evidence.evidence(verdict.to_dict(), provenance={"provider": "file"})
    registry.accept(SOURCE, spec, kept, tmp_path)

    def read():
        (kernel,) = registry.of(spec, tmp_path)
        return kernel

    return read


@pytest.fixture
def edited(monkeypatch):
    """Change the definition of an instruction as a later version might, for one test."""
    meaning._meaning.cache_clear()

    def change(name, **parts):
        meaning._meaning.cache_clear()
        monkeypatch.setitem(TABLE, name, replace(TABLE[name], **parts))

    yield change
    meaning._meaning.cache_clear()


# -- what it holds ------------------------------------------------------------------------------------------------


def test_evidence_holds_what_was_verified_and_tells_the_seeds(verdict):
    kept = json.loads(json.dumps(evidence.evidence(verdict.to_dict(), provenance={"provider": "file", "run": "r1"})))
    assert (kept["target"], kept["lnc"], kept["sdk"]) == ("trn2", 1, "2.33")
    assert kept["isolation"] == verdict.isolation and kept["provenance"] == {"provider": "file", "run": "r1"}
    assert set(kept["meanings"]) == {*verdict.instructions, "shared"} and len(kept["timing"]) == 64
    assert [c["seed"] for c in kept["cases"]] == [c.seed for c in verdict.cases]
    assert all(set(c["errors"]) == {"z"} and c["errors"]["z"]["of_allowed"] <= 1 for c in kept["cases"])
    assert {c["stage"] for c in kept["cases"]} == {"compare", "generalise", "profile"}
    assert kept["profile"]["label"] == "modelled" and kept["profile"]["latency_us"] > 0
    worst = max(c["errors"]["z"]["of_allowed"] for c in kept["cases"])
    assert kept["max_ratio"] == pytest.approx(worst, rel=0.01) and kept["max_ratio"] <= 1
    assert kept["mutation"] is None


def test_a_case_can_be_repeated_from_its_seed(spec, verdict):
    from nkismith.verify.cases import Trial, draw

    one = verdict.cases[0]
    case = next(c for c in spec.cases("smoke") if str(c) == one.case)
    first, again = (draw(spec, Trial(case, one.family, one.seed)) for _ in range(2))
    assert all((first[name] == again[name]).all() for name in first)


def test_weak_isolation_counts_only_when_somebody_says_so(spec, verdict, tmp_path):
    weak = {**verdict.to_dict(), "strong_isolation": False, "isolation": "weak"}
    with pytest.raises(NotIsolated, match="--allow-weak-isolation"):
        Verifier().accept(SOURCE, spec, {"verdict": weak, "allow_weak_isolation": False}, tmp_path)
    assert registry.of(spec, tmp_path) == []
    Verifier().accept(SOURCE, spec, {"verdict": weak, "allow_weak_isolation": True}, tmp_path)
    (kernel,) = registry.of(spec, tmp_path)
    assert kernel.evidence["isolation"] == "weak" and kernel.evidence["provenance"]["allow_weak_isolation"]


# -- what the hashes are of ---------------------------------------------------------------------------------------


def test_cost_and_wording_do_not_touch_a_meaning(edited):
    before = meaning.instructions(USED)
    edited("dma_copy", doc="Other words.", cost="twice as much", limits=("said in another way",))
    assert meaning.instructions(USED) == before


@pytest.mark.parametrize("part", ["run", "check", "taint", "accumulates"])
def test_another_meaning_touches_that_instruction_alone(part, edited):
    before = meaning.instructions(USED)
    other = "rows" if part == "taint" else getattr(TABLE["nc_matmul"], part)
    edited("scalar_tensor_tensor", **{part: other})
    after = meaning.instructions(USED)
    assert {name for name in before if before[name] != after[name]} == {"scalar_tensor_tensor"}


def test_a_legal_operand_more_touches_the_meaning(edited):
    before = meaning.instructions(USED)
    params = TABLE["dma_copy"].params
    edited("dma_copy", params={**params, "src": replace(params["src"], spaces=("sbuf",))})
    assert meaning.instructions(USED)["dma_copy"] != before["dma_copy"]


@pytest.mark.parametrize(("part", "value", "same"), [("reason", "other words", True), ("value", 41, False)])
def test_of_an_estimate_the_numbers_count_and_the_words_do_not(part, value, same):
    before, meanings = meaning.timing(USED), meaning.instructions(USED)
    estimate, old = hardware.SEMAPHORE_NS, getattr(hardware.SEMAPHORE_NS, part)
    try:
        object.__setattr__(estimate, part, value)  # the one object that everything refers to
        assert (meaning.timing(USED) == before) is same and meaning.instructions(USED) == meanings
    finally:
        object.__setattr__(estimate, part, old)


def test_a_cost_touches_the_timing_of_what_uses_it_and_no_meaning(monkeypatch):
    before, meanings = meaning.timing(USED), meaning.instructions(USED)
    monkeypatch.setitem(COSTS, "nc_matmul", COSTS["dma_copy"])
    assert meaning.timing(USED) == before
    monkeypatch.setitem(COSTS, "scalar_tensor_tensor", COSTS["dma_copy"])
    assert meaning.timing(USED) != before and meaning.instructions(USED) == meanings


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ("def f(x):\n  'Says.'\n  return x + 1", "def f(x):\n  'Says more.'\n  return x + 1  # why", True),
        (
            "raise site.refuse('rule', f'{x} is wrong', 'do this')",
            "raise site.refuse('rule', 'wrong', 'or that')",
            True,
        ),
        ("raise site.refuse('rule', 'wrong')", "raise site.refuse('other_rule', 'wrong')", False),
        ("return x + 1", "return x - 1", False),
        ("return x + 1", "return x + 1.0", False),
        ("def f(x: int) -> int:\n  return x", "def f(x):\n  return x", True),
        ("if a < b: c()", "if a <= b: c()", False),
    ],
)
def test_words_for_people_are_no_part_of_a_hash(first, second, same):
    import ast

    one, two = (list(meaning._words(ast.parse(f"def g(site, x):\n {line}".replace("\n", "\n ")))) for line in
                (first, second))  # fmt: skip
    assert (one == two) is same


def test_a_hash_is_the_same_in_another_process(tmp_path):
    code = f"from nkismith.verify import meaning; print(meaning.instructions({USED}), meaning.timing({USED}))"
    environment = {**os.environ, "PYTHONHASHSEED": "12345"}
    run = subprocess.run([sys.executable, "-c", code], env=environment, cwd=tmp_path, capture_output=True, text=True)
    assert run.stdout.strip() == f"{meaning.instructions(USED)} {meaning.timing(USED)}"


def test_no_hash_knows_where_the_project_lies(monkeypatch):
    said = []
    monkeypatch.setattr(meaning._Walk, "say", lambda walk, *words: said.extend(map(str, words)))
    for name in TABLE:
        meaning._meaning.__wrapped__(name)
    meaning._shared.__wrapped__()
    meaning.timing(TABLE)
    root = str(Path(meaning.__file__).parents[1])
    assert len(said) > 10_000 and not [word for word in said if root in word]


# -- recheck ------------------------------------------------------------------------------------------------------


def test_a_kernel_that_nothing_touched_is_fresh(stored, spec):
    found = evidence.recheck(stored(), spec)
    assert found.status == "fresh" and found.ok and "no mutants made" in found.mutation


def test_a_profile_of_another_timing_model_is_refreshed(stored, spec):
    kernel = stored()
    profile = {**kernel.evidence["profile"], "latency_us": 1.0}
    registry.amend(kernel, {"timing": "of an older model", "profile": profile})
    found = evidence.recheck(stored(), spec)
    assert found.status == "profile stale" and found.ok and "1.0 to" in found.detail
    again = evidence.recheck(stored(), spec)
    assert again.status == "fresh" and stored().evidence["accepted_at"] == kernel.evidence["accepted_at"]


def test_an_edited_kernel_is_stale_and_refused_by_name(stored, spec, tmp_path):
    path = stored().path
    path.write_text(SOURCE + "# one word\n")
    found = evidence.recheck(stored(), spec)
    assert found.status == "stale" and not found.ok and str(path) in found.detail
    with pytest.raises(registry.StaleKernel, match="changed after"):
        registry.find(spec.folder, target="trn2", dtype=None, lnc=1, root=tmp_path)


def test_another_meaning_makes_a_verdict_stale_by_name(stored, spec):
    kernel = stored()
    registry.amend(kernel, {"meanings": {**kernel.evidence["meanings"], "scalar_tensor_tensor": "of an older version"}})
    found = evidence.recheck(stored(), spec)
    assert found.status == "stale" and found.detail == "the meaning of scalar_tensor_tensor changed since"


def test_a_kernel_that_no_longer_passes_is_wrong(spec, verdict, tmp_path):
    kept = evidence.evidence(verdict.to_dict(), provenance={})
    assert "2.0" in SOURCE
    registry.accept(SOURCE.replace("2.0", "3.0"), spec, kept, tmp_path)
    (kernel,) = registry.of(spec, tmp_path)
    found = evidence.recheck(kernel, spec)
    assert found.status == "wrong" and not found.ok and "mismatch" in found.detail


def test_a_score_counts_for_the_kernel_it_was_made_with(stored, spec):
    score = mutate(SOURCE, spec, limits=(4, 0), workers=1)
    registry.amend(stored(), {"mutation": score.to_dict()})
    assert evidence.recheck(stored(), spec).mutation == "100.0 % of 4 mutants, stored"
    registry.amend(stored(), {"mutation": {**score.to_dict(), "subject": "another"}})
    assert "another kernel" in evidence.recheck(stored(), spec).mutation


def test_the_command_answers_for_every_kernel(stored, spec, tmp_path, capsys):
    assert cli.run(["recheck", "--spec", str(spec.folder), "--root", str(tmp_path), "--json"]) == 0
    (answer,) = json.loads(capsys.readouterr().out)
    assert answer["op"] == "scale_add" and answer["status"] == "fresh"
    stored().path.write_text("edited\n")
    assert cli.run(["recheck", "--spec", str(spec.folder), "--root", str(tmp_path)]) == 1
    assert "changed after" in capsys.readouterr().out
