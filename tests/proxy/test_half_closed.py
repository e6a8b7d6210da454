"""--half-closed-clients serve: a client that sends no more, like `nc -N`, gets its response all the same."""

import pytest

from tests.fakes.wire import chunk, chunked, eventually, request, response
from tests.proxy.test_admission import Gated, seats
from tests.proxy.test_long_bodies import HELD, POSTS, Full

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def waiting_worker(harness):
    """Its gate is opened when the client has closed its sending side, and the router has seen that."""
    gate = None

    def answer(connection, message):
        gate.wait()
        connection.send(response(200, b"%d" % len(message.body)))

    worker = harness.worker(answer)
    gate = worker.gate()
    return worker, gate


@pytest.mark.parametrize("policy", ["round_robin", "consistent_hash"])
@pytest.mark.parametrize("size", [2, 300_000])
def test_a_half_closed_client_gets_its_response(harness, policy, size):
    worker, gate = waiting_worker(harness)
    router = harness.router(worker, policy=policy, half_closed_clients="serve")
    client = harness.client(router)
    client.send(request("POST", POSTS, body=b"x" * size))
    gate.wait_for_someone()
    client.half_close()
    client.wait_until_read()
    gate.open()
    assert client.read_response().body == b"%d" % size
    client.must_be_closed()


def test_a_client_that_closed_its_side_at_once_gets_all_its_responses(harness):
    worker = harness.worker(
        lambda connection, message: connection.send(response(200, message.target.encode()))
    )
    client = harness.client(harness.router(worker, half_closed_clients="serve"))
    client.send(request("GET", "/1") + request("GET", "/2") + request("POST", "/3", body=b"abc"))
    client.half_close()
    assert [client.read_response().body for _ in range(3)] == [b"/1", b"/2", b"/3"]
    client.must_be_closed()


def test_a_half_closed_client_gets_its_stream(harness):
    more = None

    def stream(connection, _message):
        connection.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        more.wait()
        connection.send(chunked(b"data: 2\n\n"))

    worker = harness.worker(stream)
    more = worker.gate()
    client = harness.client(harness.router(worker, half_closed_clients="serve"))
    client.send(request("POST", POSTS, body=b"{}"))
    client.read_head()
    assert client.read_chunk() == b"data: 1\n\n"
    client.half_close()
    client.wait_until_read()
    more.open()
    assert client.read_to_last_chunk() == b"data: 2\n\n"
    client.must_be_closed()


# Of a large body the router may leave a part in the socket, and the end of the client's side behind it.
@pytest.mark.parametrize("size", [200, 200_000])
def test_a_half_closed_client_keeps_its_place_in_the_queue(harness, size):
    gated = Gated(harness)
    router = harness.router(gated.worker, max_concurrent_requests=1, half_closed_clients="serve")
    first, second = harness.client(router), harness.client(router)
    first.send(request("POST", POSTS, body=b"{}"))
    eventually(lambda: seats(router) == (1, 0))
    second.send(request("POST", POSTS, body=b"x" * size))
    eventually(lambda: seats(router) == (1, 1))
    second.half_close()
    if size < 1000:
        second.wait_until_read()
    gated.let(2)
    assert (first.read_response().status, second.read_response().status) == (200, 200)


def test_a_half_closed_client_keeps_its_place_before_the_memory(harness):
    full = Full(harness, half_closed_clients="serve")
    client = harness.client(full.router)
    client.send(request("POST", POSTS, body=b"{" * 100_000))
    eventually(lambda: full.router.in_flight() == 3)
    client.half_close()
    full.gate.open()
    assert client.read_response().status == 200
    full.finish()


@pytest.mark.parametrize("when", ["before the response", "in a stream"])
def test_a_client_that_breaks_the_connection_has_left_all_the_same(harness, when):
    def answer(connection, _message):
        if when == "in a stream":
            connection.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        assert connection.ending() in ("eof", "reset")

    worker = harness.worker(answer)
    router = harness.router(worker, half_closed_clients="serve")
    client = harness.client(router)
    client.send(request("POST", POSTS, body=b"{}"))
    worker.wait_for_requests(1)
    if when == "in a stream":
        client.read_head()
    client.reset()
    worker.connections[0].wait_ended()
    router.must_rest()


def test_a_client_that_left_is_noticed_by_what_is_written_to_it(harness):
    def pour(connection, _message):
        connection.send(SSE_HEAD)
        while True:
            connection.send(chunk(b"data: x\n\n"))

    worker = harness.worker(pour)
    router = harness.router(worker, half_closed_clients="serve")
    client = harness.client(router)
    client.send(request("POST", POSTS, body=b"{}"))
    client.read_head()
    client.half_close()
    client.wait_until_read()
    client.close()
    worker.connections[0].wait_ended()
    router.must_rest()


def test_half_a_body_is_no_request(harness):
    worker = harness.worker()
    router = harness.router(worker, policy="consistent_hash", half_closed_clients="serve")
    client = harness.client(router)
    client.send(request("POST", POSTS, ("Content-Length", str(HELD))) + b"x" * 1000)
    client.half_close()
    client.must_be_closed()
    assert worker.requests == []
