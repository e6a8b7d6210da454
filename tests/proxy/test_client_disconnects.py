"""Clients that leave, at every step: the worker is told at once and its load comes back."""

import contextlib
import hashlib
import socket
import threading
import time

import pytest

from tests.fakes.wire import chunk, descriptors, eventually, request, response

OK = b"HTTP/1.1 200 OK\r\n"
SSE_HEAD = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
AT_ONCE = 5.0  # seconds; every timeout that could end things instead is longer
PATIENT = {
    "connect_timeout_secs": 100,
    "client_body_timeout_secs": 100,
    "upstream_write_timeout_secs": 100,
}


def until_left(connection, _message=None):
    connection.ending()


def stream_until_left(connection, _message):
    connection.send(SSE_HEAD + chunk(b"data: 1\n\n"))
    connection.ending()


def leave(client, how):
    """Three ways to go; a half-close counts, since engines abort on it too."""
    {"close": client.close, "reset": client.reset, "half-close": client.half_close}[how]()
    return time.monotonic()


def must_come_soon(since):
    assert time.monotonic() - since < AT_ONCE


each_way = pytest.mark.parametrize("how", ["close", "reset", "half-close"])
each_plan = pytest.mark.parametrize("policy", ["round_robin", "consistent_hash"])


@each_way
def test_a_client_that_leaves_during_the_head_is_forgotten(harness, how):
    worker = harness.worker()
    router = harness.router(worker)
    client = harness.client(router)
    client.send(b"POST /v1/completions HT")
    client.wait_until_read()
    leave(client, how)
    router.must_rest()
    assert worker.connections == []


@each_way
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_client_that_leaves_during_a_body_that_is_read_first_costs_no_worker_anything(
    harness, how, framing
):
    worker = harness.worker()
    router = harness.router(worker, policy="consistent_hash", **PATIENT)
    before = len(descriptors())
    client = harness.client(router)
    field = ("Content-Length", "100000") if framing == "length" else ("Transfer-Encoding", "chunked")
    client.send(request("POST", "/x", field), chunk(bytes(50_000)))
    client.wait_until_read()
    since = leave(client, how)
    left = before + (how == "half-close")  # our own end
    eventually(lambda: len(descriptors()) == left, "the router still holds the connection", AT_ONCE)
    must_come_soon(since)
    router.must_rest()
    assert worker.connections == []


@each_way
@pytest.mark.parametrize("framing", ["length", "chunked"])
def test_a_client_that_leaves_during_a_streamed_body_takes_the_worker_s_request_along(harness, how, framing):
    def read_on(connection):
        connection.read_request_head()
        connection.ending()

    worker = harness.worker(script=read_on)
    router = harness.router(worker, **PATIENT)
    client = harness.client(router)
    if framing == "length":
        client.send(request("POST", "/x", ("Content-Length", "1000000")) + bytes(100_000))
    else:
        client.send(request("POST", "/x", ("Transfer-Encoding", "chunked")) + chunk(bytes(100_000)))
    worker.wait_for_requests(1)
    router.wait_for_load(1)
    since = leave(client, how)
    worker.connections[0].wait_ended()
    must_come_soon(since)
    router.wait_for_load(0)
    assert not worker.connections[0].received.endswith(b"0\r\n\r\n")


@each_way
def test_a_client_that_leaves_while_we_connect_returns_the_load(harness, how):
    router = harness.router(harness.silent_port(), **PATIENT)
    client = harness.client(router)
    client.send(request("POST", "/x", body=b"{}"))
    router.wait_for_load(1)
    since = leave(client, how)
    router.wait_for_load(0)
    must_come_soon(since)


@each_way
@each_plan
def test_a_client_that_leaves_while_the_worker_thinks_ends_the_worker_s_request(harness, how, policy):
    worker = harness.worker(until_left)
    router = harness.router(worker, policy=policy)
    client = harness.client(router)
    for number, size in enumerate((2, 100_000)):
        client.send(request("POST", "/x", body=bytes(size)))
        worker.wait_for_requests(number + 1)
        router.wait_for_load(1)
        since = leave(client, how)
        worker.connections[number].wait_ended()
        must_come_soon(since)
        router.wait_for_load(0)
        client = harness.client(router)


@each_way
def test_a_client_that_leaves_between_two_events_ends_the_stream(harness, how):
    worker = harness.worker(stream_until_left)
    router = harness.router(worker)
    client = harness.client(router)
    client.send(request("POST", "/x", body=b"{}"))
    client.read_head()
    assert client.read_chunk() == b"data: 1\n\n"
    since = leave(client, how)
    worker.connections[0].wait_ended()
    must_come_soon(since)
    router.wait_for_load(0)


