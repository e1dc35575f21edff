from pathlib import Path

import pytest
import yaml

from nkismith.kernels import scaffold


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A spec of its own that loads, to be broken one key at a time."""
    return scaffold.new("row_scale", tmp_path)


@pytest.fixture
def edit(folder: Path):
    """Change one key of the spec by its dotted path; None removes it."""

    def change(path: str, value: object) -> Path:
        data = yaml.safe_load((folder / "spec.yaml").read_text())
        *parents, last = path.split(".")
        place = data
        for key in parents:
            place = place[int(key)] if isinstance(place, list) else place[key]
        if value is None:
            del place[last]
        else:
            place[last] = value
        (folder / "spec.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
        return folder

    return change
