"""What the documentation of each function says "must", "only", "at most" and "not supported" about, one line each.

`constraints.txt` has a line a call: target, cores if two, what comes of it (`ok` or the rule that refuses it), and the
code. Its limits are those of the pages of nki.isa and nki.language; a legal neighbour stands beside what they forbid.
T(shape, dtype, buffer, value, address) is a tile that is filled, V(dtype, partitions) one with a value a partition.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from nkismith.verify.simulator import install, legality
from nkismith.verify.simulator.errors import LegalityError
from nkismith.verify.simulator.execute import execute
from nkismith.verify.simulator.kernel import record
from tests.verify.simulator.one import nisa, nki, nl

SBUF, PSUM, HBM = nl.sbuf, nl.psum, nl.shared_hbm


def filled(shape: tuple, dt: str = "float32", buf: Any = None, fill: float = 0, addr: Any = None) -> Any:
    """A tensor without unwritten data."""
    tensor = nl.ndarray(shape, dtype=getattr(nl, dt), buffer=buf or SBUF, address=addr)
    if buf is HBM:
        zeros = nl.ndarray((1, prod(shape)), dtype=tensor.dtype, buffer=SBUF)
        nisa.memset(zeros, 0)
        nisa.dma_copy(tensor, zeros)
    else:
        nisa.memset(tensor, 0 if tensor.dtype.endswith("_x4") else fill)
    return tensor


def column(dt: str = "float32", p: int = 128) -> Any:
    """A value for each of p partitions."""
    return filled((p, 1), dt)


NAMES = {"T": filled, "V": column, "S": SBUF, "P": PSUM, "H": HBM, "nl": nl, "nisa": nisa, "nki": nki, "np": np}


def sections() -> Iterator[tuple[str, list[tuple[int, str]]]]:
    """The parts of the table: their heading, and their lines with line numbers."""
    name, lines = "", []
    for number, line in enumerate(Path(__file__).with_name("constraints.txt").read_text().splitlines(), 1):
        if line.startswith("# "):
            if lines:
                yield name, lines
            name, lines = line[2:], []
        elif line:
            lines.append((number, line))
    yield name, lines


def outcome(code: str, target: str, lnc: int) -> str:
    """`ok`, or the rule that refuses a kernel with this code; a refusal has a line."""
    scope: dict[str, Any] = dict(NAMES)
    exec(compile(f"def kernel():\n    {code}\n", "constraint.py", "exec"), scope)
    try:
        trace, _ = record(scope["kernel"], (), target=target, lnc=lnc)
        legality.check(trace)
        execute(trace, [])
    except LegalityError as error:
        assert error.line, f"{code}: {error}"
        return error.rule
    return "ok"


@pytest.mark.parametrize(("name", "lines"), [pytest.param(n, lines, id=n) for n, lines in sections()])
def test_documented_limits_are_held_and_nothing_more(name, lines):
    wrong = []
    for number, line in lines:
        head, code = line.split(": ", 1)
        target, *two, expected = head.split()
        install(target=target)
        seen = outcome(code, target, 2 if two else 1)
        if seen != expected:
            wrong.append(f"line {number}, {target}: {code} gives {seen}, not {expected}")
    install(target="trn2")
    assert not wrong, "\n".join(wrong)
