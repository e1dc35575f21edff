"""Dishonest drafts must be refused with the right code; honest ones of unusual style must be accepted.

Each file of attacks/ and honest/ says in its header for which op of ops/ it is and, if it is an attack, which reason
codes may refuse it. The whole corpus is an acceptance test; what lint alone decides, and a few others, run always.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import pytest

from nkismith.kernels import spec
from nkismith.verify import check
from nkismith.verify.lint import lint, reason
from nkismith.verify.reasons import Reason

HERE = Path(__file__).parent
LINT_REASONS = {
    *(Reason.PARSE, Reason.FORBIDDEN_IMPORT, Reason.FORBIDDEN_ACCESS, Reason.ENVIRONMENT_DEPENDENT),
    *(Reason.PYTHON_SUBSET, Reason.BULK_LITERALS, Reason.NO_ENTRY, Reason.WRONG_SIGNATURE),
}
ALWAYS = {  # beside those that lint refuses: one or two of each later stage, a second each
    *("crash_interpreter", "order_of_addresses", "memory_bomb", "too_many_partitions", "sum_in_bfloat16"),
    *("nothing_written", "index_from_nowhere", "slot_out_of_range", "returns_its_input", "wider_output"),
    *("broadcast_output", "not_a_number", "only_listed_shapes", "every_slot", "frame_behind_dummy"),
    *("transposed_for_free", "wrong_once_in_a_million", "state_on_a_generators_stack"),
    *("softmax_in_chunks", "matmul_odd_tiles", "write_through_sbuf", "classes_and_plans"),
}


@dataclass(frozen=True)
class Draft:
    path: Path
    op: str
    refused: frozenset[Reason]  # empty for honest ones
    lint_alone: bool  # lint must find it; else only a later stage can
    open: str  # why it is not refused yet

    @property
    def spec(self):
        return spec.load(HERE / "ops" / self.op)


def drafts(folder):
    for path in sorted((HERE / folder).glob("*.py")):
        header = dict(re.findall(r"(?m)^# (op|refused|by|open|what): (.+)$", path.read_text()))
        codes = frozenset(Reason(code) for code in header.get("refused", "").split(",") if code)
        assert header["what"]
        lint_alone = bool(codes & LINT_REASONS) and "by" not in header
        yield Draft(path, header["op"], codes, lint_alone, header.get("open", ""))


def parameters(found, always=lambda draft: draft.path.stem in ALWAYS):
    """Those that run always, and the rest under the mark `acceptance`."""
    for draft in found:
        marks = [] if always(draft) else [pytest.mark.acceptance]
        marks += [pytest.mark.xfail(reason=draft.open)] if draft.open else []
        yield pytest.param(draft, id=draft.path.stem, marks=marks)


ATTACKS = list(drafts("attacks"))
HONEST = list(drafts("honest"))


def test_the_corpora_are_as_large_as_promised():
    assert len(ATTACKS) >= 40
    assert len(HONEST) >= 15
    assert all(draft.refused for draft in ATTACKS)
    assert not any(draft.refused for draft in HONEST)


@pytest.mark.parametrize("draft", [*parameters(ATTACKS)])
def test_an_attack_is_refused_with_the_right_code(draft):
    verdict = check(draft.path, draft.spec)
    assert not verdict.accepted, "a dishonest draft was accepted"
    assert verdict.reason in draft.refused, f"{verdict.stage}: {verdict.message}"
    assert verdict.message


@pytest.mark.parametrize("draft", [*parameters(HONEST)])
def test_an_honest_draft_is_accepted(draft):
    verdict = check(draft.path, draft.spec)
    assert verdict.accepted, f"{verdict.stage} {verdict.reason} line {verdict.line}: {verdict.message}"


@pytest.mark.parametrize("draft", [d for d in ATTACKS if d.lint_alone], ids=lambda draft: draft.path.stem)
def test_what_lint_must_refuse_it_refuses_alone(draft):
    findings = lint(draft.path.read_bytes(), entry=draft.op, params=tuple(draft.spec.inputs))
    assert {reason(finding) for finding in findings} & draft.refused


@pytest.mark.parametrize("draft", HONEST, ids=lambda draft: draft.path.stem)
def test_lint_leaves_honest_drafts_alone(draft):
    assert lint(draft.path.read_bytes(), entry=draft.op, params=tuple(draft.spec.inputs)) == ()
