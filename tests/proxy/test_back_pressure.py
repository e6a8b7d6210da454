"""Whoever reads slowly slows the other side down, and the router's memory stays as it is."""

import hashlib
import threading

from tests.fakes.wire import anonymous_memory, chunk, chunked, request, reserved_memory, response

OK = b"HTTP/1.1 200 OK\r\n"
MIB = 1 << 20
PLENTY = 256 * MIB  # what is on offer
ON_THE_WAY = 64 * MIB  # what kernel buffers between the two ends may hold, with much room
ROUTER_MEMORY = 8 * MIB  # what the router may need, with much room


def test_a_client_that_stops_reading_stops_the_worker(harness):
    piece = chunk(bytes(60_000))

    def pour(connection, _message):
        connection.send(OK + b"Transfer-Encoding: chunked\r\n\r\n")
        while connection.sent < PLENTY:
            connection.send(piece)

    worker = harness.worker(pour)
    router = harness.router(worker)
    client = harness.client(router, receive_buffer=65536)
    before = anonymous_memory()
    client.send(request())
    client.read_head()
    worker.wait_until_stuck()
    assert worker.connections[0].sent < ON_THE_WAY
    assert anonymous_memory() - before < ROUTER_MEMORY
    for _ in range(100):  # it goes on as soon as the client does
        client.read_chunk()


def test_stalled_clients_cost_little_each(harness):
    piece = chunk(bytes(60_000))

    def pour(connection, _message):
        connection.send(OK + b"Transfer-Encoding: chunked\r\n\r\n")
        while True:
            connection.send(piece)

    worker = harness.worker(pour, send_buffer=65536)
    router = harness.router(worker)
    clients = [harness.client(router, receive_buffer=8192) for _ in range(40)]
    before = anonymous_memory()
    for client in clients:
        client.send(request())
    for client in clients:
        client.read_head()
    worker.wait_until_stuck()
    assert anonymous_memory() - before < len(clients) * 512 * 1024


def test_a_worker_that_stops_reading_stops_the_client(harness):
    size = 64 * MIB
    digest = hashlib.sha256()
    got = []

    def swallow(connection):
        connection.read_request_head()
        gate.wait()
        left = size
        while left:
            piece = connection.read_some()
            connection.received.clear()
            digest.update(piece)
            left -= len(piece)
        got.append(digest.hexdigest())
        connection.send(response(200, b"all of it"))

    worker = harness.worker(script=swallow, receive_buffer=65536)
    gate = worker.gate()
    client = harness.client(harness.router(worker))
    before = anonymous_memory()
    client.send(request("POST", "/x", ("Content-Length", str(size))))
    pattern = bytes(range(256)) * 256
    expected = hashlib.sha256()
    sent = 0
    gate.wait_for_someone()
    while client.writable(0.3):
        count = client.send_what_fits(pattern[sent % len(pattern) :])
        sent += count
    assert sent < ON_THE_WAY
    assert anonymous_memory() - before < ROUTER_MEMORY
    gate.open()
    while sent < size:
        piece = pattern[sent % len(pattern) :][: size - sent]
        client.send(piece)
        sent += len(piece)
    assert client.read_response().body == b"all of it"
    for _ in range(size // len(pattern)):
        expected.update(pattern)
    assert got == [expected.hexdigest()]
    assert anonymous_memory() - before < ROUTER_MEMORY


def test_a_big_chunked_body_streams_in_flat_memory(harness):
    count, piece = 64, bytes(MIB)
    got = threading.Semaphore(0)
    seen = []

    def swallow(connection):
        connection.read_request_head()
        got.release()
        total = 0
        while data := connection.read_chunk():
            total += len(data)
            connection.received.clear()
        seen.append(total)
        connection.send(response(200, b""))

    client = harness.client(harness.router(harness.worker(script=swallow)))
    client.send(request("POST", "/x", ("Transfer-Encoding", "chunked")) + chunk(piece))
    assert got.acquire(timeout=30)
    before = anonymous_memory()
    for _ in range(count - 1):
        client.send(chunk(piece))
    client.send(chunked())
    assert client.read_response().status == 200
    assert anonymous_memory() - before < ROUTER_MEMORY
    assert seen == [count * len(piece)]


def test_a_claimed_length_takes_memory_only_as_it_arrives(harness):
    """A hundred clients that announce 500 MiB each and send a little."""
    router = harness.router(harness.worker(), policy="consistent_hash")
    clients = [harness.client(router) for _ in range(100)]
    before = reserved_memory()
    for client in clients:
        client.send(request("POST", "/x", ("Content-Length", str(500 * MIB))), b"{" * 1000)
    for client in clients:
        client.wait_until_read()
    assert reserved_memory() - before < 400 * MIB


def test_a_client_that_reads_slowly_does_not_slow_down_others(harness):
    def pour(connection, message):
        if message.target == "/pour":
            connection.send(OK + b"Transfer-Encoding: chunked\r\n\r\n")
            while True:
                connection.send(chunk(bytes(60_000)))
        connection.send(response(200, b"hello"))

    worker = harness.worker(pour)
    router = harness.router(worker)
    slow = [harness.client(router, receive_buffer=8192) for _ in range(10)]
    for client in slow:
        client.send(request("GET", "/pour"))
        client.read_head()
    worker.wait_until_stuck()
    quick = harness.client(router)
    for _ in range(100):
        assert quick.ask().body == b"hello"
