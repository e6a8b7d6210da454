"""cpp/proxy/exchange/cost_override_header.h: a client sets parts of the cost for its request."""

import json

import pytest

BODY = json.dumps({"model": "m", "prompt": "Hi"}).encode()
NAME = "X-Vllm-Router-Override"


def ask(client, *values):
    return client.ask("POST", "/v1/completions", *[(NAME, value) for value in values], body=BODY)


@pytest.fixture
def client(harness):
    worker = harness.worker()
    router = harness.router(worker, policy="kv_logit", allow_request_overrides=True)
    client = harness.client(router)
    client.worker = worker
    return client


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "is not a JSON object"),
        ("[]", "is not a JSON object"),
        ("{", "is not a JSON object"),
        ("[" * 5000, "is not a JSON object"),
        ('{"router_temperature": 1} x', "is not a JSON object"),
        ('{"router_temperature": "1"}', "router_temperature is not a number"),
        ('{"router_temperature": null}', "router_temperature is not a number"),
        ('{"router_temperature": 1e300}', "router_temperature is 1"),
        ('{"shared_cache_multiplier": 2}', "must be between 0 and 1"),
        ('{"overlap_waits": 1}', "did you mean overlap_weight?"),
    ],
)
def test_a_wrong_override_is_rejected_with_its_reason(client, value, words):
    answer = ask(client, value)
    assert answer.status == 400
    error = json.loads(answer.body)["error"]
    assert error["code"] == "invalid_argument"
    assert error["message"].startswith("x-vllm-router-override")
    assert words in error["message"]
    assert ask(client, '{"overlap_weight": 0.5}').status == 200  # on the same connection


def test_an_override_is_read_and_not_forwarded(client):
    for value in ("{}", '{"router_temperature": 0.5, "overlap_weight": 2, "shared_cache_multiplier": 1}'):
        assert ask(client, value).status == 200
    for request in client.worker.requests:
        assert NAME.lower() not in {name.lower() for name, _ in request.fields}


def test_it_changes_the_decision_of_its_request_alone(harness):
    """A temperature draws among workers of unequal cost; without it the cheapest is chosen each time."""
    workers = [harness.worker() for _ in range(2)]
    router = harness.router(
        *workers,
        policy="kv_logit",
        routing={"seed": 1},
        allow_request_overrides=True,
        decision_headers=True,
    )
    client = harness.client(router)
    prompt = {"model": "m", "prompt": list(range(640))}

    def reason(*headers):
        answer = client.ask("POST", "/v1/completions", *headers, body=json.dumps(prompt).encode())
        return dict(answer.fields)["x-vllm-router-reason"]

    assert reason() == "lowest_cost"  # the first worker has it now
    hot = (NAME, '{"router_temperature": 100}')
    assert {reason(hot) for _ in range(2)} <= {"lowest_cost", "sampled"}
    assert [reason() for _ in range(8)] == ["lowest_cost"] * 8


def test_without_the_flag_it_means_nothing(harness):
    client = harness.client(harness.router(harness.worker(), policy="kv_logit"))
    assert ask(client, "not JSON").status == 200
