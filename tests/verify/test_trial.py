"""A refusal never rests on a poor estimate of how far rounding alone moves a result."""

import numpy as np
import pytest

from nkismith.kernels import spec as specs
from nkismith.kernels.spec import Case
from nkismith.verify import reference, trial
from nkismith.verify.cases import Trial
from nkismith.verify.compare import compare

from .kernels_by_hand import BY_HAND

ATTENTION = specs.load("rolling_attention")
CASE = Case(
    {"S": 60, "L": 900, "H": 3, "D": 128, "N": 4, "T": 45, "P": 3}, "bfloat16", {"slots": [2, 0, 3], "n_past": [2]}
)
SEEDS = range(8)


@pytest.fixture(autouse=True)
def one_pattern(monkeypatch):
    """Every case counts as so costly that its spread is first measured with a single pattern."""
    monkeypatch.setattr(reference, "HEAVY", 0)
    monkeypatch.setattr(reference, "PATTERNS", ((float("inf"), 1),))


def honest(seed):
    case = trial.drawn(ATTENTION, Trial(CASE, "large_logits", seed))
    return case, BY_HAND["rolling_attention"](**case.inputs)


def test_an_honest_kernel_refused_by_a_coarse_spread_passes_under_a_fine_one():
    refused = 0
    for seed in SEEDS:
        case, got = honest(seed)
        assert case.want.coarse
        under_coarse = compare(ATTENTION, ATTENTION.bind(CASE), case.want, case.inputs, got)
        refused += not all(c.ok for c in under_coarse)
        assert all(c.ok for c in trial.judged(ATTENTION, case, got))
    assert refused, "no seed needs the fine spread, so nothing was shown"


def test_a_wrong_kernel_stays_refused_under_the_fine_spread():
    for seed in SEEDS:
        case, got = honest(seed)
        y = got["y"] + np.float32(2.0**-4) * np.abs(got["y"])  # every probability 6 % too large
        assert not all(c.ok for c in trial.judged(ATTENTION, case, {"y": y.astype(got["y"].dtype)}))


def test_what_is_far_out_is_not_measured_again(monkeypatch):
    case, got = honest(SEEDS[0])
    monkeypatch.setattr(trial, "expected", None)  # calling it would fail
    (found,) = trial.judged(ATTENTION, case, {"y": -got["y"]})
    assert not found.ok and found.ratio > trial.CLOSE_CALL
