"""A report says what was tried, why each attempt failed, what it cost, and labels every time as modelled."""

import json

import pytest

from nkismith.results import report
from nkismith.results.store import RunStore


@pytest.fixture
def store(tmp_path):
    config = {"target": "trn2", "lnc": 1, "sdk": "2.33", "provider": "handoff", "model": "m", "caps": {"usd": 2.0}}
    store = RunStore.create(tmp_path, "softmax-1", "softmax", config)
    refused = {
        "stage": "legality", "reason": "illegal", "rule": "partition_limit", "line": 7, "message": "132 partitions",
        "fix": "tile by 128", "case": "N=131",
    }  # fmt: skip
    common = {"sample": 0, "round": 0, "prompt": "sha256:p", "prompt_tokens": 8000, "reply": "sha256:r"}
    store.add_attempt(**common, attempt=1, kind="draft", stage="legality", reason="illegal", accepted=0,
                      verdict=json.dumps(refused), change="")  # fmt: skip
    store.add_attempt(**common, attempt=2, kind="revise", parent=1, stage="profile", reason="", accepted=1,
                      verdict=json.dumps({"stage": "profile", "max_ratio": 0.001}), change="tiled the rows",
                      latency_us=120.0, low_us=100.0, high_us=150.0, floor_us=60.0)  # fmt: skip
    store.add_attempt(**{**common, "reply": None}, attempt=3, kind="optimise", parent=2)
    store.update_run(status="ended", ended="budget", accepted=1, best=2, message="the cap", kernel="kernel.py")
    return store


def test_the_report_is_plain_data(store):
    built = report.build(store)
    assert json.loads(json.dumps(built)) == built
    assert [row["id"] for row in built["attempts"]] == [1, 2]  # a question that was never answered is no attempt
    assert built["attempts"][0]["rule"] == "partition_limit" and built["attempts"][0]["line"] == 7
    assert built["best"]["of_floor_percent"] == 50.0 and built["best"]["max_ratio"] == 0.001
    assert built["cost"]["cap_usd"] == 2.0 and built["ended"] == "budget"


def test_the_page_tells_the_whole_story(store):
    path = report.write(store)
    page = path.read_text()
    for said in ("# softmax: accepted", "120.0 µs modelled", "floor 60.0 µs", "50.0 % of the floor", "kernel.py",
                 "the dollar or token cap", "`partition_limit`", "132 partitions", "tile by 128", "N=131",
                 "tiled the rows", "of $2.00"):  # fmt: skip
        assert said in page, said
    assert json.loads(path.with_name("report.json").read_text())["run"] == "softmax-1"