def test_a_client_that_half_closes_in_the_middle_of_an_answer_never_sees_a_proper_end(harness):
    worker = harness.worker(stream_until_left)
    client = harness.client(harness.router(worker))
    client.send(request("POST", "/x", body=b"{}", version="1.0"))
    client.read_head()
    assert client.read_exactly(9) == b"data: 1\n\n"
    client.half_close()
    with pytest.raises(ConnectionResetError):
        client.read_to_end()


def test_a_client_that_half_closes_before_its_answer_sees_a_proper_end_without_one(harness):
    worker = harness.worker(until_left)
    client = harness.client(harness.router(worker, harness.worker()))
    client.send(request("GET", "/x", body=b"{}"))
    worker.wait_for_requests(1)
    client.half_close()
    client.must_be_closed()


@each_way
def test_a_client_that_leaves_while_it_does_not_read_ends_the_stream(harness, how):
    def pour(connection, _message):
        connection.send(SSE_HEAD)
        while True:
            connection.send(chunk(bytes(60_000)))

    worker = harness.worker(pour)
    router = harness.router(worker)
    client = harness.client(router, receive_buffer=8192)
    client.send(request("POST", "/x", body=b"{}"))
    client.read_head()
    worker.wait_until_stuck()
    since = leave(client, how)
    worker.connections[0].wait_ended()
    must_come_soon(since)
    router.wait_for_load(0)


@each_way
def test_a_client_that_leaves_in_a_busy_stream_ends_it(harness, how):
    def pour(connection, _message):
        connection.send(SSE_HEAD)
        while True:
            connection.send(chunk(b"data: x\n\n"))

    worker = harness.worker(pour)
    router = harness.router(worker)
    client = harness.client(router)
    client.send(request("POST", "/x", body=b"{}"))
    client.read_head()
    for _ in range(10):
        client.read_chunk()
    since = leave(client, how)
    worker.connections[0].wait_ended()
    must_come_soon(since)
    router.wait_for_load(0)


@each_way
@pytest.mark.parametrize("behind", [1, 50])
def test_a_client_that_pipelines_and_leaves_is_noticed_behind_its_next_requests(harness, how, behind):
    worker = harness.worker(until_left)
    router = harness.router(worker)
    client = harness.client(router)
    client.send(request("POST", "/x", body=b"{}") + request("GET", "/y") * behind)
    worker.wait_for_requests(1)
    client.wait_until_read()
    since = leave(client, how)
    worker.connections[0].wait_ended()
    must_come_soon(since)
    router.wait_for_load(0)
    assert len(worker.requests) == 1


def test_a_client_that_pipelines_more_than_is_read_ahead_is_noticed_when_it_is_answered(harness):
    def answer(connection, _message):
        gate.wait()
        connection.send(SSE_HEAD)
        while True:
            connection.send(chunk(b"data: x\n\n"))

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker)
    client = harness.client(router)
    client.send(request("POST", "/x", body=b"{}") + request("GET", "/y") * 1000)
    worker.wait_for_requests(1)
    client.close()
    gate.open()
    worker.connections[0].wait_ended()
    router.wait_for_load(0)
    assert len(worker.requests) == 1


def test_a_client_that_leaves_behind_a_second_streamed_request_is_noticed(harness):
    """The body arrives while we connect, when nobody waits for it."""
    first = harness.worker()
    second = harness.slow_port()
    router = harness.router(first, second, **PATIENT)
    client = harness.client(router)
    body = bytes(70_000)
    client.send(request("GET", "/1") + request("POST", "/2", body=body)[: -len(body)])
    assert client.read_response().body == b"hello"
    router.wait_for_load(1)
    client.send(body)
    client.wait_until_received_by_peer(
        len(body) // 2
    )  # all of it may exceed the window of a socket that nobody reads
    second.let_in(1)
    request_at_second = second.read_request()
    assert request_at_second.body == body
    since = leave(client, "close")
    assert second.ending() in ("eof", "reset")
    must_come_soon(since)
    router.wait_for_load(0)


ERRANDS = {
    "/add_worker": lambda url: request("POST", f"/add_worker?url={url}", body=b""),
    "/workers": lambda url: request("POST", "/workers", body=b'{"url": "%s"}' % url.encode()),
}
# With a worker that refuses, the wait is the pause between two attempts.
WAITS = [(path, worker) for path in ERRANDS for worker in ("connecting", "silent", "refusing")]


