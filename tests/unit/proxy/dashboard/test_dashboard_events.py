"""cpp/proxy/dashboard/dashboard_events.h: what each event has."""

import json

import pytest

from tests.fakes.wire import eventually, response

USAGE = {"prompt_tokens": 100, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 60}}


@pytest.fixture
def engine(harness):
    """A worker whose responses report cached tokens."""
    body = json.dumps({"object": "chat.completion", "usage": USAGE}).encode()
    head = ("Content-Type", "application/json")
    return harness.worker(lambda connection, _: connection.send(response(200, body, head)))


def chat(client, text="hi", model="m"):
    body = json.dumps({"model": model, "messages": [{"role": "user", "content": text}]}).encode()
    return client.ask("POST", "/v1/chat/completions", ("X-Request-Id", "r-1"), body=body).status


def test_hello_says_what_the_router_is(harness, view):
    router = harness.router(harness.worker(), queue_size=7, router_name="edge", policy="auto")
    hello = view(router).until("hello")
    assert (hello["router"], hello["policy"], hello["queue_limit"], hello["receipts"]) == (
        "edge",
        "auto",
        7,
        True,
    )
    assert hello["version"]
    assert hello["history"][-1][0] >= hello["started"] - 1
    assert all(len(point) == 7 for point in hello["history"])


def test_hello_says_that_receipts_are_off(harness, view):
    router = harness.router(harness.worker(), routing={"receipts": 0})
    assert view(router).until("hello")["receipts"] is False


def test_a_row_of_a_worker(harness, view, engine):
    router = harness.router(engine, policy="auto")
    viewer, client = view(router), harness.client(router)
    (row,) = viewer.until("fleet")["workers"]
    assert row == {
        "id": row["id"],
        "url": engine.url,
        "state": "serves",
        "open": 0,
        "queued": 0,
        "p50_ms": None,
        "p95_ms": None,
        "cached": None,
        "attempts": 0,
        "errors": 0,
    }
    assert chat(client, "hello " * 200) == 200
    tick = viewer.until("tick", lambda tick: any(row["cached"] for row in tick["workers"]))
    (row,) = tick["workers"]
    assert (row["attempts"], row["errors"], row["cached"]) == (1, 0, 0.6)


def test_a_tick_has_only_rows_that_changed(harness, view):
    gates = []

    def later(connection, _message):
        gates[0].wait()
        connection.send(response(200, b"{}"))

    workers = [harness.worker(later), harness.worker()]
    gates.append(workers[0].gate())
    router = harness.router(*workers)
    viewer = view(router)
    viewer.until("fleet")
    assert viewer.until("tick", lambda tick: not tick["workers"])
    client = harness.client(router)
    client.send(b"GET /x HTTP/1.1\r\nHost: a\r\n\r\n")
    (row,) = viewer.until("tick", lambda tick: tick["workers"])["workers"]
    assert (row["url"], row["open"]) == (workers[0].url, 1)
    gates[0].open()
    assert client.read_response().status == 200


def test_a_receipt_is_that_of_the_admin_endpoint(harness, view, engine):
    router = harness.router(engine, policy="auto")
    viewer, client = view(router), harness.client(router)
    viewer.until("tick")
    assert chat(client) == 200
    shown = viewer.until("receipt")
    assert shown == json.loads(client.ask("GET", f"/admin/receipts/{shown['request_id']}").body)
    tick = viewer.until("tick")
    assert tick["receipts"] == {"shown": 1, "skipped": 0}


def test_the_last_receipts_come_with_hello(harness, view, engine):
    router = harness.router(engine, policy="auto")
    client = harness.client(router)
    for text in "abc":
        assert chat(client, text) == 200
    eventually(lambda: len(json.loads(client.ask("GET", "/admin/receipts").body)["receipts"]) == 3)
    viewer = view(router)
    names = [viewer.next()[0] for _ in range(6)]
    assert names == ["hello", "fleet", "receipt", "receipt", "receipt", "tick"]


def test_the_sentence_and_conditions_are_those_of_status(harness, view):
    workers = [harness.worker(), harness.worker()]
    router = harness.router(*workers, health_check_interval_secs=1)
    viewer, client = view(router), harness.client(router)
    assert viewer.until("tick")["sentence"] == "All 2 workers serve."
    workers[0].stop_listening()
    tick = viewer.until("tick", lambda tick: tick["conditions"])
    status = json.loads(client.ask("GET", "/admin/status").body)
    assert tick["sentence"] == status["sentence"]
    (condition,) = tick["conditions"]
    assert condition == status["conditions"][0] | {"since": pytest.approx(condition["since"], abs=0.01)}
    state = {row["url"]: row["state"] for row in tick["workers"]}
    assert state.get(workers[0].url, "unhealthy") == "unhealthy"


def test_hostile_names_are_json(harness, view, engine):
    model = '"><img src=x onerror=alert(1)>\n\ndata: {}'
    router = harness.router(engine, policy="auto")
    viewer, client = view(router), harness.client(router)
    assert chat(client, model=model) == 200
    assert viewer.until("receipt")["model"] == model
