"""Clients that close as soon as they have the last event of a stream, as Codex does."""

import json
import threading

import pytest

from tests.fakes.wire import chunk, eventually, request, response
from tests.proxy.test_metrics import page_of

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WHOLE = {"id": "resp_1", "status": "completed", "output": ["x" * 5000], "usage": {"input_tokens": 3}}
COMPLETED = (
    b"event: response.completed\ndata: %s\n\n"
    % json.dumps({"type": "response.completed", "response": WHOLE}).encode()
)
LAST = {
    "/v1/responses": COMPLETED,
    "/v1/messages": b'event: message_stop\ndata: {"type":"message_stop"}\n\n',
    "/v1/chat/completions": b"data: [DONE]\n\n",
}
BODY = b'{"stream": true, "input": "x"}'
each_way = pytest.mark.parametrize("how", ["close", "reset"])


class Engine:
    """Sends one event, then the `last` one, and the end of the body once `gate` is open."""

    def __init__(self, harness, last, rest=b"0\r\n\r\n"):
        self.gate = threading.Event()
        self.last, self.rest = last, rest
        self.used = set()  # connections
        self.worker = harness.worker(self.answer)

    def answer(self, connection, message):
        if message.method == "GET":
            return connection.send(response(200, b"ok"))
        self.used.add(connection)
        connection.send(HEAD + chunk(b'data: {"type": "x"}\n\n') + chunk(self.last))
        self.gate.wait(10)
        return connection.send(self.rest)


def ask_and_leave(harness, router, path, how, until):
    client = harness.client(router)
    client.send(request("POST", path, body=BODY))
    client.read_until(until)
    {"close": client.close, "reset": client.reset}[how]()


def ends_of(router, path):
    page = page_of(router)["exchange_end_total"]
    return {end: page.value(route=path, end=end) for end in ("done", "client_gone")}


@each_way
@pytest.mark.parametrize("path", list(LAST))
def test_they_have_had_their_stream_and_the_workers_connection_is_kept(harness, path, how):
    """Row 25: log and metrics said that the client was gone, and the worker's connection was closed."""
    engine = Engine(harness, LAST[path])
    router = harness.router(engine.worker, policy="round_robin", health_check_interval_secs=0)
    ask_and_leave(harness, router, path, how, LAST[path][-20:])
    engine.gate.set()
    router.must_rest()
    assert ends_of(router, path) == {"done": 1, "client_gone": 0}
    client = harness.client(router)
    assert client.ask("POST", path, body=BODY).body.endswith(LAST[path])
    assert len(engine.used) == 1


@each_way
def test_a_worker_that_sends_no_end_costs_its_connection_alone(harness, how):
    """Row 25: the rest is waited for a moment only."""
    engine = Engine(harness, LAST["/v1/responses"])
    router = harness.router(engine.worker, policy="round_robin")
    ask_and_leave(harness, router, "/v1/responses", how, COMPLETED[-20:])
    router.must_rest()
    assert ends_of(router, "/v1/responses") == {"done": 1, "client_gone": 0}
    engine.gate.set()


def test_a_worker_that_goes_on_and_on_is_not_read(harness):
    """Row 25: behind the last event some bytes may come, not a second stream."""
    engine = Engine(harness, LAST["/v1/responses"], rest=chunk(b"x" * 60_000) * 20 + b"0\r\n\r\n")
    router = harness.router(engine.worker, policy="round_robin")
    ask_and_leave(harness, router, "/v1/responses", "close", COMPLETED[-20:])
    engine.gate.set()
    router.must_rest()
    assert ends_of(router, "/v1/responses") == {"done": 1, "client_gone": 0}


@each_way
def test_a_client_that_leaves_before_is_gone(harness, how):
    """Row 25: nothing of the prompt's generation is paid for once its client has left."""
    engine = Engine(harness, b'event: response.in_progress\ndata: {"type":"response.in_progress"}\n\n')
    router = harness.router(engine.worker, policy="round_robin")
    ask_and_leave(harness, router, "/v1/responses", how, b'progress"}\n\n')
    eventually(lambda: ends_of(router, "/v1/responses") == {"done": 0, "client_gone": 1}, "it is counted")
    engine.gate.set()


def test_a_whole_response_is_read_as_before(harness):
    """Row 25: a client that waits for the end of the body keeps its connection."""
    engine = Engine(harness, COMPLETED)
    router = harness.router(engine.worker, policy="round_robin")
    client = harness.client(router)
    engine.gate.set()
    for _ in range(2):
        assert client.ask("POST", "/v1/responses", body=BODY).body.endswith(COMPLETED)
    client.must_be_open()
