"""cpp/proxy/conditions: what is wrong now, over HTTP, in metrics and in the log."""

import json

import pytest

from tests.fakes.prometheus_text import parse
from tests.fakes.wire import eventually, response

CHAT = "/v1/chat/completions"
JSON = ("Content-Type", "application/json")


def chat(client, model="m", text="hi"):
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": text}]}).encode()
    return client.ask("POST", CHAT, JSON, body=body).status


def status(client):
    return json.loads(client.ask("GET", "/admin/status").body)


def recent(client, url):
    """Of one worker, as GET /workers and GET /admin/status both say it."""
    (row,) = [row for row in status(client)["workers"] if row["url"] == url]
    (same,) = [row for row in json.loads(client.ask("GET", "/workers").body)["workers"] if row["url"] == url]
    said = row["recent"]
    assert (same.get("recent") or {"attempts": 0, "responses": {}})["responses"] == said["responses"]
    return said


@pytest.fixture
def fleet(harness):
    """Two workers whose statuses a test chooses by the model, behind a router that takes turns; a client."""
    codes = [{}, {}]

    def respond(number):
        def answer(connection, message):
            model = json.loads(message.body or b"{}").get("model")
            connection.send(response(codes[number].get(model, 200), b"{}", JSON))

        return answer

    workers = [harness.worker(respond(number)) for number in range(2)]
    router = harness.router(*workers, policy="round_robin", disable_retries=False)
    return codes, [worker.url for worker in workers], router, harness.client(router)


def test_a_fleet_that_serves_says_so(fleet):
    _, urls, _, client = fleet
    assert chat(client) == 200
    assert status(client)["sentence"] == "All 2 workers serve."
    eventually(lambda: sum(recent(client, url)["attempts"] for url in urls) == 1, "it was not counted")
    served = next(said for url in urls if (said := recent(client, url))["attempts"])
    assert served["responses"] == {"2xx": 1}
    assert served["head_ms"]["p50"] > 0
    assert "last_failure" not in served


def test_a_worker_that_refuses_keys_is_named_in_status_and_metrics(fleet, conditions):
    codes, urls, router, client = fleet
    codes[1]["m"] = 401
    for _ in range(20):
        chat(client)
    eventually(lambda: conditions(client) == [("worker_rejects", urls[1], None)], "it was not found")
    said = status(client)
    assert said["sentence"].startswith(f"{urls[1]} rejects requests: 10 of 10 responses")
    assert said["conditions"][0]["severity"] == "page"
    page = parse(router.server.metrics_text())
    assert page["vllm_router_condition"].value(condition="worker_rejects", worker=urls[1], model="") == 1
    assert page["vllm_router_worker_responses_total"].value(worker=urls[1], code="401") == 10


def test_a_worker_that_fails_one_model_is_named_though_every_request_was_served(harness, conditions):
    def respond(connection, message):
        fails = b'"bad"' in (message.body or b"") and connection.worker is workers[0]
        connection.send(response(500 if fails else 200, b"{}", JSON))

    workers = [harness.worker(respond) for _ in range(2)]
    # A policy that reads bodies, so that the model is known.
    router = harness.router(*workers, policy="auto", disable_retries=False)
    client = harness.client(router)
    for model in ("good", "bad"):
        for number in range(24):
            assert chat(client, model, f"{number} " * 100) == 200
    eventually(lambda: ("model_fails", workers[0].url, "bad") in conditions(client), "it was not found")
    failure = recent(client, workers[0].url)["last_failure"]
    assert (failure["status"], failure["model"]) == (500, "bad")
    assert 0 <= failure["seconds_ago"] < 60


def test_clients_that_send_what_is_wrong_make_no_condition(fleet, conditions):
    codes, urls, _, client = fleet
    codes[0]["m"] = codes[1]["m"] = 400
    for _ in range(12):
        assert chat(client) == 400
    eventually(lambda: sum(recent(client, url)["attempts"] for url in urls) == 12, "they were not counted")
    assert conditions(client) == []


def test_a_worker_that_is_down_is_the_sentence_with_who_serves(harness, conditions):
    workers = [harness.worker(), harness.worker()]
    router = harness.router(*workers, policy="round_robin", health_check_interval_secs=1)
    client = harness.client(router)
    workers[0].stop_listening()
    eventually(lambda: ("worker_is_down", workers[0].url, None) in conditions(client), "it was not found")
    said = status(client)
    assert said["sentence"] == (
        f"{workers[0].url} fails its health checks. 1 other worker takes its requests."
    )
    assert [row["state"] for row in said["workers"]] == ["unhealthy", "serves"]
