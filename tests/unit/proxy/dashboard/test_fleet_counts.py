"""cpp/proxy/dashboard/fleet_counts.h: what requests were and how they ended, as ticks say it."""

import json

import pytest

from tests.fakes.wire import response

SSE = ("Content-Type", "text/event-stream")
TOKEN = b'data: {"choices":[{"delta":{"content":"x"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.fixture
def view(view):
    """Its first event has come, so counts of the first tick are those before any request."""

    def counting(router):
        viewer = view(router)
        viewer.next()
        return viewer

    return counting


def chat(client, stream=False):
    body = json.dumps({"model": "m", "stream": stream, "messages": [{"role": "user", "content": "hi"}]})
    return client.ask("POST", "/v1/chat/completions", body=body.encode()).status


def test_requests_and_failures_are_counted(harness, view):
    statuses = iter([200, 500, 400])
    router = harness.router(
        harness.worker(lambda connection, _: connection.send(response(next(statuses), b"{}")))
    )
    viewer, client = view(router), harness.client(router)
    assert [chat(client) for _ in range(3)] == [200, 500, 400]
    facts = viewer.until("tick", lambda tick: tick["facts"]["requests"] == 3)["facts"]
    assert (facts["failed"], facts["retried"], facts["in_flight"]) == (1, 0, 0)


def test_retries_are_counted(harness, view):
    router = harness.router(harness.refusing_port().url, harness.worker(), disable_retries=False)
    viewer, client = view(router), harness.client(router)
    assert chat(client) == 200
    facts = viewer.until("tick", lambda tick: tick["facts"]["requests"] == 1)["facts"]
    assert (facts["failed"], facts["retried"]) == (0, 1)


def test_the_routers_own_pages_are_no_requests(harness, view):
    router = harness.router(harness.worker())
    viewer, client = view(router), harness.client(router)
    assert client.ask("GET", "/workers").status == 200
    assert client.ask("GET", "/x").status == 200
    facts = viewer.until("tick", lambda tick: tick["facts"]["requests"] > 0)["facts"]
    assert facts["requests"] == 1


def test_a_stream_that_breaks_off_failed(harness, view):
    def break_off(connection, _message):
        connection.send(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 999\r\n\r\n", TOKEN
        )
        connection.close()

    router = harness.router(harness.worker(break_off))
    viewer, client = view(router), harness.client(router)
    client.send(
        b"POST /v1/completions HTTP/1.1\r\nHost: a\r\nContent-Length: 15\r\n\r\n" + b'{"stream":true}'
    )
    client.ending()
    facts = viewer.until("tick", lambda tick: tick["facts"]["requests"] > 0)["facts"]
    assert facts["failed"] == 1


def test_first_tokens_of_streams_are_timed(harness, view):
    worker = harness.worker(lambda connection, _: connection.send(response(200, TOKEN + DONE, SSE)))
    router = harness.router(worker)
    viewer, client = view(router), harness.client(router)
    assert chat(client, stream=True) == 200
    _, _, p50, p95, *_ = viewer.until("tick", lambda tick: tick["point"][3] is not None)["point"]
    assert 0 < p50 <= p95
