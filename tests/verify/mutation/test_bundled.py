"""The specs of the bundled ops are strong: their verdicts kill the mutants of accepted kernels, and of plain ones."""

from pathlib import Path

import pytest

from nkismith.kernels import registry
from nkismith.kernels import spec as specs
from nkismith.verify.mutation import mutate

KERNELS = {path.stem: path.read_text() for path in Path(__file__).with_name("kernels").glob("*.py")}
ACCEPTED = {k.op: k.source for k in registry.all() if k.evidence["target"] == "trn2"}


def test_every_bundled_op_has_a_kernel_to_be_mutated():
    assert set(KERNELS) | set(ACCEPTED) == set(specs.names())


@pytest.mark.acceptance
@pytest.mark.parametrize(("op", "source"), [*KERNELS.items(), *ACCEPTED.items()])
def test_the_verdict_kills_the_mutants(op, source):
    score = mutate(source, specs.load(op))
    survivors = "\n".join(map(str, score.survivors))
    assert score.met and len(score.outcomes) >= 60 and score.untried == 0, f"{score.rate:.3f}\n{survivors}"
    assert score.seconds < 180
