"""Each provider keeps the protocol: ask once, say what it cost, say what to do when it cannot."""

import json

import pytest

from nkismith.agent import graph, loop, prices
from nkismith.agent.ledger import Caps
from nkismith.agent.prices import PriceError, Usage
from nkismith.agent.providers import ProviderError, recording
from nkismith.agent.providers.anthropic import AnthropicModel
from nkismith.agent.run import Plan, execute
from nkismith.results import report
from nkismith.results.store import RunStore
from tests.agent.fakes import FakeJudge, Say, kernel

# -- prices ------------------------------------------------------------------------------------------------


def test_an_unknown_model_has_no_price_and_is_refused():
    with pytest.raises(PriceError, match="NKISMITH_PRICES"):
        prices.find("claude-imaginary-9", "anthropic")


@pytest.mark.parametrize(
    ("model", "provider", "output"),
    [
        ("claude-opus-5-5", "anthropic", 20.0),
        ("claude-haiku-4-5-20251001", "anthropic", 5.0),
        ("anthropic.claude-opus-5-5", "bedrock", 22.0),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "bedrock", 16.5),
    ],
)
def test_names_with_dates_and_regions_find_their_price(model, provider, output):
    assert prices.find(model, provider).output == pytest.approx(output)


def test_a_long_prompt_is_billed_at_its_own_rate():
    price = prices.find("claude-haiku-5-5", "anthropic")
    assert price.usd(Usage(input_tokens=100_000)) == pytest.approx(0.01)
    assert price.usd(Usage(input_tokens=100_001)) == pytest.approx(0.0500005)
    assert price.at_most(100_001)[1] == pytest.approx(2.5e-6)


def test_own_prices_come_from_a_file(tmp_path, monkeypatch):
    table = tmp_path / "prices.toml"
    table.write_text('[models]\n"my-model" = { input = 1.0, cache_write = 1.0, cache_read = 1.0, output = 2.0 }\n')
    monkeypatch.setenv("NKISMITH_PRICES", str(table))
    assert prices.find("my-model", "anthropic").output == 2.0
    table.write_text('[models]\n"my-model" = { input = 1.0 }\n')
    with pytest.raises(PriceError, match="cache_write"):
        prices.find("my-model", "anthropic")


# -- anthropic ---------------------------------------------------------------------------------------------


def test_a_missing_key_is_said_before_anything_is_written(monkeypatch, data, op_dir, tmp_path):
    for name in ("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("ANTHROPIC_CONFIG_DIR", str(tmp_path / "none"))
    with pytest.raises(ProviderError, match="ANTHROPIC_API_KEY"):
        loop.begin(Plan(op="row_scale", spec=str(op_dir)))
    assert not (data / "runs").exists()


def test_effort_and_thinking_go_into_the_request(server, run_loop):
    requests = server(Say(kernel("ok 100")))
    run_loop(effort="high", thinking="20000")
    body = requests.requests[0]["body"]
    assert body["output_config"] == {"effort": "high"}
    assert body["thinking"] == {"type": "enabled", "budget_tokens": 20_000}
    run_loop(thinking="adaptive")
    assert requests.requests[1]["body"]["thinking"] == {"type": "adaptive"}
    assert "output_config" not in requests.requests[1]["body"]


def test_the_long_parts_are_marked_for_caching(server, run_loop):
    requests = server(Say(kernel("ok 100")))
    run_loop()
    body = requests.requests[0]["body"]
    assert body["system"][0]["cache_control"] == {"type": "ephemeral"}
    assert body["messages"][0]["content"][0]["cache_control"] == {"type": "ephemeral"}


@pytest.mark.parametrize(("option", "value"), [("effort", "huge"), ("thinking", "-5")])
def test_wrong_options_are_refused(option, value, server):
    server(Say(""))
    with pytest.raises(ProviderError, match=value):
        AnthropicModel(**{option: value})


def test_bedrock_is_the_same_protocol_at_another_address(server, run_loop, monkeypatch):
    running = server(Say(kernel("ok 100")))
    monkeypatch.setenv("ANTHROPIC_BEDROCK_MANTLE_BASE_URL", running.url)
    monkeypatch.setenv("AWS_BEARER_TOKEN_BEDROCK", "token")
    outcome, store, _ = run_loop(provider="bedrock")
    assert outcome.accepted and store.calls()[0]["provider"] == "bedrock"
    assert running.requests[0]["headers"]["Authorization"] == "Bearer token"
    assert outcome.usd == pytest.approx(1.1 * (1000 * 4 + 500 * 20) / 1e6)


def test_bedrock_without_credentials_says_what_to_set(monkeypatch):
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_BEARER_TOKEN_BEDROCK", "ANTHROPIC_AWS_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ProviderError, match="AWS_REGION"):
        AnthropicModel(provider="bedrock")


