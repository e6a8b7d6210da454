"""Connections that do not speak: how long they are kept, and which of them make room for new ones.

mending row 12: the head timeout runs from accept for a connection's first request; at --max-connections the
longest idle connection is closed for the new one; connections to the admin and metrics ports count.
"""

import select

import pytest

from tests.fakes.authority import Authority
from tests.fakes.wire import EndedEarlyError, eventually, request, response

RESERVED = 16  # kReservedAdminConnections


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path)


def metric(router, line):
    return next(
        int(row.removeprefix(f"vllm_router_{line} "))
        for row in router.server.metrics_text().splitlines()
        if row.startswith(f"vllm_router_{line} ")
    )


def is_served(client):
    try:
        return client.ask("GET", "/liveness").status == 200
    except (ConnectionError, EndedEarlyError):
        return False


def at_work(harness, port, path):
    """A connection whose request is there and has yet to bring its body."""
    client = harness.client_at(port)
    client.send(request("POST", path, body=b"ab")[:-1])
    client.wait_until_read()
    return client


# ---- how long


def test_a_connection_that_never_speaks_is_closed_after_the_head_timeout_without_a_word(harness):
    """mending row 12: it was kept for the idle timeout, 620 s, which holds between requests only."""
    router = harness.router(client_head_timeout_secs=0.3)
    between_requests = harness.client(router)
    between_requests.must_be_open()
    silent = harness.client(router)
    silent.must_be_closed()
    assert metric(router, 'client_connections_rejected_total{reason="no_request"}') == 1
    between_requests.must_be_open()


def test_tls_and_the_first_head_share_one_deadline(harness, authority):
    files = authority.certify("localhost")
    router = harness.router(tls_cert_path=files.cert, tls_key_path=files.key, client_head_timeout_secs=0.3)
    silent = harness.client(router)
    silent.must_be_closed()
    agreed = harness.client(router, tls=authority.client())
    agreed.must_be_closed()
    assert metric(router, 'client_connections_rejected_total{reason="no_request"}') == 2
    assert metric(router, 'client_connections_rejected_total{reason="tls_handshake"}') == 0


def test_the_first_request_s_head_is_timed_from_accept(harness):
    """mending row 12

    accept slow --- 0.5 s: first bytes ------ 1 s: 408
                    accept late ------------------------- 1.5 s: closed
    """
    router = harness.router(client_head_timeout_secs=1)
    half_as_long = harness.client(harness.router(client_head_timeout_secs=0.5))
    slow = harness.client(router)
    half_as_long.must_be_closed()
    late = harness.client(router)
    slow.send(b"GET / HT")
    first, _, _ = select.select([slow.socket, late.socket], [], [], 30)
    assert first == [slow.socket]
    assert slow.read_response().status == 408
    late.must_be_closed()


def test_later_heads_are_timed_from_their_first_byte(harness):
    router = harness.router(client_head_timeout_secs=0.3)
    client, silent = harness.client(router), harness.client(router)
    client.must_be_open()
    silent.must_be_closed()  # so the head timeout has passed since the first request
    client.must_be_open()
    client.send(b"GET")
    assert client.read_response().status == 408


# ---- at the limit


def test_at_the_limit_the_longest_idle_connection_makes_room(harness):
    """mending row 12: silent connections filled --max-connections, and new clients were turned away."""
    router = harness.router(max_connections=5)
    clients = [harness.client(router) for _ in range(5)]
    for client in clients[1:]:
        client.must_be_open()
    clients[1].must_be_open()  # order of idleness: 0 (silent since accept), 2, 3, 4, 1
    kept = [clients[number] for number in (0, 2, 3, 4, 1)]
    while kept:
        harness.client(router).must_be_open()
        kept.pop(0).must_be_closed()
        assert not any(client.readable(0) for client in kept)
    assert metric(router, "client_connections_evicted_total") == 5
    assert metric(router, "client_connections") == 5


def test_clients_are_served_while_more_silent_connections_come_than_may(harness):
    router = harness.router(harness.worker(), max_connections=200, threads=2)
    silent = [harness.client(router) for _ in range(300)]
    for _ in range(100):
        client = harness.client(router)
        assert client.ask("GET", "/x").status == 200
    # The last one that made room is closed by a thread of its own.
    eventually(lambda: metric(router, "client_connections") <= 200)
    eventually(lambda: sum(client.readable(0) for client in silent) == 200)


