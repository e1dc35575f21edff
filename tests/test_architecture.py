"""The walls between the rooms, held over the source."""

import ast
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
MAY_IMPORT = {
    "results": set(),
    "kernels": set(),
    "verify": {"kernels"},
    "prompts": {"kernels", "verify"},
    "agent": {"kernels", "verify", "prompts", "results"},
    "pipeline": {"kernels", "verify"},
}
ABOVE_THE_ROOMS = {Path("agent/cli.py"), *(p.relative_to(ROOT) for p in (ROOT / "agent" / "commands").glob("*.py"))}
CHILD_MAY_IMPORT = {"numpy", "ml_dtypes", "msgpack", "nkismith.verify.simulator"}
SOURCES = sorted(p.relative_to(ROOT) for room in MAY_IMPORT for p in (ROOT / room).rglob("*.py"))


def imports(path: Path, top_level: bool = False) -> set[str]:
    """Modules that a file imports, anywhere in it or at its top level."""
    tree = ast.parse((ROOT / path).read_text())
    nodes = tree.body if top_level else ast.walk(tree)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("path", SOURCES, ids=str)
def test_a_room_imports_only_what_stands_below_it(path):
    room = path.parts[0]
    allowed = set(MAY_IMPORT) if path in ABOVE_THE_ROOMS else MAY_IMPORT[room] | {room}
    used = {name.split(".")[1] for name in imports(path) if name.startswith("nkismith.")}
    assert used <= allowed, f"{path} imports {sorted(used - allowed)}"


def test_the_command_line_imports_rooms_lazily():
    for path in ABOVE_THE_ROOMS:
        eager = {n.split(".")[1] for n in imports(path, top_level=True) if n.startswith("nkismith.")}
        assert eager <= {"agent"}, f"{path} imports {sorted(eager - {'agent'})} at import time"


def test_the_recording_child_needs_no_more_than_numpy():
    simulator = [p for p in SOURCES if p.parts[:2] == ("verify", "simulator")]
    for path in simulator:
        for name in imports(path, top_level=True):
            known = name.split(".")[0] in sys.stdlib_module_names or name.split(".")[0] == "nki"
            assert known or any(name.startswith(ok) for ok in CHILD_MAY_IMPORT), f"{path} imports {name}"


def test_every_folder_and_data_file_is_packaged():
    config = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    folders = {"nkismith." + ".".join(p.parent.parts) for p in SOURCES if p.name == "__init__.py"}
    assert set(config["packages"]) == folders
