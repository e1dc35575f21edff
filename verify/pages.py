"""The pages below docs that are rendered from tables in code: reasons, lint and legality rules, instructions.

`python docs/generate.py` writes them; `explain` gives the pages of one code.
"""

from __future__ import annotations

import builtins
import difflib
from pathlib import Path

from nkismith.verify.lint.rule import RULES as LINT
from nkismith.verify.lint.rule import Rule as LintRule
from nkismith.verify.reasons import EXPLANATIONS, Reason, of_rule
from nkismith.verify.simulator.cards import card, public
from nkismith.verify.simulator.legality.rules import RULES as LEGALITY
from nkismith.verify.simulator.legality.rules import SECTIONS, Example
from nkismith.verify.simulator.legality.rules import Rule as LegalityRule

FOLDERS = ("reasons", "lint", "legality", "instructions")
_LINE = 100  # characters of an example's line that are shown


class UnknownCode(Exception):
    """Nothing has this name: no reason, no lint rule, no legality rule. The message names near ones."""


def explain(code: str) -> str:
    """The Markdown of a reason code, a lint rule or a legality rule; of all that share the name.

    The name of an exception is explained as the reason `raised`. Raises UnknownCode.
    """
    found = [_reason(Reason(code))] if code in EXPLANATIONS else []
    found += [_lint(LINT[code])] if code in LINT else []
    found += [_legality(LEGALITY[code])] if code in LEGALITY else []
    if not found and _is_exception(code):  # a verdict names what a draft raised as the rule
        found = [_reason(Reason.RAISED)]
    if not found:
        near = difflib.get_close_matches(code, [*Reason, *LINT, *LEGALITY], n=3)
        hint = (
            f"Did you mean {' or '.join(near)}?" if near else f"Reasons are {', '.join(Reason)}; rules are below docs."
        )
        raise UnknownCode(f"No reason, lint rule or legality rule is called {code!r}. {hint}")
    return "\n".join(found)


def _is_exception(name: str) -> bool:
    thing = getattr(builtins, name, None)
    return isinstance(thing, type) and issubclass(thing, Exception)


def pages() -> dict[str, str]:
    """Every page: path below docs -> Markdown."""
    cards = [card(name) for name in public()]
    found = {f"reasons/{reason}.md": _reason(reason) for reason in Reason}
    found |= {f"lint/{rule.name}.md": _lint(rule) for rule in LINT.values()}
    found |= {f"legality/{rule.name}.md": _legality(rule) for rule in LEGALITY.values()}
    found |= {f"instructions/{one.name}.md": one.markdown() for one in cards}
    found["reasons/README.md"] = _index(
        "Reasons of a verdict",
        "What the code in a verdict means. A rejected draft carries one; with `illegal`, and with those of lint, "
        "comes the name of the rule.",
        _entries({reason.value: EXPLANATIONS[reason].meaning for reason in Reason}),
    )
    found["lint/README.md"] = _index(
        "Lint rules",
        "What a draft's source may contain. Everything is read before any of it runs.",
        _entries({rule.name: rule.what for rule in LINT.values()}),
    )
    found["legality/README.md"] = _index(
        "Legality rules",
        "What the hardware and the API take. Whatever no rule allows is refused, with the line, what was seen, the "
        "limit and the way out.",
        "\n".join(f"## {title}\n\n{_entries({r.name: r.what for r in rules})}" for title, rules in SECTIONS.items()),
    )
    rows = [f"| [{c.name}]({c.name}.md) | {', '.join(c.engines)} | {c.meaning.splitlines()[0]} |" for c in cards]
    found["instructions/README.md"] = _index(
        "Instructions",
        "`nki.isa` as the simulator defines it: signature, engines, limits, cost.",
        "\n".join(["| instruction | engines | meaning |", "|---|---|---|", *rows]) + "\n",
    )
    return found


def write(docs: Path) -> None:
    """Write all pages below `docs` and remove those of codes, rules and instructions that are gone."""
    wanted = pages()
    for folder in FOLDERS:
        (docs / folder).mkdir(parents=True, exist_ok=True)
        for old in (docs / folder).glob("*.md"):
            if f"{folder}/{old.name}" not in wanted:
                old.unlink()
    for name, text in wanted.items():
        (docs / name).write_text(text, encoding="utf-8")


def _reason(reason: Reason) -> str:
    e = EXPLANATIONS[reason]
    rules = [f"[`{r.name}`](../lint/{r.name}.md)" for r in LINT.values() if r.reason is reason]
    if reason is Reason.ILLEGAL:
        rules.append("those of [legality](../legality/README.md)")
    else:
        rules += [f"[`{name}`](../legality/{name}.md)" for name in LEGALITY if of_rule(name) is reason]
    found_by = f"\n**Rules.** {', '.join(rules)}\n" if rules else ""
    return (
        f"# `{reason}`\n\nStage: {e.stage}\n\n{e.meaning}\n\n"
        f"**Typical cause.** {e.cause}\n\n**How to fix it.** {e.fix}\n{found_by}"
    )


def _lint(rule: LintRule) -> str:
    until = f" Applies to SDKs before {rule.before[0]}.{rule.before[1]}." if rule.before else ""
    return (
        f"# `{rule.name}`\n\nReason: [`{rule.reason}`](../reasons/{rule.reason}.md).{until}\n\n{rule.what}\n\n"
        f"**Why.** {rule.why}\n\nRefused:\n\n{_code(rule.bad)}\nAccepted:\n\n{_code(rule.good)}"
    )


def _legality(rule: LegalityRule) -> str:
    reason = of_rule(rule.name)
    return (
        f"# `{rule.name}`\n\nReason: [`{reason}`](../reasons/{reason}.md).\n\n{rule.what}\n\n"
        f"**Why.** {rule.why}\n\n**How to fix it.** {rule.fix}\n\nSource: {rule.source}.\n"
        f"{''.join(map(_example, rule.examples))}"
    )


def _example(example: Example) -> str:
    machine = f"{example.target}, SDK {example.sdk}" + (", two cores" if example.lnc == 2 else "")
    given = ", ".join(f"`{one}`" for one in example.given.split("; "))
    code = "\n".join(example.lines)
    return (
        f"\nRefused (`-`) and accepted (`+`) on {machine}, with {given}:\n\n```diff\n{code}\n```\n\n"
        f"The refusal says: {example.says}. The accepted kernel returns `{example.gives}`.\n"
    )


def _code(source: str) -> str:
    fence = "````" if "```" in source else "```"
    shown = "\n".join(line if len(line) <= _LINE else f"{line[:_LINE]} ..." for line in source.split("\n"))
    return f"{fence}python\n{shown}\n{fence}\n"


def _entries(abouts: dict[str, str]) -> str:
    return "".join(f"- [`{name}`]({name}.md): {about}\n" for name, about in abouts.items())


def _index(title: str, text: str, entries: str) -> str:
    return f"# {title}\n\n{text}\n\n{entries}"
