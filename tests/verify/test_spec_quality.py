import pytest

from nkismith.kernels import spec as specs
from nkismith.kernels.spec import SpecError
from nkismith.verify import check
from nkismith.verify.spec_quality import refuse_weak, weaknesses

from . import own_specs

X, Y = "{x: {shape: [S, C], dtype: float32}}", "{y: {shape: [S, C], dtype: float32}}"


@pytest.mark.parametrize("op", specs.names())
def test_bundled_specs_are_strong_enough(op):
    assert weaknesses(specs.load(op), seed=3) == ()


def _rules(spec):
    return {(w.rule, w.where) for w in weaknesses(spec, seed=3)}


def test_an_ignored_input_is_found(tmp_path):
    inputs = "{x: {shape: [S, C], dtype: float32}, z: {shape: [C], dtype: float32}}"
    assert _rules(own_specs.write(tmp_path, "op", inputs, Y, "(x + 0 * z,)")) == {("ignored_input", "inputs.z")}


def test_a_run_time_scalar_that_switches_an_input_off_does_not_make_it_ignored(tmp_path):
    inputs = "{x: {shape: [S, C], dtype: float32}, n: {shape: [1], dtype: int32}}"
    control = 'control: {n: "0 <= n <= 1"}'
    spec = own_specs.write(
        tmp_path, "op", inputs, Y, "(x * n + torch.arange(x.shape[1]),)", control, ", control: {n: 0}"
    )
    assert weaknesses(spec, seed=3) == ()


def test_a_constant_output_is_found(tmp_path):
    rules = _rules(own_specs.write(tmp_path, "op", X, Y, "(torch.ones_like(x) + 0 * x,)"))
    assert ("constant_output", "outputs.y") in rules


def test_a_reference_that_is_not_finite_is_found(tmp_path):
    assert _rules(own_specs.write(tmp_path, "op", X, Y, "(x.log(),)")) == {("not_finite", "outputs.y")}


def test_cases_that_do_not_cover_the_domain_are_found(tmp_path):
    spec = own_specs.write(tmp_path, "op", X, Y, "(2 * x,)")
    path = spec.folder / "spec.yaml"
    path.write_text(path.read_text().replace("{S: 131, C: 133}", "{S: 256, C: 40}"))
    found = {w.rule: w for w in weaknesses(specs.load(spec.folder), seed=3)}
    assert found["whole_tiles"].where == "cases.*.S" and "add 129" in found["whole_tiles"].message
    assert found["one_size"].where == "cases.*.C"


def test_a_dtype_without_a_case_is_found(tmp_path):
    inputs = "{x: {shape: [S, C], dtype: [float32, bfloat16]}}"
    spec = own_specs.write(tmp_path, "op", inputs, "{y: {shape: [S, C], dtype: x.dtype}}", "(2 * x,)")
    path = spec.folder / "spec.yaml"
    path.write_text(path.read_text().replace("40}", "40, dtype: float32}").replace("133}", "133, dtype: float32}"))
    assert _rules(specs.load(spec.folder)) == {("untested_dtype", "cases")}


def test_a_weak_spec_judges_nothing(tmp_path):
    ignored = own_specs.write(tmp_path / "a", "op", X, Y, "(torch.ones_like(x),)")
    with pytest.raises(SpecError, match=r"spec\.yaml: inputs\.x: no result depends on x"):
        refuse_weak(ignored, seed=3)
    narrow = own_specs.write(tmp_path / "b", "op", X, Y, "(2 * x,)")
    path = narrow.folder / "spec.yaml"
    refuse_weak(narrow, seed=3)
    path.write_text(path.read_text().replace("C: 133}", "C: 40}"))
    with pytest.raises(SpecError, match=r"cases\.\*\.C: every smoke and edge case has C=40"):
        refuse_weak(specs.load(narrow.folder), seed=3)
    with pytest.raises(SpecError, match=r"C=40"):
        check("", specs.load(narrow.folder))
