from pathlib import Path

import pytest

from nkismith.agent import graph, loop
from nkismith.agent.ledger import Caps, Ledger
from nkismith.agent.run import Plan, execute
from nkismith.kernels import scaffold
from tests.agent.fakes import MODEL, FakeJudge, MessagesServer


@pytest.fixture
def data(tmp_path, monkeypatch):
    """A data folder of its own."""
    monkeypatch.setenv("NKISMITH_DATA", str(tmp_path / "data"))
    return tmp_path / "data"


@pytest.fixture
def op_dir(tmp_path):
    """An op that is not bundled: the scaffold's row scaling."""
    return scaffold.new("row_scale", tmp_path)


@pytest.fixture
def server(monkeypatch):
    """Start a Messages server from a script; the client finds it through the environment."""
    started = []

    def start(*script):
        running = MessagesServer(script).__enter__()
        started.append(running)
        monkeypatch.setenv("ANTHROPIC_BASE_URL", running.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
        return running

    yield start
    for running in started:
        running.__exit__()


@pytest.fixture
def run_loop(data, op_dir, tmp_path):
    """Run the loop on the scaffolded op with the fake judge; returns (outcome, store, judge)."""

    def go(*, resume=None, retries=6, judge=None, **options):
        judge = judge or FakeJudge()
        if resume is None:
            caps = options.pop("caps", Caps(usd=5.0, attempts=12))
            plan = Plan(op="row_scale", spec=str(op_dir), model=MODEL, caps=caps,
                        kernels_root=str(tmp_path / "kernels"), **options)  # fmt: skip
            run = loop.begin(plan, judge=judge)
        else:
            run = loop.resume(resume, judge=judge)
        run.ledger = Ledger(
            run.store, run.model, run.plan.caps, retries=retries, first_wait_s=0.01, longest_wait_s=0.02
        )
        outcome = execute(run, graph.invoke)
        return outcome, run.store, judge

    return go


@pytest.fixture
def handoff(data):
    """Write the reply of a hand-off attempt of a run."""

    def write(run: str, attempt: int, text: str, sample: int = 0) -> Path:
        lane = data / "runs" / run / "handoff" / (f"sample-{sample}" if sample else "")
        path = lane / f"attempt-{attempt:02d}" / "reply.md"
        path.write_text(text)
        return path

    return write
