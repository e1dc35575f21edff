import numpy as np
import pytest

from nkismith.kernels import spec as specs
from nkismith.kernels.schema import Input, Values
from nkismith.kernels.spec import Case, SpecError
from nkismith.verify import cases
from nkismith.verify.cases import Trial
from nkismith.verify.values import draw_floats, families
from tests.verify import own_specs

OPS = ["rope_3d", "kv_cache_update", "rolling_attention"]


@pytest.mark.parametrize("op", OPS)
def test_a_plan_holds_listed_and_unlisted_shapes_and_every_family_for_every_dtype(op):
    spec = specs.load(op)
    plan = cases.plan(spec, seed=7)
    listed = [c.dims for g in specs.GROUPS for c in spec.cases(g)]
    drawn = [t.case.dims for t in plan if t.case.dims not in listed]
    assert len({tuple(d.values()) for d in drawn}) == cases.DRAWN_CASES
    for dtype in spec.dtypes:
        assert {t.family for t in plan if t.case.dtype == dtype} == set(families(spec.inputs.values()))


@pytest.mark.parametrize("op", OPS)
def test_every_trial_binds_and_is_small_enough_for_seconds(op):
    spec = specs.load(op)
    for seed in range(5):
        for case in cases.drawn_cases(spec, np.random.default_rng(seed), 6):
            bound = spec.bind(case)
            assert sum(t.size for t in (bound.inputs | bound.outputs).values()) <= cases.NEAR_ELEMENTS_CAP
            assert bound.work["matmul"] <= cases.FLOP_CAP


@pytest.mark.parametrize(("op", "dim", "length"), [("rope_3d", "S", 10_000), ("rolling_attention", "L", 4_096)])
def test_long_dims_are_drawn_longer_than_any_block_of_tiles(op, dim, length):
    """A loop over blocks, or over pairs of steps, has to run more than once at other shapes than the profiled ones."""
    spec = specs.load(op)
    longest = [
        max(c.dims[dim] for c in cases.drawn_cases(spec, np.random.default_rng(seed), cases.DRAWN_CASES))
        for seed in range(5)
    ]
    assert all(size >= length for size in longest)


@pytest.mark.parametrize("op", ["rope_3d", "kv_cache_update", "rms_norm_qk", "layer_norm_modulate"])
def test_one_drawn_shape_is_as_wide_as_a_production_case(op):
    spec = specs.load(op)
    produced = [c.dims for c in spec.cases("production")]
    for seed in range(3):
        drawn = cases.drawn_cases(spec, np.random.default_rng(seed), cases.DRAWN_CASES)
        assert any(
            sum(c.dims[n] == size for n, size in dims.items()) >= len(dims) - 1 for dims in produced for c in drawn
        )


def test_drawn_sizes_include_neighbours_of_a_tile_and_sizes_no_author_would_list():
    rng = np.random.default_rng(0)
    sizes = {c.dims["S"] for _ in range(30) for c in cases.drawn_cases(specs.load("rope_3d"), rng, 8)}
    assert sizes & {127, 129, 255, 257} and any(s % 128 for s in sizes) and len(sizes) > 20


def test_seeds_decide_everything_and_fresh_ones_differ():
    spec = specs.load("rolling_attention")
    assert cases.plan(spec, seed=1) == cases.plan(spec, seed=1) != cases.plan(spec, seed=2)
    assert cases.fresh_seed() != cases.fresh_seed()
    trial = cases.plan(spec, seed=1)[0]
    first, again = cases.draw(spec, trial), cases.draw(spec, trial)
    assert all(np.array_equal(first[n], again[n]) for n in first)


def test_run_time_scalars_take_both_ends_of_their_range_and_reach_the_arrays():
    spec = specs.load("rolling_attention")
    seen = set()
    for seed in range(4):
        for trial in cases.plan(spec, seed=seed):
            arrays = cases.draw(spec, trial)
            past = int(arrays["n_past"][0])
            assert [past] == trial.case.control["n_past"] and arrays["slots"].dtype == np.int32
            assert (arrays["slots"] < trial.case.dims["N"]).all()
            seen.add("none" if past == 0 else "all" if past == trial.case.dims["P"] else "some")
    assert seen == {"none", "some", "all"}


