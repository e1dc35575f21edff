import ast
import subprocess
import sys

import pytest
import yaml

from nkismith.kernels import spec as specs
from nkismith.kernels.spec import Case, SpecError, TensorType, UnknownOp

OPS = specs.names()


def test_the_example_of_the_design_loads_as_written(tmp_path):
    (tmp_path / "rope_3d").mkdir()
    (tmp_path / "rope_3d" / "spec.yaml").write_text("""
op: rope_3d
summary: Rotate query or key channels by their frame, row and column position.
maths: pairs (2j, 2j+1) of the last axis are rotated by the angle of token s and pair j
dims:    {S: {min: 1, max: 32768}, H: {min: 1, max: 12}, D: {one_of: [16, 32, 64, 128]}}
inputs:
  x:   {shape: [S, H, D], dtype: [bfloat16, float32]}
  cos: {shape: [S, "D//2"], dtype: float32, values: {kind: uniform, low: -1, high: 1}}
  sin: {shape: [S, "D//2"], dtype: float32, values: {kind: uniform, low: -1, high: 1}}
outputs: {y: {shape: [S, H, D], dtype: x.dtype, match: close}}       # close | exact | {ulp: 1} | valid_choice
in_place: []
control: {}
accumulate: float32
work:    {hbm_read: "S*H*D*b + S*D*4", hbm_write: "S*H*D*b", vector: "3*S*H*D"}
cases:
  smoke:      [{S: 30, H: 2, D: 16}]
  edge:       [{S: 1, H: 1, D: 128}, {S: 131, H: 3, D: 64}]
  production: [{S: 23400, H: 12, D: 128, dtype: bfloat16}]
targets: [trn2, trn3]
notes: Layout inside the kernel is free. No per-element DMA.
""")
    reference = (specs.ROOT / "rope_3d" / "reference.py").read_text()
    (tmp_path / "rope_3d" / "reference.py").write_text(reference)
    assert len(specs.load(tmp_path / "rope_3d").cases("edge")) == 4


@pytest.mark.parametrize("op", OPS)
def test_every_bundled_spec_loads_and_binds_all_its_cases(op):
    spec = specs.load(op)
    for group in specs.GROUPS:
        for case in spec.cases(group):
            bound = spec.bind(case)
            assert bound.work["hbm_read"] > 0 and bound.work["hbm_write"] > 0
            assert set(bound.control) == set(spec.control)


def test_the_three_first_ops_have_the_contracts_of_the_design():
    rope = specs.load("rope_3d").bind(Case({"S": 30, "H": 2, "D": 16}, "bfloat16"))
    assert rope.inputs == {
        "x": TensorType((30, 2, 16), "bfloat16"),
        "cos": TensorType((30, 8), "float32"),
        "sin": TensorType((30, 8), "float32"),
    }
    assert rope.outputs == {"y": TensorType((30, 2, 16), "bfloat16")}
    update = specs.load("kv_cache_update").bind(Case({"N": 3, "H": 2, "D": 16, "T": 30}, "float32", {"slot": [2]}))
    assert list(update.inputs) == ["k_ring", "v_ring", "k", "v", "slot"] and not update.outputs
    assert update.in_place == ("k_ring", "v_ring")
    assert update.inputs["k_ring"].shape == (3, 2, 16, 30) and update.inputs["v_ring"].shape == (3, 2, 30, 16)
    attention = specs.load("rolling_attention")
    assert list(attention.inputs) == ["q", "k_own", "v_own", "k_ring", "v_ring", "slots", "n_past", "cos", "sin"]


def test_the_production_case_of_attention_sees_32760_keys_from_11700_queries():
    bound = specs.load("rolling_attention").bind(specs.load("rolling_attention").cases("production")[0])
    dims = bound.case.dims
    assert (dims["S"], dims["L"] + bound.control["n_past"][0] * dims["T"]) == (11700, 32760)
    assert bound.work["matmul"] == 4 * 11700 * 32760 * 128 * 3


def test_a_case_without_dtype_stands_for_every_dtype_of_the_spec():
    assert [c.dtype for c in specs.load("rope_3d").cases("smoke")] == ["bfloat16", "float32"]


