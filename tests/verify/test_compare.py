import ml_dtypes
import numpy as np
import pytest

from nkismith.kernels import spec as specs
from nkismith.kernels.schema import Tolerance
from nkismith.kernels.spec import Case
from nkismith.verify import cases, reference
from nkismith.verify.cases import Trial
from nkismith.verify.compare import Comparison, compare

from . import own_specs
from .kernels_by_hand import BY_HAND


class Run:
    """One trial with the arrays an honest kernel leaves, to be spoilt."""

    def __init__(self, op: str, dims: dict[str, int], dtype: str, control=None, family: str = "normal", seed: int = 1):
        self.spec = specs.load(op)
        self.bound = self.spec.bind(Case(dims, dtype, control))
        self.inputs = cases.draw(self.spec, Trial(self.bound.case, family, seed))
        self.expected = reference.expected(self.spec, self.bound, self.inputs)
        self.got = BY_HAND[op](**self.inputs)

    def judge(self, **changed: np.ndarray) -> Comparison:
        results = compare(self.spec, self.bound, self.expected, self.inputs, self.got | changed)
        return next((c for c in results if not c.ok), results[0])


ROPE = {"S": 260, "H": 2, "D": 64}
RING = {"N": 4, "H": 2, "D": 16, "T": 30}
ATTENTION = {"S": 60, "L": 131, "H": 2, "D": 32, "N": 4, "T": 45, "P": 3}
PAST = {"slots": [2, 0, 3], "n_past": [2]}


@pytest.mark.parametrize("op", list(BY_HAND))
def test_honest_kernels_pass_every_family_in_every_dtype(op):
    spec = specs.load(op)
    for seed in (11, 12):
        for trial in cases.plan(spec, seed=seed):
            bound, inputs = spec.bind(trial.case), cases.draw(spec, trial)
            expected = reference.expected(spec, bound, inputs, seed=trial.seed)
            for result in compare(spec, bound, expected, inputs, BY_HAND[op](**inputs)):
                assert result.ok, (trial, result.message)
                assert result.ratio < 0.75, (trial, result)  # room for what hardware adds


def test_reports_the_worst_element_with_all_a_reader_needs():
    run = Run("rope_3d", ROPE, "bfloat16")
    y = run.got["y"].copy()
    y[17, 1, 5] += 1
    y[18, 0, 3] += 0.5
    result = run.judge(y=y)
    assert (result.problem, result.worst_at, result.beyond, result.elements) == ("close", (17, 1, 5), 2, 260 * 2 * 64)
    assert result.got == float(y[17, 1, 5]) and abs(result.want - float(run.got["y"][17, 1, 5])) < 0.02
    assert result.ratio > 10 and 0 < result.allowed < 0.2
    assert 'output "y" differs from the reference at [17, 1, 5]: got ' in result.message
    assert "for bfloat16 (2 of 33,280 elements out)" in result.message


def test_one_unit_in_the_last_place_passes_and_a_percent_does_not():
    run = Run("rope_3d", ROPE, "bfloat16")
    bits = run.got["y"].view(np.uint16)
    assert run.judge(y=(bits + 1).view(ml_dtypes.bfloat16)).ok
    scaled = (run.got["y"].astype("f4") * 1.03).astype(ml_dtypes.bfloat16)
    assert run.judge(y=scaled).problem in ("row", "close")


def test_a_small_factor_over_a_whole_row_is_seen_though_each_element_is_allowed():
    run = Run("rolling_attention", {**ATTENTION, "D": 128}, "bfloat16", PAST)
    y = run.got["y"].copy()
    y[3] = (y[3].astype("f4") * 1.02).astype(y.dtype)
    result = run.judge(y=y)
    assert result.problem == "row" and result.worst_at[0] == 3 and "on average over a row" in result.message


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda y: None, "missing"),
        (lambda y: y[:-1], "shape"),
        (lambda y: y[None], "shape"),
        (lambda y: y.astype("f4"), "dtype"),
    ],
)
def test_form_is_judged_before_values_and_nothing_is_converted(spoil, problem):
    run = Run("rope_3d", ROPE, "bfloat16")
    assert run.judge(y=spoil(run.got["y"])).problem == problem


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_single_element_that_is_not_finite_is_wrong(value):
    run = Run("rope_3d", ROPE, "float32")
    y = run.got["y"].copy()
    y[0, 0, 0] = value
    assert run.judge(y=y).problem == "finite"


def test_infinities_of_the_reference_must_be_there_with_their_sign(tmp_path):
    spec = own_specs.write(
        tmp_path, "twice", "{x: {shape: [S, C], dtype: float32, values: {infinities: true}}}",
        "{y: {shape: [S, C], dtype: float32}}", "(2 * x,)",
    )  # fmt: skip
    bound = spec.bind(Case({"S": 30, "C": 40}))
    inputs = cases.draw(spec, Trial(bound.case, "infinities", 2))
    expected = reference.expected(spec, bound, inputs)
    assert np.isinf(expected.values["y"]).any()

    def problem(y):
        return compare(spec, bound, expected, inputs, {"y": y})[0].problem

    assert problem(2 * inputs["x"]) == ""
    assert problem(np.where(np.isinf(inputs["x"]), -2, 2).astype("f4") * inputs["x"]) == "finite"
    assert problem(np.nan_to_num(2 * inputs["x"])) == "finite"


