"""What the doctor says can be done as it says it."""

import tomllib
from pathlib import Path

from nkismith.agent import doctor
from nkismith.verify import sandbox
from nkismith.verify.sandbox.levels import LevelReport

ROOT = Path(__file__).parents[2]


def test_extras_are_installed_from_the_checkout_not_from_an_index(monkeypatch):
    monkeypatch.setattr(doctor.util, "find_spec", lambda name: None)
    fix = doctor._text().fix
    assert f"-e '{ROOT}[text]'" in fix
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"text", "neuron"} <= set(extras)


def test_what_a_child_could_do_is_listed_for_each_level(monkeypatch):
    level, isolation = sandbox.Level, sandbox.Isolation
    reports = [
        LevelReport(level.STRONG, False, None, ()),
        LevelReport(level.SECCOMP, True, isolation(level.SECCOMP, ()), ()),
        LevelReport(level.WEAK, True, isolation(level.WEAK, ()), ("list a directory", "write a file")),
    ]
    monkeypatch.setattr(sandbox, "levels", lambda: reports)
    found = doctor._isolation()
    assert found.mark == "weak" and "--allow-weak-isolation" in found.fix
    assert "weak would let a child list a directory, write a file" in found.found
