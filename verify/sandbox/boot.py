"""First file of the child, run by path in a bare interpreter: nothing but the listed modules exists.

Importing `nkismith.verify` would run the judge's own `__init__` (PyTorch, pydantic, seconds) inside the child, so our
parent packages are empty here, and site-packages is not on the path: only packages that the parent listed can be found.
"""

import importlib.util
import json
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType


class ListedModules:
    """Meta path finder over a table: module name -> its file, its folder (a package without code), or "" (empty)."""

    def __init__(self, places: Mapping[str, str]) -> None:
        self._places = places

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        place = self._places.get(name)
        if place is None:
            return None
        if place.endswith("/__init__.py"):
            return importlib.util.spec_from_file_location(
                name, place, submodule_search_locations=[str(Path(place).parent)]
            )
        if place and Path(place).is_file():
            return importlib.util.spec_from_file_location(name, place)
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = [place] if place else []
        return spec


if __name__ == "__main__":
    config = json.loads(sys.argv.pop())
    sys.meta_path.insert(0, ListedModules(config["modules"]))
    from nkismith.verify.sandbox import warden

    warden.main(config)
