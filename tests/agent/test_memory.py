"""Lessons are mined from attempts, good and bad, ranked by kind and bottleneck, and can be left out."""

from nkismith.agent import memory
from nkismith.results.store import Index
from tests.agent.fakes import Say, kernel


def run_with_history(server, run_loop):
    server(
        Say(kernel("bad mismatch")),
        Say(kernel("ok 100", "sliced the last tile to its extent")),
        Say(kernel("ok 60", "loaded four rows a partition")),
        Say(kernel("bad illegal", "kept everything in PSUM")),
    )
    return run_loop(rounds=2, tries=2, patience=5, stop_at=99)


def test_repairs_gains_and_failed_ideas_become_lessons(server, run_loop, data):
    _, store, _ = run_with_history(server, run_loop)
    lessons = {row["change"]: row for row in Index(data).lessons()}
    repair = lessons["sliced the last tile to its extent"]
    assert repair["positive"] and repair["reason"] == "mismatch" and repair["effect"] == "verified"
    gain = lessons["loaded four rows a partition"]
    assert gain["positive"] and gain["bottleneck"] == "dma" and "40 % less" in gain["effect"]
    failed = lessons["kept everything in PSUM"]
    assert not failed["positive"] and "illegal" in failed["effect"]
    assert {row["run"] for row in lessons.values()} == {store.id}


def test_later_runs_see_lessons_of_their_kind_unless_switched_off(server, run_loop):
    run_with_history(server, run_loop)
    requests = server(Say(kernel("ok 100")))
    run_loop()
    run_loop(use_lessons=False)
    with_lessons, without = (request["body"]["messages"][0]["content"][0]["text"] for request in requests.requests)
    assert "sliced the last tile to its extent" in with_lessons and "mismatch at compare" in with_lessons
    assert "sliced the last tile" not in without


def test_ranking_prefers_kind_then_bottleneck_then_weight(data):
    index = Index(data)
    row = {"op": "x", "reason": "", "situation": "s", "effect": "e", "positive": 1, "run": "r", "created_at": 0.0}
    index.add_lessons([
        {**row, "id": "1", "kind": "matmul", "bottleneck": "dma", "change": "other kind", "weight": 9.0},
        {**row, "id": "2", "kind": "reduction", "bottleneck": "vector", "change": "same kind", "weight": 1.0},
        {**row, "id": "3", "kind": "reduction", "bottleneck": "dma", "change": "same both", "weight": 0.5},
        {**row, "id": "4", "kind": "scan", "bottleneck": "tensor", "change": "neither", "weight": 9.0},
    ])  # fmt: skip
    shown = memory.shown(index, "reduction", "dma")
    assert [line.split(" → ")[1] for line in shown] == ["same both", "same kind", "other kind"]
    assert [line.split(" → ")[1] for line in memory.shown(index, "reduction", None)] == ["same kind", "same both"]