# -- handoff -----------------------------------------------------------------------------------------------


def test_a_step_returns_at_once_and_goes_on_when_called_again(run_loop, handoff, data):
    first, store, _ = run_loop(provider="handoff", step=True)
    assert first.ended == "waiting" and "attempt-01/prompt.md" in first.message
    prompt = data / "runs" / first.run / "handoff" / "attempt-01" / "prompt.md"
    assert prompt.read_text().startswith("# Your role")
    store.close()
    again, store, _ = run_loop(provider="handoff", step=True)
    assert again.run == first.run and again.ended == "waiting"
    cost = report.build(RunStore.open(data, first.run))["cost"]
    assert cost["calls"] == 0, "a look for a reply that is not there yet is no call"
    store.close()
    handoff(first.run, 1, kernel("bad mismatch"))
    second, store, _ = run_loop(provider="handoff", step=True)
    assert second.run == first.run and "attempt-02/prompt.md" in second.message
    store.close()
    handoff(first.run, 2, kernel("ok 100"))
    last, _, judge = run_loop(provider="handoff", step=True)
    assert last.accepted and last.run == first.run and len(judge.checked) == 1 and last.usd == 0


def test_a_beam_hands_every_lane_its_own_prompt(run_loop, handoff, data):
    first, store, _ = run_loop(provider="handoff", step=True, beam=2)
    folder = data / "runs" / first.run / "handoff"
    assert {str(path.relative_to(folder)) for path in folder.rglob("prompt.md")} == {
        "attempt-01/prompt.md", "sample-1/attempt-01/prompt.md"
    }  # fmt: skip
    store.close()
    handoff(first.run, 1, kernel("ok 100"))
    handoff(first.run, 1, kernel("ok 90"), sample=1)
    last, _, _ = run_loop(resume=first.run)
    assert last.accepted and last.latency_us == 90


def test_waiting_for_a_reply_takes_it_when_it_is_complete(run_loop, data):
    import threading
    import time

    def answer():
        for _ in range(200):
            prompts = list(data.rglob("prompt.md"))
            if prompts:
                prompts[0].with_name("reply.md").write_text(kernel("ok 100"))
                return
            time.sleep(0.05)

    threading.Thread(target=answer, daemon=True).start()
    outcome, _, _ = run_loop(provider="handoff", caps=Caps(minutes=1))
    assert outcome.accepted


# -- recording ---------------------------------------------------------------------------------------------


@pytest.fixture
def recorded(run_loop, server, tmp_path):
    """A recording made from a finished run whose first draft was refused."""
    server(Say(kernel("bad mismatch")), Say(kernel("ok 100", "kept the last rows")))
    _, store, _ = run_loop()
    path = tmp_path / "row_scale.json"
    recording.save(store, "scripted in a test", path)
    return path


def test_a_finished_run_becomes_a_recording_that_replays(recorded, run_loop):
    kept = json.loads(recorded.read_text())
    assert kept["source"] == "scripted in a test" and [reply["attempt"] for reply in kept["replies"]] == [1, 2]
    outcome, store, judge = run_loop(provider="recording", recording=str(recorded))
    assert outcome.accepted and outcome.usd == 0 and len(judge.checked) == 2  # judged afresh
    assert "scripted in a test" in store.calls()[0]["model"]


def test_a_replay_is_judged_by_todays_judge(recorded, run_loop):
    class Stricter(FakeJudge):
        def check(self, source, spec, **kwargs):
            return super().check(source.replace("ok 100", "bad mismatch"), spec, **kwargs)

    outcome, _, _ = run_loop(provider="recording", recording=str(recorded), judge=Stricter())
    assert outcome.ended == "provider" and "attempt 3" in outcome.message and not outcome.accepted


def test_a_changed_prompt_is_a_warning(recorded, data, op_dir):
    text = recorded.read_text().replace("sha256:", "sha256:0")
    recorded.write_text(text)
    plan = Plan(op="row_scale", spec=str(op_dir), provider="recording", recording=str(recorded), accept=False)
    run = loop.begin(plan, judge=FakeJudge())
    outcome = execute(run, graph.invoke)
    assert outcome.accepted and len(outcome.warnings) == 2
    assert "row_scale, attempt 2: the prompt changed" in outcome.warnings[1]


@pytest.mark.parametrize(
    ("text", "said"),
    [("{", "is no recording"), ('{"op": "other", "model": "m", "source": "s", "replies": []}', "of other, not of")],
)
def test_what_is_no_recording_of_the_op_is_refused(text, said, tmp_path):
    path = tmp_path / "row_scale.json"
    path.write_text(text)
    with pytest.raises(ProviderError, match=said):
        recording.load("row_scale", path)


def test_a_missing_recording_names_the_other_ways():
    with pytest.raises(ProviderError, match="handoff"):
        recording.load("no_such_op")
