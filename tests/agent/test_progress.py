"""What a command says of its progress where nobody can watch a bar."""

import io
import time

import pytest
from rich.console import Console

from nkismith.agent.commands.progress import Progress
from nkismith.agent.live import View
from nkismith.agent.run import Plan
from nkismith.results.store import RunStore


def console(terminal):
    return Console(file=io.StringIO(), force_terminal=terminal, width=200)


def test_a_log_gets_a_line_from_time_to_time_also_while_one_step_takes_long():
    log = console(terminal=False)
    with Progress("rope_3d", log, quiet_s=0.05) as bar:
        bar.at("compare S=30 [a]", 7, 9)
        until = time.monotonic() + 10
        while log.file.getvalue().count("\n") < 3 and time.monotonic() < until:
            time.sleep(0.01)
    assert log.file.getvalue().splitlines()[:3] == ["rope_3d: compare S=30 [a] 7 of 9"] * 3
    said = log.file.getvalue()
    time.sleep(0.2)
    assert log.file.getvalue().count("\n") <= said.count("\n") + 1  # one may have been on its way


def test_short_work_leaves_a_log_alone():
    log = console(terminal=False)
    with Progress("rope_3d", log) as bar:
        bar.at("compare")
    assert log.file.getvalue() == ""


@pytest.mark.parametrize("status", ["compare [/a]", "x[0, 1]"])
def test_a_terminal_gets_a_bar_whatever_the_text(status):
    screen = console(terminal=True)
    with Progress("rope_3d", screen) as bar:
        bar.at(status, 1, 9)
    assert "rope_3d" in screen.file.getvalue()


def test_a_run_in_a_log_says_from_time_to_time_what_is_judged_but_not_that_it_waits(tmp_path):
    store, log = RunStore.create(tmp_path, "row_scale-1", "row_scale", {}), console(terminal=False)
    with View(store, Plan(op="row_scale", spec="row_scale"), log, quiet_s=0.05) as view:
        view.note(0, "waiting for reply.md")
        view.note(1, "compare S=30 [a]")
        until = time.monotonic() + 10
        while log.file.getvalue().count("compare") < 2 and time.monotonic() < until:
            time.sleep(0.01)
    said = log.file.getvalue().splitlines()
    assert said[:3] == ["lane 0: waiting for reply.md", *["lane 1: compare S=30 [a]"] * 2]
    assert sum("waiting" in line for line in said) == 1