def test_connections_at_work_are_never_closed_for_a_new_one(harness):
    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b"hello"))

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker, max_connections=3)
    busy = [harness.client(router) for _ in range(2)]
    for client in busy:
        client.send(request("GET", "/x"))
    worker.wait_for_requests(2)
    uploading = at_work(harness, router.port, "/x")
    assert not is_served(harness.client(router))
    assert metric(router, 'client_connections_rejected_total{reason="max_connections"}') == 1
    gate.open()
    for client in busy:
        assert client.read_response().body == b"hello"
    uploading.send(b"b")
    assert uploading.read_response().status == 200
    assert is_served(harness.client(router))


@pytest.mark.parametrize(
    "sent", [b"G", b"GET /liveness HTTP/1.1\r\nHost: a\r\n\r\nGE"], ids=["first", "next"]
)
def test_half_a_head_makes_room_as_silence_does(harness, sent):
    """mending row 12: one byte per connection filled --max-connections, and probes failed."""
    router = harness.router(harness.worker(), max_connections=20, threads=2)
    begun = [harness.client(router) for _ in range(20)]
    for client in begun:
        client.send(sent)
        client.wait_until_read()
    for _ in range(30):
        assert is_served(harness.client(router))
        assert harness.client(router).ask("GET", "/x").status == 200
    assert metric(router, "client_connections") <= 20


def test_an_idle_connection_of_another_thread_makes_room(harness):
    """mending row 12: which thread a connection belongs to is the kernel's choice."""
    router = harness.router(max_connections=8, threads=4)
    clients = [harness.client(router) for _ in range(8)]
    for client in clients:
        client.must_be_open()
    for _ in range(60):
        newcomer = harness.client(router)
        assert is_served(newcomer)
        clients.append(newcomer)
    eventually(lambda: metric(router, "client_connections") == 8)
    assert metric(router, 'client_connections_rejected_total{reason="max_connections"}') == 0


def test_a_connection_in_the_tls_handshake_makes_room(harness, authority):
    files = authority.certify("localhost")
    router = harness.router(tls_cert_path=files.cert, tls_key_path=files.key, max_connections=3)
    for _ in range(3):
        stuck = harness.client(router)
        stuck.send(bytes.fromhex("16030100700100006c0303"))
        stuck.wait_until_read()
    for _ in range(3):
        assert is_served(harness.client(router, tls=authority.client()))
    assert metric(router, "client_connections_evicted_total") == 3
    assert metric(router, 'client_connections_rejected_total{reason="tls_handshake"}') == 0


# ---- admin and metrics ports


def test_connections_to_the_admin_and_metrics_ports_count(harness):
    """mending row 12: they came on top of --max-connections, in any number."""
    router = harness.router(max_connections=2, prometheus_port=0, admin_port=0)
    scraper = harness.client_at(router.server.metrics_port)
    assert scraper.ask("GET", "/metrics").status == 200
    at_work(harness, router.server.admin_port, "/add_worker")
    first = at_work(harness, router.port, "/x")
    scraper.must_be_closed()
    assert not is_served(harness.client(router))
    first.close()
    eventually(lambda: is_served(harness.client(router)))


def test_an_operator_gets_in_when_clients_fill_the_limit(harness):
    router = harness.router(max_connections=2, prometheus_port=0, admin_port=0)
    admin_port = router.server.admin_port
    for _ in range(2):
        at_work(harness, router.port, "/x")
    assert not is_served(harness.client(router))
    operator = harness.client_at(admin_port)
    assert operator.ask("GET", "/workers").status == 200
    for _ in range(RESERVED - 1):
        at_work(harness, admin_port, "/add_worker")
    assert operator.ask("GET", "/workers").status == 200
    another = harness.client_at(admin_port)  # in the place of the idle operator
    assert another.ask("GET", "/workers").status == 200
    operator.must_be_closed()
    at_work(harness, admin_port, "/add_worker")
    another.must_be_closed()
    assert not is_served(harness.client_at(admin_port))