def test_a_plan_for_one_dtype_has_no_other():
    assert {t.case.dtype for t in cases.plan(specs.load("rope_3d"), seed=3, dtype="float32")} == {"float32"}
    with pytest.raises(SpecError, match="no case has dtype float16"):
        cases.plan(specs.load("rope_3d"), seed=3, dtype="float16")


def test_arrays_have_the_cases_shapes_and_dtypes():
    spec = specs.load("rope_3d")
    case = spec.cases("smoke")[0]
    arrays = cases.draw(spec, Trial(case, "normal", 1))
    assert {n: (a.shape, a.dtype.name) for n, a in arrays.items()} == {
        n: (t.shape, t.dtype) for n, t in spec.bind(case).inputs.items()
    }


def _drawn(family: str, values: Values | None = None, picked: bool = True) -> np.ndarray:
    return draw_floats(values, (400, 16), family, picked, np.random.default_rng(5))


def test_families_are_what_their_names_say():
    assert 0.9 < _drawn("normal").std() < 1.1
    assert _drawn("scaled_up").std() > 3.5 and _drawn("scaled_down").std() < 0.08
    assert _drawn("huge").std() > 900 and _drawn("huge", picked=False).std() < 1.1
    rows = np.abs(_drawn("tiny_rows")).max(axis=1)
    assert 100 < (rows < 1e-2).sum() < 300 and (rows > 0.1).sum() > 100
    logits = _drawn("large_logits")[:8] @ _drawn("large_logits").T / 4
    assert logits.min() > 88  # exp overflows float32 there
    assert len(np.unique(_drawn("ties"))) < 12
    assert not _drawn("zeros").any() and _drawn("zeros", picked=False).any()
    assert (_drawn("one_hot").sum(axis=1) == 1).all() and set(np.unique(_drawn("one_hot"))) == {0, 1}


def test_mixed_rows_are_of_every_kind():
    x = draw_floats(None, (400, 128), "mixed", True, np.random.default_rng(5))
    rows, largest = x.mean(axis=1), np.abs(x).max(axis=1)
    plain = (np.abs(rows) < 1) & (largest > 1) & (largest < 10)
    offset, tiny, zero, towers = rows > 2.5, (largest > 0) & (largest < 1e-2), largest == 0, largest > 80
    assert plain.sum() > 150
    assert all(20 < kind.sum() < 90 for kind in (offset, tiny, zero)) and 8 < towers.sum() < 60
    assert towers[-1]  # where tiles end
    assert (x[offset] @ x[offset].T / 128**0.5).min() > 88  # exp overflows float32 there
    assert np.abs(draw_floats(None, (400, 128), "mixed", False, np.random.default_rng(5))).max() < 10


def test_mixed_leaves_a_plain_part_in_tensors_of_few_rows():
    for seed in range(20):
        x = draw_floats(None, (64,), "mixed", False, np.random.default_rng(seed))
        assert 0.5 < x.std() < 1.5


@pytest.mark.parametrize(
    "family", ["normal", "scaled_up", "large_logits", "zeros", "ties", "one_hot", "tiny_rows", "mixed", "huge"]
)
def test_no_family_leaves_the_declared_values(family):
    uniform = _drawn(family, Values(kind="uniform", low=0.25, high=2))
    assert uniform.min() >= 0.25 and uniform.max() <= 2
    assert _drawn(family, Values(kind="positive")).min() > 0
    assert (_drawn(family, Values(kind="one_hot")).sum(axis=1) == 1).all()


def test_huge_values_only_where_every_dtype_can_hold_them(tmp_path):
    inputs, outputs = "{x: {shape: [S, C], dtype: [float32, float16]}}", "{y: {shape: [S, C], dtype: x.dtype}}"
    spec = own_specs.write(tmp_path, "narrow", inputs, outputs, "(x,)")
    largest = [
        np.abs(cases.draw(spec, Trial(Case({"S": 9, "C": 9}, dtype), "huge", 1))["x"]).max()
        for dtype in ("float32", "float16")
    ]
    assert largest[0] > 1000 and largest[1] < 10


def test_infinities_only_where_an_input_allows_them():
    plain = Input(shape=(1,), dtype="float32")
    allowed = Input(shape=(1,), dtype="float32", values={"infinities": True})
    assert "infinities" not in families([plain]) and "infinities" in families([plain, allowed])
    assert np.isinf(_drawn("infinities", Values(infinities=True))).any()
    assert np.isfinite(_drawn("infinities")).all()