def test_in_place_inputs_are_compared_whole_and_bit_for_bit():
    run = Run("kv_cache_update", RING, "bfloat16", {"slot": [2]})
    assert run.judge().ok
    ring = run.got["k_ring"].copy()
    ring[1, 0, 3, 7] = np.nextafter(ring[1, 0, 3, 7], ml_dtypes.bfloat16(100))
    result = run.judge(k_ring=ring)
    assert (result.output, result.problem, result.worst_at, result.beyond) == ("k_ring", "untouched", (1, 0, 3, 7), 1)
    assert "must leave it as it is" in result.message
    assert run.judge(v_ring=run.inputs["v_ring"]).problem == "exact"


def test_the_slot_one_off_is_named():
    run = Run("kv_cache_update", RING, "float32", {"slot": [2]})
    shifted = BY_HAND["kv_cache_update"](**{**run.inputs, "slot": np.array([1], np.int32)})
    result = run.judge(**shifted)
    assert result.problem == "untouched" and "All are at index 1 of axis 0 (0..3)" in result.message


def _spoilt_rope(run: Run, cos, sin):
    return BY_HAND["rope_3d"](run.inputs["x"], cos, sin)["y"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_the_message_says_what_wrong_elements_look_like_and_where_they_are(dtype):
    run = Run("rope_3d", ROPE, dtype)
    cos, sin, y = run.inputs["cos"], run.inputs["sin"], run.got["y"]
    last = y.copy()
    last[256:] = 0
    assert "in the last tile of 128 along axis 0 (256..259)" in run.judge(y=last).hint
    assert "all zero" in run.judge(y=last).hint
    assert "Their sign is flipped" in run.judge(y=-y).hint and "Every element" not in run.judge(y=last).hint
    half = (y.astype("f4") / 2).astype(y.dtype)
    assert "They are 0.5 times what they should be" in run.judge(y=half).hint
    column = y.copy()
    column[..., 63] += 1
    assert "at the last index 63 of axis 2" in run.judge(y=column).hint and "off by 1" in run.judge(y=column).hint
    assert "value of the previous index of axis 0" in run.judge(y=np.roll(y, 1, axis=0)).hint
    odd = y.copy()
    odd[..., 1::2] = run.inputs["x"][..., 1::2]
    assert "at odd indices of axis 2" in run.judge(y=odd).hint
    swapped = y.reshape(260, 2, 32, 2)[..., ::-1].reshape(y.shape)
    assert "halves of each pair" in run.judge(y=swapped).hint
    unwritten = y.copy()
    unwritten[128:] = np.nan
    assert "They are NaN" in run.judge(y=unwritten).hint and "128..259 of axis 0" in run.judge(y=unwritten).hint
    assert not run.judge(y=_spoilt_rope(run, cos, -sin)).ok


def _attention(run: Run, **changed) -> np.ndarray:
    return BY_HAND["rolling_attention"](**(run.inputs | changed))["y"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_mistakes_of_attention_are_seen(dtype):
    run = Run("rolling_attention", ATTENTION, dtype, PAST)
    x = run.inputs
    assert run.judge().ok
    wrong = {
        "a last tile of keys skipped": _attention(run, k_own=x["k_own"][:128], v_own=x["v_own"][:128]),
        "one past block too few": _attention(run, n_past=x["n_past"] - 1),
        "slot off by one": _attention(run, slots=(x["slots"] + 1) % 4),
        "keys not rotated": _attention(run, cos=np.ones_like(x["cos"]), sin=np.zeros_like(x["sin"])),
        "rotated the other way": _attention(run, sin=-x["sin"]),
        "scale missing": _attention(run, q=(x["q"].astype("f4") * 32**0.5).astype(x["q"].dtype)),
        "values of the next head": _attention(run, v_own=np.roll(x["v_own"], 1, axis=1)),
    }
    for what, y in wrong.items():
        assert not run.judge(y=y).ok, what


def test_a_maximum_that_is_not_subtracted_is_seen():
    run = Run("rolling_attention", ATTENTION, "float32", PAST, family="large_logits")
    q, k, v = (run.inputs[n] for n in ("q", "k_own", "v_own"))
    with np.errstate(over="ignore", invalid="ignore"):
        p = np.exp(np.einsum("shd,lhd->hsl", q, k) / np.float32(32**0.5))
        y = np.einsum("hsl,lhd->shd", p, v) / p.sum(-1).T[..., None]
    assert run.judge(y=y).problem == "finite"


def test_lower_precision_than_the_dtype_is_seen_in_float32():
    run = Run("rope_3d", ROPE, "float32")
    assert run.judge(y=run.got["y"].astype(ml_dtypes.bfloat16).astype("f4")).problem == "close"
    run = Run("rolling_attention", ATTENTION, "float32", PAST)
    lower = _attention(run, k_own=run.inputs["k_own"].astype(ml_dtypes.bfloat16).astype("f4"))
    assert not run.judge(y=lower).ok


@pytest.mark.parametrize("factor", [1e-6, 1.0, 1e6])
def test_a_verdict_does_not_depend_on_scale(factor):
    run = Run("rope_3d", ROPE, "float32")
    run.inputs["x"] = run.inputs["x"] * np.float32(factor)
    run.expected = reference.expected(run.spec, run.bound, run.inputs)
    y = BY_HAND["rope_3d"](**run.inputs)["y"]
    assert run.judge(y=y).ok
    y[3, 1, 7] *= 1.001
    assert run.judge(y=y).worst_at == (3, 1, 7)


def test_exact_and_ulp_count_bits(tmp_path):
    for match, steps, problem in (("exact", 1, "exact"), ("{ulp: 1}", 1, ""), ("{ulp: 1}", 2, "ulp")):
        spec = own_specs.write(
            tmp_path / f"{match[1:4]}{steps}", "half", "{x: {shape: [S, C], dtype: bfloat16}}",
            f"{{y: {{shape: [S, C], dtype: bfloat16, match: {match}}}}}", "(x / 2,)",
        )  # fmt: skip
        bound = spec.bind(Case({"S": 30, "C": 40}))
        inputs = cases.draw(spec, Trial(bound.case, "normal", 2))
        y = (inputs["x"].astype("f4") / 2).astype(ml_dtypes.bfloat16)
        expected = reference.expected(spec, bound, inputs)
        assert compare(spec, bound, expected, inputs, {"y": y})[0].ok
        y.view(np.uint16)[4, 7] += steps
        result = compare(spec, bound, expected, inputs, {"y": y})[0]
        assert result.problem == problem and (not problem or result.worst_at == (4, 7))


def test_ulp_counts_across_zero(tmp_path):
    spec = own_specs.write(
        tmp_path, "same", "{x: {shape: [S, C], dtype: float32}}",
        "{y: {shape: [S, C], dtype: float32, match: {ulp: 2}}}", "(x,)",
    )  # fmt: skip
    bound = spec.bind(Case({"S": 1, "C": 2}))
    tiny = np.float32(1e-45)  # the smallest subnormal, one step from zero
    inputs = {"x": np.array([[tiny, 0.0]], "f4")}
    expected = reference.expected(spec, bound, inputs)
    for y, problem in (([[-tiny, -0.0]], ""), ([[-2 * tiny, 0.0]], "ulp")):
        assert compare(spec, bound, expected, inputs, {"y": np.array(y, "f4")})[0].problem == problem


def test_a_valid_choice_is_any_index_that_ties(tmp_path):
    spec = own_specs.write(
        tmp_path, "best", "{x: {shape: [S, C], dtype: float32}}",
        "{y: {shape: [S], dtype: int32, match: valid_choice}}", "(x.argmax(-1),)",
    )  # fmt: skip
    bound = spec.bind(Case({"S": 3, "C": 4}))
    inputs = {"x": np.array([[1, 5, 5, 2], [7, 0, 0, 0], [1, 1, 1, 1]], "f4")}
    expected = reference.expected(spec, bound, inputs)
    for y, problem in (([1, 0, 0], ""), ([2, 0, 3], ""), ([3, 0, 0], "valid_choice"), ([1, 4, 0], "valid_choice")):
        result = compare(spec, bound, expected, inputs, {"y": np.array(y, "i4")})[0]
        assert result.problem == problem, y


def test_a_choice_of_several_must_not_repeat_one(tmp_path):
    spec = own_specs.write(
        tmp_path, "best_two", "{x: {shape: [S, C], dtype: float32}}",
        "{y: {shape: [S, 2], dtype: int32, match: {valid_choice: x}}}", "(x.topk(2).indices,)",
    )  # fmt: skip
    bound = spec.bind(Case({"S": 1, "C": 4}))
    inputs = {"x": np.array([[1, 5, 5, 2]], "f4")}
    expected = reference.expected(spec, bound, inputs)
    for y, problem in (([[1, 2]], ""), ([[2, 1]], ""), ([[1, 1]], "valid_choice")):
        assert compare(spec, bound, expected, inputs, {"y": np.array(y, "i4")})[0].problem == problem


def test_a_tolerance_override_widens_the_bound(tmp_path):
    run = Run("rope_3d", ROPE, "float32")
    y = run.got["y"] * np.float32(1 + 2e-6)
    assert not run.judge(y=y).ok
    run.spec = run.spec.model_copy(update={"tolerance": Tolerance(factor=20, reason="a test of the override")})
    assert run.judge(y=y).ok