def test_work_counts_bytes_of_the_case_dtype():
    spec = specs.load("rope_3d")
    dims = {"S": 10, "H": 2, "D": 16}
    assert spec.bind(Case(dims, "bfloat16")).work["hbm_write"] == 10 * 2 * 16 * 2
    assert spec.bind(Case(dims, "float32")).work["hbm_write"] == 10 * 2 * 16 * 4


def test_an_unknown_op_names_the_nearest():
    with pytest.raises(UnknownOp, match=r'No op named "rope3d"\. Did you mean \'rope_3d\'\? Known ops: .*rope_3d'):
        specs.load("rope3d")


def test_a_folder_outside_the_checkout_is_a_spec(folder):
    assert specs.load(folder).op == "row_scale"
    assert specs.load(str(folder)).folder == folder


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("inptus", {}, r"unknown key 'inptus'\. Did you mean 'inputs'\?"),
        ("inputs.x.dtpye", "float32", r"inputs\.x: unknown key 'dtpye'\. Did you mean 'dtype'"),
        ("op", None, r"op: is missing"),
        ("work", None, r"work: is missing"),
        ("work.hbm_read", "S*K", r"work\.hbm_read: unknown name 'K'"),
        ("work.hbm_read", "__import__('os')", r"work\.hbm_read: .*is not allowed"),
        ("inputs.x.shape", ["S", "E"], r"inputs\.x\.shape\[1\]: unknown name 'E'.*Known here: C, S"),
        ("inputs.x.shape", ["S", "C >= 1"], r"must be a number"),
        ("inputs.x.dtype", "bf16", r"inputs\.x\.dtype: unknown dtype 'bf16'\. Did you mean 'bfloat16'"),
        ("outputs.y.dtype", "z.dtype", r"outputs\.y\.dtype: z\.dtype must name an input"),
        ("outputs.y.match", "valid_choice", r"valid_choice judges indices"),
        ("in_place", ["y"], r"in_place: 'y' is not an input"),
        ("control", {"n": "0 <= n < S"}, r"control: 'n' is not an input"),
        ("dims.S", 128, r"dims\.S: must be a mapping, as in \{key: value\}, not 128"),
        ("dims.S", {"min": 1}, r"dims\.S: give either max"),
        ("dims.S", {"min": 8, "max": 4}, r"dims\.S: no size fits"),
        ("dims.b", {"max": 4}, r"dims: 'b' has a meaning of its own"),
        ("dims.x", {"max": 4}, r"inputs: 'x' is already used under dims"),
        ("constraints", ["S + 1"], r"constraints\[0\]: .*must be a comparison"),
        ("cases.smoke", [], r"cases\.smoke: .*at least 1"),
        ("cases.smoke", [{"S": 3}], r"cases\.smoke: .*gives no size for C"),
        ("cases.smoke", [{"S": 3, "C": 4, "K": 1}], r"unknown dim 'K'"),
        ("cases.edge", [{"S": 0, "C": 4}], r"cases\.edge: .*S=0 is outside the domain \(1\.\.4096\)"),
        ("cases.edge", [{"S": 1.5, "C": 4}], r"S=1\.5 is outside the domain"),
        ("cases.edge", [{"S": 1, "C": 4, "dtype": "float16"}], r"dtype float16 is not one of bfloat16, float32"),
        ("tolerance", {"factor": 2}, r"tolerance\.reason: is missing"),
        ("targets", ["trn9"], r"targets"),
        ("outputs.y.match", "near", r"outputs\.y\.match: 'near' is none of 'close', 'exact' or 'valid_choice'$"),
        (
            "inputs.scale.values",
            {"kind": "gauss"},
            r"inputs\.scale\.values\.kind: 'gauss' is none of 'normal', .*'one_hot'$",
        ),
    ],
)
def test_every_way_of_getting_a_spec_wrong_names_file_and_key(edit, path, value, message):
    broken = edit(path, value)
    with pytest.raises(SpecError, match=message) as error:
        specs.load(broken)
    assert str(error.value).startswith(f"{broken / 'spec.yaml'}: ") and "\n" not in str(error.value)


def test_a_key_that_appears_twice_is_refused(folder):
    path = folder / "spec.yaml"
    path.write_text(path.read_text() + "\nop: other\n")
    with pytest.raises(SpecError, match="'op' appears twice"):
        specs.load(folder)


