"""Every rule against its fixture, its page and its own examples; honest sources against all rules."""

import re
import time
from pathlib import Path

import pytest

from nkismith.verify.lint import PARSE, RULES, lint, reason
from nkismith.verify.lint.source import MAX_CHARACTERS, MAX_DEPTH
from nkismith.verify.reasons import Reason

FIXTURES = Path(__file__).parent / "fixtures"
HEADER = "import nki\nimport nki.isa as nisa\nimport nki.language as nl\n"
KERNEL = "\n@nki.jit\ndef scale(x):\n    return x\n"


def sdk_of(rule):
    return "2.32" if RULES[rule].before else "2.33"


def blocks(kind):
    for path in sorted(FIXTURES.glob("*.py")):
        for part in re.split(r"(?m)^# -- ", path.read_text())[1:]:
            title, code = part.split("\n", 1)
            if title.startswith(kind):
                source = HEADER + code + ("" if "@nki.jit" in code and "def scale" in code else KERNEL)
                if path.stem == "entry":  # its fixtures define the kernel, or leave it out, on purpose
                    source = HEADER + code
                if code.startswith("from __future__"):
                    source = source.removeprefix(HEADER)
                yield pytest.param(path.stem, source, id=f"{path.stem}: {title.split(': ', 1)[1]}")


def rules_of(source, **options):
    return {finding.rule for finding in lint(source, entry="scale", params=("x",), **options)}


@pytest.mark.parametrize(("rule", "source"), [*blocks("offender")])
def test_an_offender_is_found(rule, source):
    assert rule in rules_of(source, sdk=sdk_of(rule))


@pytest.mark.parametrize(("rule", "source"), [*blocks("innocent")])
def test_an_innocent_is_left_alone(rule, source):
    assert lint(source, entry="scale", params=("x",), sdk=sdk_of(rule)) == ()


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_has_a_fixture_with_both_kinds(rule):
    text = (FIXTURES / f"{rule}.py").read_text()
    assert "# -- offender: " in text
    assert "# -- innocent: " in text


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_examples_on_a_rules_page_are_true(rule):
    assert rule.name in rules_of(HEADER + rule.bad, sdk=sdk_of(rule.name))
    assert lint(HEADER + rule.good, entry="scale", params=("x",), sdk=sdk_of(rule.name)) == ()


@pytest.mark.parametrize("rule", [name for name in RULES if RULES[name].before])
def test_what_only_the_old_compiler_refused_passes_from_2_33_on(rule):
    offenders = [block.values[1] for block in blocks("offender") if block.values[0] == rule]
    assert offenders
    for source in offenders:
        assert rule not in rules_of(source, sdk="2.33")


def test_findings_say_where_what_and_how():
    (finding,) = lint(HEADER + "\n\nimport os\n" + KERNEL, entry="scale", params=("x",))
    assert (finding.rule, finding.line) == ("import", 6)
    assert "os" in finding.message
    assert "nki" in finding.fix
    assert reason(finding) is Reason.FORBIDDEN_IMPORT


def test_findings_come_in_the_order_of_the_source():
    source = HEADER + "import os\nX = eval('1')\nimport sys\n" + KERNEL
    lines = [finding.line for finding in lint(source, entry="scale", params=("x",))]
    assert lines == sorted(lines) == [4, 5, 6]


def test_an_unknown_sdk_is_an_error_of_the_caller():
    with pytest.raises(ValueError, match=r'write a Neuron release such as "2\.33"'):
        lint(KERNEL, entry="scale", params=("x",), sdk="latest")


def test_the_spec_sets_the_limit_of_literals():
    source = HEADER + "T = (1, 2, 3, 4)\n" + KERNEL
    assert rules_of(source, max_literals=3) == {"literals"}
    assert rules_of(source, max_literals=4) == set()


