"""Every reason code and every lint rule has a page, and the pages are those of the tables."""

from pathlib import Path

import pytest

from nkismith.verify.pages import pages, write
from nkismith.verify.reasons import EXPLANATIONS, Reason

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_explained(reason):
    explanation = EXPLANATIONS[reason]
    assert explanation.stage in {"parse", "lint", "record", "legality", "execute", "compare", "generalise", "profile"}
    for text in (explanation.meaning, explanation.cause, explanation.fix):
        assert len(text) > 30
        assert text.endswith(".")


@pytest.mark.parametrize("name", pages())
def test_the_committed_page_is_the_rendered_one(name):
    fix = "python -m nkismith.verify.pages"
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], f"run {fix}"


def test_there_is_no_page_without_a_code_or_rule():
    on_disk = {str(path.relative_to(DOCS)) for folder in ("reasons", "lint") for path in (DOCS / folder).iterdir()}
    assert on_disk == set(pages())


def test_writing_removes_pages_of_codes_that_are_gone(tmp_path):
    write(tmp_path)
    (tmp_path / "reasons" / "obsolete.md").write_text("old")
    write(tmp_path)
    assert not (tmp_path / "reasons" / "obsolete.md").exists()
    assert (tmp_path / "lint" / "import.md").exists()


def test_a_page_says_what_why_and_shows_both_kinds():
    page = pages()["lint/exception_handling.md"]
    assert "No try statement" in page
    assert "**Why.**" in page
    assert page.index("Refused:") < page.index("except Exception") < page.index("Accepted:")
    assert "(../reasons/environment_dependent.md)" in page
