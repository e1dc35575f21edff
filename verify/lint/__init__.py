"""Read a draft before anything of it runs, and refuse what no honest kernel needs.

The recorder runs a draft as Python in the process that records it. What that Python can name is therefore part of what
keeps a verdict true: everything is refused that is not on a list, with a rule's name, the line and the way out.
"""

from nkismith.verify.lint import access, behaviour, definitions, imports, statements, subset, text
from nkismith.verify.lint.rule import RULES, Finding, Rule
from nkismith.verify.lint.source import Source, Unreadable, read
from nkismith.verify.reasons import Reason

PARSE = "parse"
MAX_LITERALS = 1000

__all__ = ["MAX_LITERALS", "PARSE", "RULES", "Finding", "Rule", "lint", "reason"]
RULE_MODULES = (imports, access, definitions, statements, behaviour, text, subset)  # importing them fills RULES


def lint(
    source: str | bytes,
    *,
    entry: str,
    params: tuple[str, ...],
    sdk: str = "2.33",
    max_literals: int = MAX_LITERALS,
) -> tuple[Finding, ...]:
    """Findings of all rules that apply to `sdk`, in the order of the source. Empty if the draft may be recorded.

    Args:
        source: text, or the bytes of the file.
        entry: name of the op, which the kernel function must have.
        params: the spec's inputs in order, which its parameters must be.
        sdk: Neuron release, "2.33".
        max_literals: words of literal data that the spec allows.

    A source that cannot be read gives one finding of the rule `parse`. Nothing of the source is executed.
    """
    release = _release(sdk)
    try:
        characters, tree = read(source)
    except Unreadable as error:
        return (Finding(PARSE, error.line, error.message, error.fix),)
    parsed = Source(characters, tree, entry, params, release, max_literals)
    findings = {
        Finding(rule.name, seen.line, seen.message, seen.fix)
        for rule in RULES.values()
        if rule.before is None or release < rule.before
        for seen in rule.check(parsed)
    }
    return tuple(sorted(findings, key=lambda finding: (finding.line, finding.rule, finding.message)))


def reason(finding: Finding) -> Reason:
    """The verdict's reason code for a finding."""
    return RULES[finding.rule].reason


def _release(sdk: str) -> tuple[int, int]:
    numbers = sdk.split(".")
    if len(numbers) < 2 or not all(n.isdigit() for n in numbers[:2]):
        raise ValueError(f'sdk={sdk!r}: write a Neuron release such as "2.33"')
    return int(numbers[0]), int(numbers[1])
