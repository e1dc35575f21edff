"""docs/reasons and docs/lint, rendered from the tables in code: `python -m nkismith.verify.pages [docs]`."""

import sys
from pathlib import Path

from nkismith.verify.lint.rule import RULES, Rule
from nkismith.verify.reasons import EXPLANATIONS, Reason

_LINE = 100  # characters of an example's line that are shown


def pages() -> dict[str, str]:
    """Every page: path below docs -> Markdown."""
    found = {f"reasons/{reason}.md": _reason(reason) for reason in Reason}
    found |= {f"lint/{rule.name}.md": _rule(rule) for rule in RULES.values()}
    found["reasons/README.md"] = _index(
        "Reasons of a verdict",
        "What the code in a verdict means. A rejected draft carries one; with `illegal`, and with those of lint, "
        "comes the name of the rule.",
        {reason.value: EXPLANATIONS[reason].meaning for reason in Reason},
    )
    found["lint/README.md"] = _index(
        "Lint rules",
        "What a draft's source may contain. Everything is read before any of it runs.",
        {rule.name: rule.what for rule in RULES.values()},
    )
    return found


def write(docs: Path) -> None:
    """Write all pages below `docs` and remove those of codes and rules that are gone."""
    wanted = pages()
    for folder in ("reasons", "lint"):
        (docs / folder).mkdir(parents=True, exist_ok=True)
        for old in (docs / folder).glob("*.md"):
            if f"{folder}/{old.name}" not in wanted:
                old.unlink()
    for name, text in wanted.items():
        (docs / name).write_text(text, encoding="utf-8")


def _reason(reason: Reason) -> str:
    e = EXPLANATIONS[reason]
    rules = [f"[`{r.name}`](../lint/{r.name}.md)" for r in RULES.values() if r.reason is reason]
    found_by = f"\n**Rules.** {', '.join(rules)}\n" if rules else ""
    return (
        f"# `{reason}`\n\nStage: {e.stage}\n\n{e.meaning}\n\n"
        f"**Typical cause.** {e.cause}\n\n**How to fix it.** {e.fix}\n{found_by}"
    )


def _rule(rule: Rule) -> str:
    until = f" Applies to SDKs before {rule.before[0]}.{rule.before[1]}." if rule.before else ""
    return (
        f"# `{rule.name}`\n\nReason: [`{rule.reason}`](../reasons/{rule.reason}.md).{until}\n\n{rule.what}\n\n"
        f"**Why.** {rule.why}\n\nRefused:\n\n{_code(rule.bad)}\nAccepted:\n\n{_code(rule.good)}"
    )


def _code(source: str) -> str:
    fence = "````" if "```" in source else "```"
    shown = "\n".join(line if len(line) <= _LINE else f"{line[:_LINE]} ..." for line in source.split("\n"))
    return f"{fence}python\n{shown}\n{fence}\n"


def _index(title: str, text: str, entries: dict[str, str]) -> str:
    lines = [f"- [`{name}`]({name}.md): {about}" for name, about in entries.items()]
    return f"# {title}\n\n{text}\n\n" + "\n".join(lines) + "\n"


if __name__ == "__main__":
    write(Path(sys.argv[1] if len(sys.argv) > 1 else "docs"))
