"""Every reason, lint rule, legality rule and instruction has a page, and the pages are those of the tables."""

import re
from pathlib import Path

import pytest

from nkismith.verify.pages import FOLDERS, UnknownCode, explain, pages, write
from nkismith.verify.reasons import EXPLANATIONS, Reason

DOCS = Path(__file__).parents[2] / "docs"
PAGES = pages()


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_is_explained(reason):
    explanation = EXPLANATIONS[reason]
    assert explanation.stage in {"parse", "lint", "record", "legality", "execute", "compare", "generalise", "profile"}
    for text in (explanation.meaning, explanation.cause, explanation.fix):
        assert len(text) > 30
        assert text.endswith(".")


@pytest.mark.parametrize("name", PAGES)
def test_the_committed_page_is_the_rendered_one(name):
    assert (DOCS / name).read_text(encoding="utf-8") == PAGES[name], "run python docs/generate.py"


def test_there_is_no_page_without_a_code_or_rule():
    on_disk = {str(path.relative_to(DOCS)) for folder in FOLDERS for path in (DOCS / folder).iterdir()}
    assert on_disk == set(PAGES)


def test_writing_removes_pages_of_codes_that_are_gone(tmp_path):
    write(tmp_path)
    (tmp_path / "reasons" / "obsolete.md").write_text("old")
    write(tmp_path)
    assert not (tmp_path / "reasons" / "obsolete.md").exists()
    assert (tmp_path / "lint" / "import.md").exists()


def test_a_page_says_what_why_and_shows_both_kinds():
    page = PAGES["lint/exception_handling.md"]
    assert "No try statement" in page
    assert "**Why.**" in page
    assert page.index("Refused:") < page.index("except Exception") < page.index("Accepted:")
    assert "(../reasons/environment_dependent.md)" in page


def test_links_between_pages_lead_somewhere():
    for name, text in PAGES.items():
        for link in re.findall(r"\]\(([^)]+\.md)\)", text):
            assert str(((DOCS / name).parent / link).resolve().relative_to(DOCS)) in PAGES, (name, link)


def test_a_code_is_explained_whatever_table_it_is_from():
    assert "at most 128 partitions" in explain("partition_limit")
    assert "No try statement" in explain("exception_handling")
    assert "differs from the reference" in explain("mismatch")


def test_a_name_that_is_both_reason_and_rule_is_explained_as_both():
    both = explain("step_budget")
    assert both.count("# `step_budget`") == 2
    assert "[`step_budget`](../reasons/step_budget.md)" in both


def test_what_a_draft_raised_is_explained_as_raised():
    assert explain("TypeError") == explain("ZeroDivisionError") == explain("raised")
    with pytest.raises(UnknownCode):
        explain("print")


def test_an_unknown_code_names_the_nearest():
    with pytest.raises(UnknownCode, match="partition_limit"):
        explain("partition_limits")
    with pytest.raises(UnknownCode, match="mismatch"):
        explain("")
