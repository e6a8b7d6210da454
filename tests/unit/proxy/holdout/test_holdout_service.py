"""cpp/proxy/holdout/holdout_service.h: turns become results, and a harmful hold-out ends."""

import json
import math

from tests.fakes.held_out import sessions
from tests.fakes.prometheus_text import parse
from tests.fakes.wire import eventually, response


def page_of(client):
    return json.loads(client.ask("GET", "/admin/holdout").body)


def ask(client, session, prompt=b"a"):
    body = b'{"prompt": "%s"}' % prompt
    return client.ask("POST", "/v1/completions", ("x-session-id", session), body=body)


def failing(connection, message):
    connection.send(response(500 if b"fail" in message.body else 200, b"{}"))


def test_it_stops_when_held_out_conversations_fail_and_others_do_not(harness, held_out):
    router = harness.router(
        harness.worker(failing), **held_out, disable_circuit_breaker=True, decision_headers=True
    )
    client = harness.client(router)
    names = {arm: sessions(arm) for arm in ("policy", "holdout")}
    for _ in range(210):
        assert ask(client, next(names["holdout"]), b"fail").status == 500
        for _ in range(4):
            assert ask(client, next(names["policy"])).status == 200
    eventually(lambda: page_of(client)["stopped"] == "failures")
    after = ask(client, next(names["holdout"]))
    assert after.get("x-vllm-router-arm") is None
    assert after.get("x-vllm-router-reason") == "round_robin"
    stopped = parse(router.server.metrics_text())["vllm_router_holdout_stopped_total"]
    assert (stopped.value(reason="failures"), stopped.value(reason="first_token")) == (1, 0)
    router.must_rest()


def test_it_goes_on_when_both_fail_alike(harness, held_out):
    client = harness.client(harness.router(harness.worker(failing), **held_out, disable_circuit_breaker=True))
    names = {arm: sessions(arm) for arm in ("policy", "holdout")}
    for number in range(210):
        prompt = b"fail" if number % 3 == 0 else b"a"
        ask(client, next(names["holdout"]), prompt)
        for _ in range(4):
            ask(client, next(names["policy"]), prompt)
    eventually(lambda: page_of(client)["conversations"] == {"policy": 840, "holdout": 210, "open": 0})
    page = page_of(client)
    assert page["stopped"] is None
    assert page["failure_ratio"]["failed"] == {"policy": 280, "holdout": 70}
    assert page["failure_ratio"]["conclusive"] is False


def test_metrics_count_conversations_by_arm(harness, held_out):
    router = harness.router(harness.worker(), **held_out)
    client = harness.client(router)
    names = {arm: sessions(arm) for arm in ("policy", "holdout")}
    for arm, count in (("policy", 3), ("holdout", 2)):
        for _ in range(count):
            assert ask(client, next(names[arm])).status == 200

    def counts():
        family = parse(router.server.metrics_text())["vllm_router_holdout_conversations_total"]
        return family.value(arm="policy"), family.value(arm="holdout")

    eventually(lambda: counts() == (3, 2))
    effect = parse(router.server.metrics_text())["vllm_router_holdout_effect"]
    assert math.isnan(effect.value(outcome="cached_share", value="low"))
