"""Requests on a worker that is found dead although their connections stand."""

import json

from tests.fakes.harness import error_of
from tests.fakes.wire import chunk, request, response

ON = {
    "disable_retries": False,
    "retry_initial_backoff_ms": 1,
    "retry_max_backoff_ms": 5,
    "health_check_interval_secs": 0.02,
    "health_failure_threshold": 2,
}
PATH = "/v1/completions"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def hanging(harness, *said):
    """Says this to its request, and then nothing; its connections stand."""

    def answer(connection, message):
        if message.target == "/health":
            connection.send(response(200, b""))
            return
        for piece in said:
            connection.send(piece)
        gate.wait()

    worker = harness.worker(answer)
    gate = worker.gate()
    worker.wait_for_work = gate.wait_for_someone
    return worker


def healthy(harness):
    return harness.worker(lambda connection, message: connection.send(response(200, message.method.encode())))


def test_a_request_without_a_byte_of_a_response_moves_to_another_worker(harness):
    """mending row 3: the listener is closed, the connection open."""
    worker = hanging(harness)
    router = harness.router(worker, healthy(harness), **ON)
    client = harness.client(router)
    client.send(request("POST", PATH, body=b"{}"))
    worker.wait_for_work()
    worker.stop_listening()
    assert client.read_response().body == b"POST"


def test_a_stream_whose_head_is_held_moves_as_well(harness):
    worker = hanging(harness, HEAD)
    client = harness.client(harness.router(worker, healthy(harness), **ON))
    client.send(request("POST", PATH, body=b"{}"))
    worker.wait_for_work()
    worker.stop_listening()
    assert client.read_response().body == b"POST"


def test_without_another_worker_it_is_an_error(harness):
    worker = hanging(harness)
    client = harness.client(harness.router(worker, **ON))
    client.send(request("POST", PATH, body=b"{}"))
    worker.wait_for_work()
    worker.stop_listening()
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (502, "worker_closed")


def test_a_response_that_has_begun_is_cut_after_its_grace_and_says_why(harness):
    worker = hanging(harness, HEAD, chunk(b"data: 1\n\n"))
    router = harness.router(worker, healthy(harness), dead_worker_grace_secs=0.05, sse_error_event=True, **ON)
    client = harness.client(router)
    client.send(request("POST", PATH, body=b"{}"))
    assert client.read_head().status == 200
    assert client.read_chunk() == b"data: 1\n\n"
    worker.stop_listening()
    event = client.read_chunk()
    assert json.loads(event.removeprefix(b"data: "))["error"]["code"] == "worker_dead"
    assert client.read_to_end() == b""


def test_no_grace_cuts_at_once(harness):
    worker = hanging(harness, HEAD, chunk(b"data: 1\n\n"))
    client = harness.client(harness.router(worker, dead_worker_grace_secs=0, **ON))
    client.send(request("POST", PATH, body=b"{}"))
    assert client.read_head().status == 200
    worker.stop_listening()
    assert not client.read_to_end().endswith(b"0\r\n\r\n")


def test_a_response_that_ends_within_its_grace_is_whole(harness):
    def answer(connection, message):
        if message.target == "/health":
            connection.send(response(200, b""))
            return
        connection.send(HEAD, chunk(b"data: 1\n\n"))
        gate.wait()
        connection.send(b"0\r\n\r\n")

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker, **ON)
    client = harness.client(router)
    client.send(request("POST", PATH, body=b"{}"))
    assert client.read_head().status == 200
    assert client.read_chunk() == b"data: 1\n\n"
    worker.stop_listening()
    router.wait_until_unhealthy(worker)
    gate.open()
    assert client.read_to_last_chunk() == b""


def test_a_worker_that_answers_its_health_check_with_an_error_keeps_its_requests(harness):
    """It is not dead: it may be full, or paused."""

    def answer(connection, message):
        if message.target == "/health":
            connection.send(response(503, b""))
            return
        gate.wait()
        connection.send(response(200, b"late"))

    worker = harness.worker(answer)
    gate = worker.gate()
    other = healthy(harness)
    router = harness.router(worker, other, **{**ON, "health_check_interval_secs": 3600})
    client = harness.client(router)
    client.send(request("POST", PATH, body=b"{}"))
    gate.wait_for_someone()
    gate.open()
    assert client.read_response().body == b"late"
