"""Write every generated file of this folder: `python docs/generate.py`. Tests compare them with what is committed."""

from pathlib import Path

from nkismith.agent import reference
from nkismith.verify import pages

if __name__ == "__main__":
    docs = Path(__file__).parent
    pages.write(docs)
    (docs / "cli.md").write_text(reference.markdown(), encoding="utf-8")