@each_way
@pytest.mark.parametrize(("path", "worker"), WAITS)
def test_a_client_that_leaves_while_a_worker_is_asked_for_it_ends_the_asking(harness, how, path, worker):
    asked = {
        "connecting": harness.silent_port,
        "silent": lambda: harness.worker(until_left),
        "refusing": harness.refusing_port,
    }[worker]()
    router = harness.router(health_check_timeout_secs=100, worker_startup_check_interval=100)
    before = len(descriptors())
    client = harness.client(router)
    client.send(ERRANDS[path](asked.url))
    if worker == "silent":
        asked.wait_for_requests(1)
    else:
        client.wait_until_read()
    since = leave(client, how)
    left = before + (how == "half-close")  # our own end
    eventually(lambda: len(descriptors()) == left, "the router still waits for the worker", AT_ONCE)
    must_come_soon(since)
    assert router.core.worker_urls == []


def test_a_cancelled_connection_to_a_worker_is_never_used_again(harness):
    worker = harness.worker(stream_until_left)
    router = harness.router(worker)
    for number in range(1, 4):
        client = harness.client(router)
        client.send(request())
        client.read_head()
        client.close()
        worker.wait_for_connections(number)
        worker.connections[number - 1].wait_ended()
    assert len(worker.connections) == 3


def test_two_hundred_streams_that_are_left_at_once_all_end(harness):
    worker = harness.worker(stream_until_left)
    router = harness.router(worker, threads=2)
    clients = [harness.client(router) for _ in range(200)]
    for client in clients:
        client.send(request("POST", "/x", body=b"{}"))
    for client in clients:
        client.read_head()
    assert sum(router.loads()) == 200
    since = time.monotonic()
    for number, client in enumerate(clients):
        leave(client, ("close", "reset", "half-close")[number % 3])
    router.wait_for_load(0)
    must_come_soon(since)
    for connection in worker.connections:
        connection.wait_ended()


# ---- clients that are slow


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_client_that_takes_nothing_for_too_long_is_cut_and_never_sees_a_proper_end(harness, version):
    def pour(connection, _message):
        connection.send(SSE_HEAD)
        while True:
            connection.send(chunk(bytes(60_000)))

    worker = harness.worker(pour)
    router = harness.router(worker, client_write_timeout_secs=0.1)
    client = harness.client(router, receive_buffer=8192)
    client.send(request("POST", "/x", body=b"{}", version=version))
    client.read_head()
    worker.connections[0].wait_ended()
    router.wait_for_load(0)
    if version == "1.0":  # where a proper end would make the part look like the whole
        with pytest.raises(ConnectionResetError):
            client.read_to_end()
    else:
        assert client.ending() in ("eof", "reset")
        assert not client.received.endswith(b"0\r\n\r\n")


def test_clients_that_read_too_slowly_are_cut_when_the_deadline_after_their_last_progress_is_over(harness):
    """Each keeps reading, but so little that the kernel does not ask the router for more.

    What a stream's worker could still send is what its client took, and what fitted into the buffers between.
    """
    timeout, count = 2.0, 40

    def pour(connection, _message):
        connection.send(SSE_HEAD)
        while True:
            connection.send(chunk(bytes(60_000)))

    worker = harness.worker(pour, send_buffer=65536)
    router = harness.router(worker, client_write_timeout_secs=timeout)
    clients = [harness.client(router, receive_buffer=8192) for _ in range(count)]
    for client in clients:
        client.send(request("POST", "/x", body=b"{}"))
        client.read_head()
    connections = worker.wait_for_connections(count)
    progress = dict.fromkeys(connections, (-1, time.monotonic()))
    waited = {}

    def look():
        now = time.monotonic()
        for client in clients:
            with contextlib.suppress(OSError):
                client.socket.recv(1, socket.MSG_DONTWAIT)
        for connection in set(connections) - set(waited):
            if connection.over.is_set():
                waited[connection] = now - progress[connection][1]
            elif connection.sent != progress[connection][0]:
                progress[connection] = (connection.sent, now)
        return len(waited) == count

    eventually(look, "a stream is still open")
    # The worker may have got rid of some bytes after the client's last: into the router's own sockets.
    assert max(waited.values()) < timeout + 1.5


def test_a_slow_client_that_takes_a_little_now_and_then_gets_everything(harness):
    body = bytes(range(256)) * 100_000
    worker = harness.worker(lambda connection, _: connection.send(response(200, body)))
    router = harness.router(worker, client_write_timeout_secs=2)
    client = harness.client(router, receive_buffer=1 << 17)
    client.send(request())
    client.read_head()
    got = client.read_exactly(1000)
    pace = threading.Event()
    for _ in range(6):
        pace.wait(0.5)
        got += client.read_exactly(3_000_000)  # so much that the router's socket has room again
    got += client.read_exactly(len(body) - len(got))
    assert hashlib.sha256(got).digest() == hashlib.sha256(body).digest()
    client.must_be_open()