@pytest.mark.parametrize("text", ["", "[1, 2]", "op: [", "just words"])
def test_what_is_not_a_yaml_mapping_is_one_line(folder, text):
    (folder / "spec.yaml").write_text(text)
    with pytest.raises(SpecError) as error:
        specs.load(folder)
    assert "\n" not in str(error.value) and "<unicode" not in str(error.value)


def test_a_line_that_is_no_yaml_is_named(folder):
    path = folder / "spec.yaml"
    path.write_text(path.read_text().replace("  S: ", "\tS: ", 1))
    line = path.read_text().split("\tS: ")[0].count("\n") + 1
    with pytest.raises(SpecError, match=rf"spec\.yaml: not readable as YAML: .* at line {line}, "):
        specs.load(folder)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("def other(x, scale): ...", "needs exactly one public function, row_scale; found other"),
        ("def row_scale(scale, x): ...", r"row_scale takes \(scale, x\), the inputs are \(x, scale\)"),
        ("def row_scale(", r"is not Python: .* \(reference\.py, line 1\)"),
    ],
)
def test_a_reference_must_have_the_specs_signature(folder, source, message):
    (folder / "reference.py").write_text(source)
    with pytest.raises(SpecError, match=message):
        specs.load(folder)


def test_loading_a_strangers_spec_does_not_run_its_code(folder, tmp_path):
    mark = tmp_path / "ran"
    reference = folder / "reference.py"
    reference.write_text(reference.read_text() + f"\nopen({str(mark)!r}, 'w')\n")
    specs.load(folder)
    assert not mark.exists()


def test_integers_need_a_relation_and_floats_must_not_have_one(edit):
    folder = edit("inputs.scale.dtype", "int32")
    with pytest.raises(SpecError, match=r"inputs\.scale\.values: an integer input needs its relation"):
        specs.load(folder)
    edit("inputs.scale.values", "0 <= scale < C")
    assert specs.load(folder).relations["scale"].needs == {"C"}
    edit("inputs.x.values", "0 <= x < 1")
    with pytest.raises(SpecError, match="relations are for integer inputs"):
        specs.load(folder)


def test_control_values_are_checked_and_never_guessed():
    spec = specs.load("kv_cache_update")
    dims = {"N": 3, "H": 2, "D": 16, "T": 30}
    with pytest.raises(SpecError, match="gives no value for the run-time scalar slot"):
        spec.bind(Case(dims, "float32"))
    with pytest.raises(SpecError, match=r"slot must lie in 0\.\.2, got \[3\]"):
        spec.bind(Case(dims, "float32", {"slot": [3]}))
    with pytest.raises(SpecError, match="has 2 values"):
        spec.bind(Case(dims, "float32", {"slot": [0, 1]}))
    with pytest.raises(SpecError, match=r"'slots' is not a control\. Did you mean 'slot'"):
        spec.bind(Case(dims, "float32", {"slots": [0]}))


def test_a_case_outside_the_domain_or_a_constraint_is_refused():
    spec = specs.load("rolling_attention")
    case = spec.cases("smoke")[0]
    with pytest.raises(SpecError, match="D=24 is outside the domain"):
        spec.bind(Case({**case.dims, "D": 24}, case.dtype, case.control))
    with pytest.raises(SpecError, match="breaks the constraint 'S <= L'"):
        spec.bind(Case({**case.dims, "S": 31}, case.dtype, case.control))


def test_references_import_torch_and_nothing_of_ours():
    for op in OPS:
        tree = ast.parse((specs.load(op).folder / "reference.py").read_text())
        imports = [a.name for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names]
        assert imports == ["torch"] and not any(isinstance(n, ast.ImportFrom) for n in ast.walk(tree))


def test_specs_load_without_torch():
    code = "import sys, nkismith.kernels.spec as s; [s.load(n) for n in s.names()]; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_the_specs_own_yaml_has_no_key_the_schema_ignores():
    for op in OPS:
        assert yaml.safe_load((specs.load(op).folder / "spec.yaml").read_text())["op"] == op


def test_the_page_on_specs_names_every_key():
    page = (specs.ROOT.parent / "docs" / "spec.md").read_text()
    keys = [field.alias or name for name, field in specs.OpSpec.model_fields.items()]
    assert [key for key in keys if f"`{key}`" not in page] == []
