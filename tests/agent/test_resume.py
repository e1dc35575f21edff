"""A run killed with SIGKILL goes on where it was, buys nothing twice, and stays within its cap."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nkismith.results.store import RunStore
from tests.agent.fakes import Say, kernel

ROOT = Path(__file__).parents[2]


def killed(point, op_dir, tmp_path):
    """Run until the kill; returns the run's name."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.agent.killed_run", point, str(op_dir), str(tmp_path / "kernels")],
        cwd=ROOT, env=dict(os.environ), capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("point", "requests", "states"),
    [
        # In flight at the kill: charged at its maximum, and asked again.
        ("in_flight", 2, ["lost", "replied"]),
        # Stored: never asked again, whether or not its draft was looked at.
        ("reply_stored", 1, ["replied"]),
        ("checking", 1, ["replied"]),
    ],
)
def test_killed_at_three_points(point, requests, states, server, run_loop, op_dir, tmp_path, data):
    running = server(Say(kernel("ok 100"), input_tokens=3000, output_tokens=2000))
    run = killed(point, op_dir, tmp_path)
    outcome, store, _ = run_loop(resume=run)
    assert outcome.accepted and outcome.run == run
    assert len(running.requests) == requests
    calls = store.calls()
    assert [call["state"] for call in calls] == states
    paid = (3000 * 4 + 2000 * 20) / 1e6
    assert calls[-1]["usd"] == pytest.approx(paid)
    if point == "in_flight":
        assert calls[0]["usd"] == calls[0]["reserved_usd"] > paid
        first, second = (request["body"]["max_tokens"] for request in running.requests)
        assert first == 64_000 and 4_000 <= second < 36_000  # of $2 are left: $0.72 less the prompts, at $20 a million
    assert outcome.usd == pytest.approx(sum(call["usd"] for call in calls)) and outcome.usd <= 2.0


def test_a_finished_run_resumed_asks_nothing_and_judges_nothing(server, run_loop):
    running = server(Say(kernel("bad mismatch")), Say(kernel("ok 100")))
    _, store, _ = run_loop()
    outcome, _, judge = run_loop(resume=store.id)
    assert outcome.accepted and len(running.requests) == 2 and judge.checked == []


def test_two_processes_cannot_hold_one_run(server, run_loop, data):
    server(Say(kernel("ok 100")))
    _, store, _ = run_loop()
    other = RunStore.open(data, store.id)
    with other.session(), pytest.raises(Exception, match="another process"):
        run_loop(resume=store.id)
