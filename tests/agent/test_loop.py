"""The graph: what follows on what verdict, and how a run ends."""

import json
from pathlib import Path

from nkismith.agent.ledger import Caps
from tests.agent.fakes import FakeJudge, Raw, Refuse, Say, kernel


def kinds(store):
    return [(row["sample"], row["attempt"], row["kind"]) for row in store.attempts() if row["reply"]]


def test_a_verified_first_draft_is_accepted_with_evidence(server, run_loop):
    server(Say(kernel("ok 100")))
    outcome, store, judge = run_loop()
    assert outcome.accepted and outcome.ended == "done" and outcome.latency_us == 100
    (source, evidence) = judge.accepted[0]
    assert source == "# ok 100\npass\n"
    assert evidence["run"] == store.id and evidence["attempts"] == 1 and evidence["verdict"]["accepted"]
    report = json.loads((store.folder / "report.json").read_text())
    assert report["accepted"] and report["attempts"][0]["of_floor_percent"] == 50.0


def test_a_refused_draft_is_revised_with_its_verdict(server, run_loop):
    requests = server(Say(kernel("bad mismatch")), Say(kernel("ok 100", "masked the last tile")))
    outcome, store, _ = run_loop()
    assert kinds(store) == [(0, 1, "draft"), (0, 2, "revise")]
    first, second = (request["body"] for request in requests.requests)
    assert second["system"] == first["system"]
    assert second["messages"][0]["content"][0] == first["messages"][0]["content"][0]
    turn = second["messages"][0]["content"][1]["text"]
    assert "mismatch" in turn and "S=30 C=40" in turn and "look again" in turn and "# bad mismatch" in turn
    assert ">    2  pass" in turn  # the offending line, marked
    assert outcome.accepted and outcome.attempts == 2


def test_a_reply_without_exactly_one_block_is_charged_and_told_back(server, run_loop):
    server(Say("no code today"), Say(kernel("ok 1") + kernel("ok 2")), Say(kernel("ok 100")))
    outcome, store, judge = run_loop()
    assert [row["reason"] for row in store.attempts()] == ["reply_format", "reply_format", ""]
    assert len(judge.checked) == 1 and outcome.accepted and outcome.attempts == 3
    assert all(call["usd"] > 0 for call in store.calls())


def test_cut_off_and_refused_replies_say_so(server, run_loop):
    server(Say("```python\n# ok 1", stop_reason="max_tokens"), Say("", stop_reason="refusal"), Say(kernel("ok 100")))
    _, store, _ = run_loop()
    assert [row["reason"] for row in store.attempts()] == ["reply_truncated", "reply_refused", ""]


def test_a_lane_is_given_up_after_its_tries(server, run_loop):
    server(Say(kernel("bad mismatch")))
    outcome, store, _ = run_loop(tries=3)
    assert (outcome.ended, outcome.accepted, outcome.attempts) == ("tries", False, 3)
    markdown = (store.folder / "report.md").read_text()
    assert "no kernel" in markdown and markdown.count("**Attempt") == 3


def test_a_beam_drafts_side_by_side_and_keeps_the_fastest(server, run_loop):
    server(Say(kernel("ok 300")), Say(kernel("bad mismatch")), Say(kernel("ok 200")))
    outcome, store, _ = run_loop(beam=3)
    assert sorted(kinds(store)) == [(0, 1, "draft"), (1, 1, "draft"), (2, 1, "draft")]
    assert outcome.latency_us == 200


def test_an_optimised_kernel_replaces_its_parent_only_outside_the_noise(server, run_loop):
    server(
        Say(kernel("ok 100")),
        Say(kernel("ok 99", "tiny gain")),
        Say(kernel("ok 90", "wider tiles")),
        Say(kernel("bad x")),
    )
    outcome, store, _ = run_loop(rounds=3, tries=2, patience=5)
    assert outcome.latency_us == 90 and outcome.accepted
    rows = store.attempts()
    assert [row["round"] for row in rows] == [0, 1, 2, 3]
    assert [row["parent"] for row in rows] == [None, 1, 1, 3]  # 99 is within 2 % and is no parent


def test_optimising_stops_without_gain_and_near_the_floor(server, run_loop):
    server(Say(kernel("ok 100")))
    outcome, _, _ = run_loop(rounds=5, patience=2)
    assert outcome.attempts == 3
    server(Say(kernel("ok 54")))  # 93 % of the floor of 50
    outcome, _, _ = run_loop(rounds=5, stop_at=90)
    assert outcome.attempts == 1


def test_optimisation_prompts_show_diagnosis_and_history(server, run_loop):
    requests = server(Say(kernel("ok 100")), Say(kernel("bad x", "fused two steps")), Say(kernel("ok 80")))
    run_loop(rounds=2, tries=2)
    turn = requests.requests[2]["body"]["messages"][0]["content"][1]["text"]
    for said in (
        "busiest here is **dma**",
        "VectorE waits for DMA",
        "50.0 %",
        "fused two steps",
        "30.0 µs  dma_copy: pass",
    ):
        assert said in turn


def test_the_attempt_cap_is_hard_and_the_best_kernel_is_still_accepted(server, run_loop):
    server(Say(kernel("ok 100")))
    outcome, _, judge = run_loop(rounds=9, patience=9, caps=Caps(attempts=3))
    assert (outcome.ended, outcome.attempts, outcome.accepted) == ("attempts", 3, True)
    assert len(judge.accepted) == 1


def test_an_unreachable_model_is_not_a_wrong_kernel(server, run_loop):
    server(Refuse(529))
    outcome, store, judge = run_loop(retries=2)
    assert (outcome.ended, outcome.accepted, outcome.attempts, outcome.usd) == ("unavailable", False, 0, 0.0)
    assert not judge.checked and len(store.calls()) == 3
    assert "no draft is counted as wrong" in (store.folder / "report.md").read_text()


def test_unreadable_replies_are_retried_and_then_end_the_run(server, run_loop):
    server(Raw(b"<html>gateway</html>", "text/html"))
    outcome, store, _ = run_loop(retries=1)
    assert outcome.ended == "unavailable"
    assert [call["state"] for call in store.calls()] == ["failed", "failed"]


def test_a_refused_request_ends_the_run_with_what_to_do(server, run_loop):
    server(Refuse(401, "authentication_error", "invalid x-api-key"))
    outcome, _, _ = run_loop()
    assert outcome.ended == "provider" and "ANTHROPIC_API_KEY" in outcome.message


def test_a_failure_of_ours_leaves_a_report_and_raises(server, run_loop):
    class Broken(FakeJudge):
        def check(self, *args, **kwargs):
            raise ZeroDivisionError("our own bug")

    server(Say(kernel("ok 100")))
    try:
        run_loop(judge=Broken())
    except ZeroDivisionError:
        pass
    else:
        raise AssertionError("a failure of ours must not be swallowed")


def test_ctrl_c_ends_with_a_report(server, run_loop, data):
    def interrupt():
        raise KeyboardInterrupt

    class Impatient(FakeJudge):
        def check(self, *args, **kwargs):
            raise KeyboardInterrupt

    server(Say(kernel("ok 100")))
    outcome, store, _ = run_loop(judge=Impatient())
    assert outcome.ended == "interrupted" and Path(outcome.report).is_file() and not outcome.accepted
    outcome, _, _ = run_loop(resume=store.id)
    assert outcome.accepted and outcome.attempts == 1  # the reply was kept
