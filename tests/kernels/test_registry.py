import json

import pytest

from nkismith.kernels import registry
from nkismith.kernels import spec as specs
from nkismith.kernels.registry import NoKernel, RegistryError, StaleKernel

SPEC = specs.load("rope_3d")
SOURCE = "import nki\n"
EVIDENCE = {"target": "trn2", "lnc": 1, "instructions": "abc", "sdk": "2.33"}
ASK = {"target": "trn2", "dtype": "bfloat16", "lnc": 1}


def test_an_accepted_kernel_is_found_with_its_evidence(tmp_path):
    path = registry.accept(SOURCE, SPEC, {**EVIDENCE, "latency_us": 12.5}, root=tmp_path)
    found = registry.find("rope_3d", **ASK, dims={"S": 30, "H": 2, "D": 16}, root=tmp_path)
    assert (found.op, found.path, found.source) == ("rope_3d", path, SOURCE)
    assert found.evidence["latency_us"] == 12.5 and found.evidence["dtypes"] == ["bfloat16", "float32"]
    assert not [p for p in path.parent.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize(
    "ask",
    [
        {**ASK, "target": "trn3"},
        {**ASK, "lnc": 2},
        {**ASK, "dtype": "float16"},
        {**ASK, "dims": {"S": 40000}},
        {**ASK, "dims": {"D": 48}},
        {**ASK, "dims": {"Z": 1}},
    ],
)
def test_what_was_not_verified_is_not_dispatched_and_the_message_says_what_is(tmp_path, ask):
    registry.accept(SOURCE, SPEC, EVIDENCE, root=tmp_path)
    have = r"Accepted: trn2 LNC 1 SDK 2.33 bfloat16,float32 \(S 1\.\.32768.*nkismith draft rope_3d"
    with pytest.raises(NoKernel, match=have):
        registry.find("rope_3d", **ask, root=tmp_path)


def test_nothing_accepted_says_none(tmp_path):
    with pytest.raises(NoKernel, match="Accepted: none"):
        registry.find("rope_3d", **ASK, root=tmp_path)


def test_an_edited_kernel_is_refused_by_name_with_the_command(tmp_path):
    path = registry.accept(SOURCE, SPEC, EVIDENCE, root=tmp_path)
    path.write_text(SOURCE + "# faster\n")
    with pytest.raises(StaleKernel, match=rf"{path} changed after .* nkismith accept {path} --op rope_3d"):
        registry.find("rope_3d", **ASK, root=tmp_path)
    path.unlink()
    with pytest.raises(StaleKernel):
        registry.find("rope_3d", **ASK, root=tmp_path)


@pytest.mark.parametrize("file", ["spec.yaml", "reference.py"])
def test_a_changed_spec_or_reference_makes_the_evidence_stale(folder, file):
    spec = specs.load(folder)
    registry.accept(SOURCE, spec, EVIDENCE)
    registry.find(folder, **ASK)
    (folder / file).write_text((folder / file).read_text() + "\n# changed\n")
    with pytest.raises(StaleKernel, match=file):
        registry.find(folder, **ASK)


def test_a_kernel_of_an_own_spec_lives_beside_it(folder):
    path = registry.accept(SOURCE, specs.load(folder), EVIDENCE)
    assert path.parent.parent == folder / "accepted"


def test_one_source_may_hold_verdicts_for_several_targets(tmp_path):
    first = registry.accept(SOURCE, SPEC, EVIDENCE, root=tmp_path)
    second = registry.accept(SOURCE, SPEC, {**EVIDENCE, "target": "trn3"}, root=tmp_path)
    assert first == second
    assert sorted(k.evidence["target"] for k in registry.all(tmp_path)) == ["trn2", "trn3"]


def test_a_new_kernel_for_the_same_scope_supersedes_the_old_one(tmp_path):
    old = registry.accept(SOURCE, SPEC, EVIDENCE, root=tmp_path)
    new = registry.accept(SOURCE + "# better\n", SPEC, EVIDENCE, root=tmp_path)
    assert registry.find("rope_3d", **ASK, root=tmp_path).path == new and not old.parent.exists()


def test_a_verdict_for_another_sdk_stands_beside_and_the_newest_sdk_is_found(tmp_path):
    registry.accept(SOURCE, SPEC, EVIDENCE, root=tmp_path)
    registry.accept(SOURCE + "# older API\n", SPEC, {**EVIDENCE, "sdk": "2.32"}, root=tmp_path)
    registry.accept(SOURCE, SPEC, {**EVIDENCE, "sdk": "2.9"}, root=tmp_path)
    assert registry.find("rope_3d", **ASK, root=tmp_path).evidence["sdk"] == "2.33"
    assert registry.find("rope_3d", **ASK, sdk="2.32", root=tmp_path).source.endswith("# older API\n")
    with pytest.raises(NoKernel, match=r"for trn2 LNC 1 SDK 2.31 bfloat16. Accepted: .*SDK 2.32"):
        registry.find("rope_3d", **ASK, sdk="2.31", root=tmp_path)


def test_another_domain_is_kept_beside_and_dispatched_on(tmp_path):
    whole = registry.accept(SOURCE, SPEC, EVIDENCE, root=tmp_path)
    small = {"S": {"max": 128}, "H": {"max": 12}, "D": {"one_of": [64]}}
    special = registry.accept("# special\n", SPEC, {**EVIDENCE, "domain": small}, root=tmp_path)
    assert registry.find("rope_3d", **ASK, dims={"S": 100, "D": 64}, root=tmp_path).path == special
    assert registry.find("rope_3d", **ASK, dims={"S": 129, "D": 64}, root=tmp_path).path == whole


def test_evidence_without_its_scope_is_refused_and_nothing_is_written(tmp_path):
    with pytest.raises(RegistryError, match="lacks lnc, instructions"):
        registry.accept(SOURCE, SPEC, {"target": "trn2"}, root=tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_failed_write_leaves_what_was_there(tmp_path, monkeypatch):
    path = registry.accept(SOURCE, SPEC, EVIDENCE, root=tmp_path)
    before = {p.name: p.read_bytes() for p in path.parent.iterdir()}
    monkeypatch.setattr("pathlib.Path.replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(OSError, match="disk full"):
        registry.accept(SOURCE, SPEC, {**EVIDENCE, "latency_us": 1}, root=tmp_path)
    assert {p.name: p.read_bytes() for p in path.parent.iterdir()} == before


def test_a_part_of_the_evidence_can_be_replaced_and_the_rest_stays(tmp_path):
    registry.accept(SOURCE, SPEC, {**EVIDENCE, "latency_us": 2}, root=tmp_path)
    registry.accept(SOURCE, SPEC, {**EVIDENCE, "target": "trn3", "latency_us": 1}, root=tmp_path)
    kernel = registry.find("rope_3d", **ASK, root=tmp_path)
    registry.amend(kernel, {"latency_us": 3, "mutation": {"killed": 60}})
    after = {k.evidence["target"]: k.evidence for k in registry.of(SPEC, tmp_path)}
    assert (after["trn2"]["latency_us"], after["trn3"]["latency_us"]) == (3, 1)
    assert after["trn2"] == {**kernel.evidence, "latency_us": 3, "mutation": {"killed": 60}}
    kernel.path.write_text("changed")
    with pytest.raises(StaleKernel):
        registry.amend(registry.all(tmp_path)[0], {"latency_us": 4})


def test_the_record_is_plain_json(tmp_path):
    path = registry.accept(SOURCE, SPEC, EVIDENCE, root=tmp_path)
    record = json.loads((path.parent / "accepted.json").read_text())
    assert {"op", "kernel", "spec", "reference", "verdicts"} == set(record)


def test_a_record_has_a_line_for_each_thing_that_fits_one(tmp_path):
    cases = [{"case": f"S={n}", "errors": [0.1] * 20} for n in range(50)]
    path = registry.accept(SOURCE, SPEC, {**EVIDENCE, "cases": cases}, root=tmp_path)
    text = (path.parent / "accepted.json").read_text()
    assert json.loads(text)["verdicts"][0]["cases"] == cases
    assert 50 < len(text.splitlines()) < 80 and max(map(len, text.splitlines())) < 1100


def test_line_ends_are_part_of_the_kernel(tmp_path):
    path = registry.accept("import nki\r\n# a\r\n", SPEC, EVIDENCE, root=tmp_path)
    assert registry.find("rope_3d", **ASK, root=tmp_path).source == "import nki\r\n# a\r\n"
    path.write_bytes(b"import nki\n# a\r\n")
    with pytest.raises(StaleKernel):
        registry.find("rope_3d", **ASK, root=tmp_path)


@pytest.mark.parametrize(
    "record",
    ["", "[]", "{}", '{"op": 1}', '{"op": "rope_3d", "kernel": "", "spec": "", "reference": "", "verdicts": [{}]}'],
)
def test_what_is_no_evidence_is_named(tmp_path, record):
    path = registry.accept(SOURCE, SPEC, EVIDENCE, root=tmp_path)
    (path.parent / "accepted.json").write_text(record)
    with pytest.raises(RegistryError, match=r"accepted\.json"):
        registry.find("rope_3d", **ASK, root=tmp_path)
