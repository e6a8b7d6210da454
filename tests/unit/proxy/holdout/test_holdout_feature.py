"""cpp/proxy/holdout/holdout_feature.h: what is rejected at the start, and what GET /admin/holdout says."""

import json

import pytest

from tests.fakes.harness import error_of
from tests.fakes.held_out import session, sessions
from tests.fakes.viewer import Viewer
from tests.fakes.wire import eventually, response


def page_of(client):
    got = client.ask("GET", "/admin/holdout")
    assert got.status == 200, got.body
    return json.loads(got.body)


def test_without_a_share_there_is_nothing_of_it(harness):
    router = harness.router(harness.worker())
    got = harness.client(router).ask("GET", "/admin/holdout")
    assert got.status == 404
    assert "--holdout-percent 1" in error_of(got)["message"]
    assert "vllm_router_holdout" not in router.server.metrics_text()


def test_the_dashboard_is_told_whether_there_is_a_page_to_show(harness):
    for options, shown in (({}, False), ({"holdout_percent": 1}, True)):
        viewer = Viewer(harness.client(harness.router(harness.worker(), **options)))
        assert viewer.until("hello")["holdout"] is shown


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"holdout_policy": "auto"}, "holdout_policy is .*one of least_load, power_of_two.*random"),
        ({"holdout_policy": "round_robin"}, "holdout_policy is"),
        ({"holdout_percent": 0.001}, "holdout_percent is 0.001.*between 0.01 and 20"),
        ({"holdout_percent": 1, "holdout_secret_file": "/none"}, "holdout_secret_file"),
    ],
)
def test_what_makes_no_sense_is_rejected(harness, options, message):
    with pytest.raises((ValueError, OSError), match=message):
        harness.router(harness.worker(), **options)


def test_a_secret_that_can_be_guessed_is_rejected(harness, tmp_path):
    (tmp_path / "short").write_text("short")
    with pytest.raises((ValueError, OSError), match="holdout_secret_file"):
        harness.router(harness.worker(), holdout_percent=1, holdout_secret_file=str(tmp_path / "short"))


def test_it_is_rejected_in_front_of_prefill_and_decode_workers(harness):
    staged = {"prefill_urls": [harness.worker().url], "decode_urls": [harness.worker().url]}
    with pytest.raises(ValueError, match="holdout_percent is 1 and the fleet has prefill and decode workers"):
        harness.router(routing=staged, holdout_percent=1)
    assert harness.router(routing=staged).port


def test_the_page_counts_conversations_that_have_ended(harness, held_out):
    client = harness.client(harness.router(harness.worker(), **held_out))
    for arm, turns in (("policy", 3), ("holdout", 2)):
        for _ in range(turns):
            name = ("x-session-id", session(arm))
            assert client.ask("POST", "/v1/completions", name, body=b'{"prompt": "a"}').status == 200
    eventually(lambda: page_of(client)["conversations"] == {"policy": 1, "holdout": 1, "open": 0})
    page = page_of(client)
    assert (page["percent"], page["policy"], page["baseline"]) == (20, "round_robin", "least_load")
    assert (page["stopped"], page["reported_share"]) == (None, 0)
    for outcome in ("cached_share", "ttft_ratio", "first_turn_ttft_ratio", "failure_ratio"):
        assert page[outcome] is None
    assert page["saved_prompt_tokens_per_day"] is None


def test_an_interval_is_shown_from_100_held_out_conversations_on(harness, held_out):
    def reply(connection, message):
        cached = 20 if b"held" in message.body else 80
        usage = {"prompt_tokens": 100, "prompt_tokens_details": {"cached_tokens": cached}}
        connection.send(response(200, json.dumps({"usage": usage}).encode()))

    client = harness.client(harness.router(harness.worker(reply), **held_out))
    names = {arm: sessions(arm) for arm in ("policy", "holdout")}
    for _ in range(120):
        for arm in ("policy", "policy", "holdout", "policy", "policy"):
            prompt = b'{"prompt": "held"}' if arm == "holdout" else b'{"prompt": "a"}'
            name = ("x-session-id", next(names[arm]))
            assert client.ask("POST", "/v1/completions", name, body=prompt).status == 200
    eventually(lambda: page_of(client)["conversations"] == {"policy": 480, "holdout": 120, "open": 0})
    page = page_of(client)
    shown = page["cached_share"]
    assert (shown["policy"], shown["holdout"]) == (0.8, 0.2)
    assert shown["interval"][0] < 0.6 < shown["interval"][1]
    assert page["reported_share"] == 1
    assert page["failure_ratio"]["failed"] == {"policy": 0, "holdout": 0}
    assert page["failure_ratio"]["interval"] == [0, None]
    assert page["ttft_ratio"] is None  # no streams
