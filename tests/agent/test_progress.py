"""What a command says of its progress where nobody can watch a bar."""

import io

import pytest
from rich.console import Console

from nkismith.agent.commands.progress import QUIET_S, Progress


def lines(terminal, steps):
    """What is left on the console of steps at (seconds, status, done, of)."""
    now = [0.0]
    console = Console(file=io.StringIO(), force_terminal=terminal, width=200)
    with Progress("rope_3d", console, clock=lambda: now[0]) as bar:
        for seconds, *said in steps:
            now[0] = seconds
            bar.at(*said)
    return console.file.getvalue()


def test_a_log_gets_a_line_every_half_minute_and_nothing_of_short_work():
    assert lines(False, [(1, "compare [a]", 1, 9), (QUIET_S - 1, "compare", 2, 9)]) == ""
    said = lines(False, [(QUIET_S, "compare [a]"), (QUIET_S + 1, "compare", 2, 9), (3 * QUIET_S, "profile", 7, 9)])
    assert said == "rope_3d: compare [a]\nrope_3d: profile 7 of 9\n"


@pytest.mark.parametrize("status", ["compare [/a]", "x[0, 1]"])
def test_a_terminal_gets_a_bar_whatever_the_text(status):
    assert "rope_3d" in lines(True, [(1, status, 1, 9)])
