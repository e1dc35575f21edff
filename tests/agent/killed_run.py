"""Runs the loop and kills itself with SIGKILL at a chosen point: killed_run POINT OP_DIR KERNELS."""

import os
import signal
import sys
from pathlib import Path

from nkismith.agent import graph, loop
from nkismith.agent.ledger import Caps, Ledger
from nkismith.agent.run import Plan, execute
from nkismith.results.store import RunStore
from tests.agent.fakes import MODEL, FakeJudge


def die(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)


class DyingJudge(FakeJudge):
    check = die


def main(point: str, op_dir: str, kernels: str) -> None:
    if point == "in_flight":  # the model answered, the ledger never heard of it
        settle = RunStore.settle

        def before_settling(self, call, **fields):
            return die() if fields["state"] == "replied" else settle(self, call, **fields)

        RunStore.settle = before_settling
    if point == "reply_stored":  # paid for, but not yet a draft
        RunStore.update_attempt = die
    judge = DyingJudge() if point == "checking" else FakeJudge()
    plan = Plan(op="row_scale", spec=op_dir, model=MODEL, caps=Caps(usd=2.0, attempts=6), kernels_root=kernels)
    run = loop.begin(plan, judge=judge)
    run.ledger = Ledger(run.store, run.model, run.plan.caps, first_wait_s=0.01)
    print(run.store.id, flush=True)
    execute(run, graph.invoke)


if __name__ == "__main__":
    main(sys.argv[1], str(Path(sys.argv[2])), sys.argv[3])
