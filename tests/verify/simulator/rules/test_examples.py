"""Every legality rule has a kernel that it refuses and an innocent neighbour: those that its page shows."""

import warnings

import numpy as np
import pytest

from nkismith.verify.lint import lint
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.legality.rules import RULES
from nkismith.verify.simulator.legality.rules.rule import ACCEPTED, REFUSED
from nkismith.verify.simulator.simulate import NkiWarning
from nkismith.verify.timing import profile_trace
from tests.verify.simulator.rules.examples import build, inputs, installed, live, recorded, replayed

EXAMPLES = [
    pytest.param(name, example, id=f"{name}-{at}" if at else name)
    for name, rule in RULES.items()
    for at, example in enumerate(rule.examples)
]
STEPS = 1000  # for what does not end; the default budget is for real kernels


def replay(kernel, example):
    return replayed(kernel, example, steps=STEPS)


def timed(kernel, example):
    return profile_trace(recorded(kernel, example))


# Where a rule is raised, if not both while a kernel runs live and while its trace is replayed.
RAISED_BY = {
    "step_budget": (replay,),
    "unbound_scalar": (timed,),
    "unwritten_output": (live,),  # a replay hands its caller the masks
}


def test_every_rule_that_a_kernel_can_break_has_an_example():
    assert [name for name, rule in RULES.items() if not rule.examples] == ["operand_name"]


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_the_offender_is_refused_at_its_line(rule, example):
    for run in RAISED_BY.get(rule, (live, replay)):
        with installed(example) as namespace, pytest.raises(LegalityError) as caught:
            run(build(example.version(REFUSED), namespace), example)
        error = caught.value
        assert (error.rule, error.line) == (rule, example.refused_line), error
        assert example.says in error.what
        assert error.fix


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_its_innocent_neighbour_runs_and_gives_what_the_page_says(rule, example):
    with installed(example) as namespace, warnings.catch_warnings():
        warnings.simplefilter("error", NkiWarning)
        kernel = build(example.version(ACCEPTED), namespace)
        done = replay(kernel, example)
        shown = live(kernel, example)
        for run in RAISED_BY.get(rule, ()):
            run(kernel, example)
    assert all(mask is None for mask in (*done.unwritten, *done.poisoned))
    shown = shown if isinstance(shown, tuple) else (shown,)
    wanted = eval(example.gives, {"np": np, **{name: widened(array) for name, array in inputs(example).items()}})
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for now, replayed_, want in zip(shown, done.outputs, wanted, strict=True):
        assert now.tobytes() == replayed_.tobytes()
        assert now.shape == np.shape(want)
        tolerance = 1e-5 if now.dtype.itemsize >= 4 else 1e-2
        np.testing.assert_allclose(widened(now), want, rtol=tolerance, atol=tolerance)


def widened(array):
    """Floats as float64, integers as they are."""
    return array if array.dtype.kind in "iub" else array.astype(np.float64)


def test_an_example_differs_in_a_line_or_two():
    for rule in RULES.values():
        for example in rule.examples:
            marks = [line[:1] for line in example.lines]
            assert 1 <= marks.count(REFUSED) + marks.count(ACCEPTED) <= 4, rule.name


@pytest.mark.parametrize(("rule", "example"), EXAMPLES)
def test_lint_takes_the_accepted_kernel(rule, example):
    """Two lint rules are on drafts of an op: one entry point, exactly the spec's inputs."""
    source = f"import nki\nimport nki.isa as nisa\nimport nki.language as nl\n{example.version(ACCEPTED)}"
    findings = lint(source, entry="kernel", params=tuple(inputs(example)), sdk=example.sdk)
    assert {finding.rule for finding in findings} <= {"entry", "signature"}
