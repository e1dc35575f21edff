"""The command line as a user meets it: exit codes, one-line errors, JSON, examples, the generated page."""

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nkismith.agent import cli, reference
from nkismith.agent.run import Plan
from tests.agent.fakes import FakeJudge, Say, kernel

ROOT = Path(__file__).parents[2]


@pytest.fixture
def nkismith(data, tmp_path, monkeypatch, capsys):
    """Run a command line in a folder of its own; returns (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        capsys.readouterr()
        code = cli.run(list(words))
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["check", "missing.py", "--op", "rope_3d"], "missing.py"),
        (["check", "folder", "--op", "rope_3d"], "is a folder"),
        (["check", "binary.py", "--op", "rope_3d"], "is not a text file"),
        (["check", "kernel.py"], "--spec"),
        (["check", "kernel.py", "--op", "rope_3d"], "kernel.py:1: no function rope_3d at the top level"),
        (["check", "torn.py", "--op", "rope_3d"], "torn.py:1: syntax error"),
        (["check", "kernel.py", "--op", "rope3d"], 'Did you mean "rope_3d"'.replace('"', "'")),
        (["check", "kernel.py", "--op", "rope_3d", "--target", "trn9"], "trn2, trn3"),
        (["check", "kernel.py", "--op", "rope_3d", "--cases", "huge"], "smoke, edge, production"),
        (["check", "kernel.py", "--op", "rope_3d", "--spec", "row_scale"], "Leave one of the two out"),
        (["check", "kernel.py", "--spec", "broken"], "unknown key 'sumary'. Did you mean 'summary'"),
        (["prompt", "rope_3d", "--attempt", "2"], "No run of rope_3d yet"),
        (["draft", "rope_3d", "--provider", "oracle"], "anthropic, bedrock, handoff, recording"),
        (["draft", "--resume", "nothing"], "No run named 'nothing'"),
        (["draft", "rope_3d", "--model", "claude-imaginary-9"], "NKISMITH_PRICES"),
        (["report"], "No run named"),
        (["generate", "--out", "no/such/folder/x.mp4", "--frames", "15"], "no/such/folder"),
        (["generate", "--out", "x.mp4", "--frames", "16"], "multiple"),
        (["generate", "--out", "x.mp4", "--preset", "tinny"], "tiny"),
        (["generate", "--out", "x.avi"], "x.avi: the video is an MP4 file"),
        (["generate", "--out", "folder"], "folder is a folder"),
        (["generate", "--out", "/proc/x.mp4"], "/proc/x.mp4 cannot be written"),
        (["generate", "--out", "x.mp4", "--seed", "99999999999999999999999"], "'--seed'"),
        (["generate", "--out", "x.mp4", "--image", "torn.py"], "torn.py cannot be read as an image"),
        (["generate", "--out", "x.mp4", "--kernels", "nowhere"], "--kernels nowhere is no folder"),
        (["profile", "torn.py", "--op", "rope_3d"], "torn.py:1: syntax error"),
        (["accept", "torn.py", "--op", "rope_3d", "--out", "kernel.py/x"], "--out kernel.py/x: "),
        (["mutate", "missing.py", "--op", "rope_3d"], "missing.py: No such file"),
        (["check", "kernel.py", "--spec", "nowhere"], "--spec nowhere: no such folder"),
        (["check", "kernel.py", "--spec", "broken/spec.yaml"], "Give the folder that holds spec.yaml"),
        (["draft", "rope_3d", "--provider", "handoff", "--step", "--effort", "huge"], "--effort"),
        (["draft", "rope_3d", "--provider", "handoff", "--step", "--out", "kernel.py"], "--out kernel.py: "),
        (["new", "Not A Name"], "cannot name an op"),
        (["kernals"], "Did you mean 'kernels'? See `nkismith --help`."),
        (["draft", "--beam", "many"], "beam"),
        (["draft", "--beam", "0"], "equal to 1. See `nkismith draft --help`."),
    ],
)
def test_wrong_use_is_one_line_and_exit_code_2(words, said, nkismith, tmp_path, op_dir, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    (tmp_path / "folder").mkdir()
    (tmp_path / "binary.py").write_bytes(b"\xff\xfe\x00\x01")
    (tmp_path / "kernel.py").write_text("import nki\n")
    (tmp_path / "torn.py").write_text("def rope_3d(\n")
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "spec.yaml").write_text((op_dir / "spec.yaml").read_text().replace("summary:", "sumary:"))
    (broken / "reference.py").write_text((op_dir / "reference.py").read_text())
    code, out, err = nkismith(*words)
    assert code == 2 and out == ""
    assert err.count("\n") == 1 and err.startswith("nkismith: ") and "Traceback" not in err
    assert said in err
    assert not list(tmp_path.glob("*.mp4")) and not list((tmp_path / "data").glob("runs/*"))


def test_without_words_the_whole_help_is_shown_and_the_version_on_request(nkismith):
    code, out, err = nkismith()
    assert code == 0 and not err and re.search(r"^  check  +Verdict", out, re.M) and "--version" in out
    code, out, _ = nkismith("--version")
    assert code == 0 and re.fullmatch(r"nkismith \d+\.\d+\S*\n", out)


def test_a_refused_kernel_is_exit_code_1_whoever_asks(nkismith, tmp_path):
    (tmp_path / "kernel.py").write_text("import os\nimport nki\n@nki.jit\ndef rope_3d(x, cos, sin):\n    return x\n")
    for command in ("check", "profile", "accept", "mutate"):
        code, out, err = nkismith(command, "kernel.py", "--op", "rope_3d")
        assert code == 1 and not err and "import of os" in out, command
        assert command == "mutate" or out.startswith("kernel.py:1: refused"), command


def test_a_missing_key_names_the_variable(nkismith, monkeypatch, tmp_path):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path / "none"))
    code, _, err = nkismith("draft", "rope_3d")
    assert code == 2 and "ANTHROPIC_API_KEY" in err and err.count("\n") == 1


def test_an_unwritable_data_folder_says_what_to_set(nkismith, monkeypatch, tmp_path, server):
    server(Say(""))
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("NKISMITH_DATA", str(blocked))
    code, _, err = nkismith("draft", "rope_3d")
    assert code == 2 and "NKISMITH_DATA" in err


def test_prompt_prints_what_the_model_gets(nkismith, server, monkeypatch, op_dir):
    code, out, err = nkismith("prompt", "--spec", str(op_dir))
    assert code == 0 and out.startswith("# Your role") and "tokens" in err
    requests = server(Say(kernel("ok 100")))
    monkeypatch.setattr("nkismith.agent.loop.Verifier", FakeJudge)
    nkismith("draft", "--spec", str(op_dir), "--no-accept", "--json")
    body = requests.requests[0]["body"]
    assert body["system"][0]["text"] + "\n\n" + body["messages"][0]["content"][0]["text"] + "\n" == out


def test_draft_reports_in_json_and_by_exit_code(nkismith, server, monkeypatch, op_dir):
    monkeypatch.setattr("nkismith.agent.loop.Verifier", FakeJudge)
    server(Say(kernel("ok 100")))
    code, out, _ = nkismith("draft", "--spec", str(op_dir), "--out", "kernels", "--json")
    answer = json.loads(out)
    assert code == 0 and answer["accepted"] and answer["latency_us"] == 100 and answer["ended"] == "done"
    server(Say(kernel("bad mismatch")))
    code, out, _ = nkismith("draft", "--spec", str(op_dir), "--tries", "2")
    assert code == 1 and "not accepted" in out
    code, out, _ = nkismith("report", "--json")
    assert code == 0 and [row["reason"] for row in json.loads(out)["attempts"]] == ["mismatch", "mismatch"]
    code, out, _ = nkismith("prompt", "--spec", str(op_dir), "--attempt", "2")
    assert code == 0 and "Your last draft was refused" in out


def test_a_resumed_run_keeps_its_options_but_its_caps_can_be_raised(nkismith, server, monkeypatch, op_dir):
    monkeypatch.setattr("nkismith.agent.loop.Verifier", FakeJudge)
    server(Say(kernel("bad mismatch")))
    code, out, _ = nkismith("draft", "--spec", str(op_dir), "--attempts", "1", "--out", "kernels", "--json")
    assert code == 1 and json.loads(out)["ended"] == "attempts"
    code, _, err = nkismith("draft", "--resume", "latest", "--beam", "3")
    assert code == 2 and "beam cannot change" in err
    server(Say(kernel("ok 100")))
    code, out, _ = nkismith("draft", "--resume", "latest", "--attempts", "2", "--json")
    assert json.loads(out)["attempts"] == 2


def test_a_hand_off_step_exits_with_3_and_names_the_prompt(nkismith, op_dir):
    code, out, _ = nkismith("draft", "--spec", str(op_dir), "--provider", "handoff", "--step")
    assert code == 3
    prompt = re.search(r"read (\S+prompt\.md)", out).group(1)
    assert Path(prompt).read_text().startswith("# Your role")


def test_record_turns_a_run_into_a_file(nkismith, server, monkeypatch, op_dir, tmp_path):
    monkeypatch.setattr("nkismith.agent.loop.Verifier", FakeJudge)
    server(Say(kernel("ok 100")))
    nkismith("draft", "--spec", str(op_dir), "--no-accept")
    code, _, _ = nkismith("record", "latest", "--out", "row_scale.json", "--source", "a test")
    assert code == 0 and json.loads((tmp_path / "row_scale.json").read_text())["source"] == "a test"
    code, out, _ = nkismith("draft", "--spec", str(op_dir), "--provider", "recording", "--recording", "row_scale.json",
                            "--no-accept", "--json")  # fmt: skip
    assert code == 0 and json.loads(out)["accepted"]


def test_json_stays_json_where_an_error_is_infinite(nkismith):
    verify = ROOT / "tests" / "verify"
    code, out, _ = nkismith(
        "check", str(verify / "attacks" / "known_slot.py"), "--spec", str(verify / "ops" / "set_row"), "--json"
    )
    told = json.loads(out, parse_constant=lambda name: pytest.fail(f"{name} is not JSON"))
    assert code == 1 and told["reason"] == "untouched_modified" and told["max_ratio"] is None


def test_kernels_show_lessons_and_doctor_answer_in_json(nkismith):
    assert set(json.loads(nkismith("kernels", "--json")[1])) >= {"rope_3d", "kv_cache_update", "rolling_attention"}
    assert json.loads(nkismith("show", "rope_3d", "--json")[1])["contract"]["op"] == "rope_3d"
    assert json.loads(nkismith("lessons", "--json")[1]) == []
    code, out, _ = nkismith("doctor", "--json")
    findings = {finding["name"]: finding for finding in json.loads(out)}
    assert code in (0, 1) and findings["python"]["mark"] == "ok" and findings["data folder"]["mark"] == "ok"


def test_a_folder_named_like_a_bundled_op_is_the_folder(nkismith, tmp_path, op_dir):
    mine = tmp_path / "rope_3d"
    mine.mkdir()
    for name in ("spec.yaml", "reference.py"):
        (mine / name).write_text((op_dir / name).read_text())
    assert nkismith("show", "--spec", "rope_3d")[1].startswith("row_scale: ")
    assert nkismith("show", "rope_3d")[1].startswith("rope_3d: ")


def test_a_person_who_starts_the_tool_server_is_told_what_it_waits_for(nkismith, monkeypatch):
    monkeypatch.setattr("nkismith.agent.mcp.serve", lambda: None)
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    code, out, err = nkismith("mcp")
    assert code == 0 and not out and "Model Context Protocol" in err
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert nkismith("mcp") == (0, "", "")  # an agent's log stays its own


def test_show_lists_all_dtypes_of_a_case_and_the_kernels_of_an_own_op(nkismith, op_dir):
    from nkismith.kernels import registry, spec

    evidence = {"target": "trn2", "lnc": 1, "sdk": "2.33", "instructions": "", "profile": None}
    path = registry.accept("import nki\n", spec.load(op_dir), evidence)
    _, out, _ = nkismith("show", "--spec", str(op_dir))
    assert str(path) in out and "; in bfloat16 and float32" in out


def test_a_terminated_clip_leaves_nothing_behind(tmp_path):
    words = ["generate", "--preset", "tiny", "--frames", "3000", "--out", str(tmp_path / "clip.mp4")]
    clip = subprocess.Popen([sys.executable, "-m", "nkismith.agent.cli", *words], stderr=subprocess.DEVNULL)
    until = time.monotonic() + 60
    while not list(tmp_path.iterdir()) and time.monotonic() < until:
        time.sleep(0.05)
    assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
    time.sleep(0.5)  # well into the clip
    clip.terminate()
    assert clip.wait(60) == 128 + signal.SIGTERM and not list(tmp_path.iterdir())


def test_a_failure_of_ours_is_one_line_without_traceback(nkismith, monkeypatch):
    def broken():
        raise ZeroDivisionError("our own bug")

    monkeypatch.setattr("nkismith.kernels.registry.all", broken)
    code, _, err = nkismith("kernels")
    assert code == 2 and err.count("\n") == 1 and "ZeroDivisionError" in err and "NKISMITH_DEBUG" in err


def test_the_page_is_what_help_says():
    assert (ROOT / "docs" / "cli.md").read_text() == reference.markdown(), "run: python docs/generate.py"


def test_every_command_has_a_sentence_and_examples():
    for section in reference.markdown().split("\n## ")[1:]:
        name, lines = section.split("\n")[0], section.splitlines()
        assert re.fullmatch(r"  [A-Z].*[.?]", lines[5]), name
        assert any(line.startswith(f"  nkismith {name}") for line in lines), name


def test_plans_survive_the_store():
    plan = Plan(op="x", spec="y", beam=3)
    assert Plan.from_row(json.loads(json.dumps(plan.to_row()))) == plan
