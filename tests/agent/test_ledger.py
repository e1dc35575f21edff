"""Caps hold whatever the model does; every failure is charged as what it cost."""

import pytest

from nkismith.agent.ledger import Caps
from tests.agent.fakes import Refuse, Say, kernel


@pytest.mark.parametrize("beam", [1, 3])
def test_fifty_cents_are_never_exceeded(beam, server, run_loop):
    # The worst model: each reply is wrong and uses every token it may.
    running = server(Say(kernel("bad mismatch"), input_tokens=8000, output_tokens=None))
    outcome, store, _ = run_loop(caps=Caps(usd=0.5, attempts=100), tries=100, beam=beam)
    assert outcome.ended == "budget" and 0.3 < outcome.usd <= 0.5
    assert all(request["body"]["max_tokens"] >= 4000 for request in running.requests)
    assert "budget" in (store.folder / "report.md").read_text()


def test_output_tokens_shrink_to_what_the_cap_leaves(server, run_loop):
    running = server(Say(kernel("bad mismatch"), input_tokens=1000, output_tokens=10_000))
    run_loop(caps=Caps(usd=0.9, attempts=100), tries=100)
    sizes = [request["body"]["max_tokens"] for request in running.requests]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] > sizes[-1] >= 4000


def test_the_token_cap_counts_input_and_output(server, run_loop):
    server(Say(kernel("bad mismatch"), input_tokens=9_000, output_tokens=None))
    outcome, store, _ = run_loop(caps=Caps(usd=None, tokens=60_000, attempts=100), tries=100)
    assert outcome.ended == "budget" and store.spent().tokens <= 60_000


def test_too_small_a_budget_asks_nothing(server, run_loop):
    running = server(Say(kernel("ok 100")))
    outcome, _, _ = run_loop(caps=Caps(usd=0.05))
    assert outcome.ended == "budget" and running.requests == [] and outcome.usd == 0


def test_time_already_used_ends_the_run(server, run_loop):
    running = server(Say(kernel("ok 100")))
    outcome, _, _ = run_loop(caps=Caps(minutes=1e-9))
    assert outcome.ended == "time" and running.requests == []


def test_a_reply_that_outlasts_the_wall_time_is_cut_off_and_charged(server, run_loop):
    server(Say(kernel("ok 100"), delay_s=0.5))
    outcome, store, _ = run_loop(caps=Caps(minutes=1.0 / 60))
    assert outcome.ended == "time"
    assert store.calls()[0]["state"] == "failed" and store.calls()[0]["usd"] == store.calls()[0]["reserved_usd"]


def test_rate_limits_and_overload_cost_nothing_and_are_retried(server, run_loop):
    server(Refuse(429, "rate_limit_error"), Refuse(529), Refuse(500, "api_error"), Say(kernel("ok 100")))
    outcome, store, _ = run_loop()
    calls = store.calls()
    assert outcome.accepted and [call["state"] for call in calls] == ["failed"] * 3 + ["replied"]
    assert [call["usd"] for call in calls[:3]] == [0, 0, 0] and [call["try"] for call in calls] == [0, 1, 2, 3]
    assert outcome.attempts == 1


@pytest.mark.parametrize("broken", [{"cut": True}, {"error_event": "overloaded_error"}])
def test_a_broken_stream_is_charged_at_its_maximum(broken, server, run_loop):
    server(Say(kernel("ok 100"), **broken), Say(kernel("ok 100")))
    outcome, store, _ = run_loop()
    lost, kept = store.calls()
    assert outcome.accepted and lost["state"] == "failed" and lost["usd"] == lost["reserved_usd"]
    assert kept["usd"] == pytest.approx((1000 * 4 + 500 * 20) / 1e6)


def test_cached_tokens_are_priced_as_such(server, run_loop):
    server(Say(kernel("ok 100"), input_tokens=100, cache_write=2000, cache_read=5000, output_tokens=300))
    outcome, store, _ = run_loop()
    assert outcome.usd == pytest.approx((100 * 4 + 2000 * 5 + 5000 * 0.20 + 300 * 20) / 1e6)
    assert store.spent().tokens == 7400


def test_the_wait_asked_for_by_the_server_is_kept(server, run_loop, monkeypatch):
    import time

    waits = []
    monkeypatch.setattr(time, "sleep", waits.append)
    server(Refuse(429, "rate_limit_error", retry_after="7"), Say(kernel("ok 100")))
    from nkismith.agent.ledger import Ledger

    slept = []
    plain = Ledger.__init__

    def patched(self, *args, **kwargs):
        plain(self, *args, **{**kwargs, "sleep": slept.append})

    monkeypatch.setattr(Ledger, "__init__", patched)
    run_loop()
    assert slept == [7.0]
