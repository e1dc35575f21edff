"""Write the generated pages: one an instruction. Run `python docs/generate.py`; a test compares them."""

from pathlib import Path

from nkismith.verify.simulator.cards import card, public
from nkismith.verify.simulator.instructions import TABLE

FOLDER = Path(__file__).parent / "instructions"


def pages() -> dict[Path, str]:
    """Path and text of every generated page."""
    assert TABLE
    found = {FOLDER / f"{name}.md": card(name).markdown() for name in public()}
    index = ["# Instructions", "", "| instruction | engines | meaning |", "|---|---|---|"]
    for name in public():
        one = card(name)
        index.append(f"| [{name}]({name}.md) | {', '.join(one.engines)} | {one.meaning.splitlines()[0]} |")
    found[FOLDER / "README.md"] = "\n".join(index) + "\n"
    return found


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