UNREADABLE = {
    "syntax error": ("def scale(x:\n", 1),
    "return outside a function": ("\nreturn 1\n", 2),
    "Markdown fence": ("```python\nimport nki\n", 1),
    "NUL byte": ("x = 1\n\x00\n", 2),
    "NUL byte, as bytes": (b"x = 1\n\x00\n", 2),
    "not UTF-8": (b"x = 1\ny = '\xff'\n", 2),
    "UTF-16": ("x = 1\n".encode("utf-16"), 1),
    "byte order mark": (b"\xef\xbb\xbfx = 1\n", 1),
    "a coding that turns comments into code": ("# coding: utf-7\nx = 1\n", 1),
    "a coding in the second line": (b"#!/usr/bin/python\n# -*- coding: latin-1 -*-\n", 2),
    "a carriage return that starts a line in some readers": ("x = 1 # comment\rimport os\n", 1),
    "a form feed": ("x = 1\n\x0cy = 2\n", 2),
    "text that reads backwards": ("x = '\u202e' # \u2066\n", 1),
    "an invisible space": ("x\u200b = 1\n", 1),
    "a line separator": ("x = 1 # \u2028import os\n", 1),
    "a lone surrogate": ("x = '\ud800'\n", 1),
    "a byte that was read as a surrogate": ("x = 1\ny = '\udcff'\n", 2),
    "deep parentheses": ("x = " + "(" * 5000 + ")" * 5000, 1),
    "a deep list": ("x = " + "[" * 150 + "]" * 150, 1),
    "a long chain of operators": ("x = " + "-" * 9000 + "1", 1),
    "a long sum": ("x = " + "+".join(["1"] * 4000), 1),
    "deep blocks": ("".join("  " * i + "if 1:\n" for i in range(120)) + "  " * 120 + "pass\n", 1),
    "a long chain of elif": ("if 1:\n pass\n" + "elif 1:\n pass\n" * 2000, 1),
    "a long chain of attributes": ("x = a" + ".b" * 4000, 1),
    "a huge number": ("x = " + "9" * 9000, 1),
    "a long line": ("x = '" + "a" * 20000 + "'", 1),
    "a huge file": ("# comment\n" * (MAX_CHARACTERS // 10 + 1), 1),
    "a deep f-string": ('x = f"{' * 3000 + "1" + '}"' * 3000, 1),
}


@pytest.mark.parametrize(("source", "line"), UNREADABLE.values(), ids=UNREADABLE)
def test_what_cannot_be_read_is_a_parse_finding_and_not_a_crash(source, line):
    (finding,) = lint(source, entry="scale", params=("x",))
    assert (finding.rule, reason(finding)) == (PARSE, Reason.PARSE)
    assert finding.line >= line or line == 1
    assert finding.message
    assert finding.fix


def test_windows_line_ends_and_utf8_coding_lines_are_fine():
    source = ("# -*- coding: utf-8 -*-\n" + HEADER + KERNEL).replace("\n", "\r\n")
    assert lint(source.encode(), entry="scale", params=("x",)) == ()


def test_an_empty_file_has_no_entry():
    assert rules_of("") == {"entry"}


def test_deep_but_sane_sources_pass():
    source = HEADER + "T = " + "(" * 40 + "1," + ")" * 40 + KERNEL
    assert MAX_DEPTH >= 60
    assert rules_of(source) == set()


def test_warnings_of_the_parser_do_not_reach_the_caller(recwarn):
    lint(HEADER + "X = '\\d'\nY = 1 is 1\n" + KERNEL, entry="scale", params=("x",))
    assert not recwarn.list


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[3] / "prompts" / "examples").glob("*.py")), ids=str)
def test_our_own_examples_pass(path):
    source = path.read_text()
    name, params = re.search(r"@nki\.jit\ndef (\w+)\((.*?)\):", source).groups()
    assert lint(source, entry=name, params=tuple(p.strip() for p in params.split(","))) == ()


LONG = {
    "aliases": "a0 = 1\n" + "".join(f"a{i} = a{i - 1}\n" for i in range(1, 6500)),
    "aliases, last first": "".join(f"b{i} = b{i + 1}\n" for i in range(6500)) + "b6500 = nl\n",
    "aliases of each other": "a = b\nb = a\n" * 8000,
    "sums": ("x = " + "+".join(["x"] * 80) + "\n") * 600,
    "attributes": "x = nl.a.b.c.d.e.f.g\n" * 4500,
    "functions": "".join(f"def f{i}(a, b=f{i - 1}): return f{i}(b)\n" for i in range(1, 2200)),
    "methods": "class A:\n" + "".join(f" def m{i}(self): self._storage = self.shape.name == 1\n" for i in range(1700)),
    "a lattice of classes": "".join(
        f"class A{i}_{j}({', '.join(f'A{i - 1}_{k}' for k in range(3 * (i > 0)))}):\n def m{i}(self): self.a = 1\n"
        for i in range(90)
        for j in range(3)
    ),
    "classes": "".join(f"class A{i}(A{i - 1}):\n def m(self): self._storage = 1\n" for i in range(1, 1900)),
    "imports": "".join(f"import math as m{i}\nm{i} = 1\n" for i in range(3000)),
    "text": "t = f'{1}'\n" + "".join(f"t{i} = t + str(t{i - 1})\n" for i in range(1, 3800)),
}


@pytest.mark.acceptance
@pytest.mark.parametrize("source", LONG.values(), ids=LONG)
def test_a_long_source_takes_seconds_at_most(source):
    assert len(source) < MAX_CHARACTERS
    started = time.process_time()
    lint(HEADER + source + KERNEL, entry="scale", params=("x",))
    assert time.process_time() - started < 10
