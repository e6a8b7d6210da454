"""TLS with clients and with workers: what holds for plain connections holds, and nobody is mistaken."""

import os
import socket
import ssl
from pathlib import Path

import pytest

from tests.fakes.authority import Authority
from tests.fakes.harness import error_of
from tests.fakes.wire import EndedEarlyError, chunk, chunked, eventually, request, response
from vllm_router import _core_testing as testing

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.fixture(scope="module")
def shown(authority):
    """What the router shows to clients."""
    files = authority.certify("localhost", "127.0.0.1")
    return {"tls_cert_path": files.cert, "tls_key_path": files.key}


@pytest.fixture(scope="module")
def trusting(authority):
    """Options of a router that trusts the workers' authority."""
    return {"worker_ca_file": authority.path}


# ---- clients


def test_requests_follow_one_another_on_a_connection(harness, authority, shown):
    worker = harness.worker()
    client = harness.client(harness.router(worker, **shown), tls=authority.client())
    for _ in range(3):
        assert client.ask("POST", "/v1/completions", body=b"{}").body == b"hello"
    assert worker.requests[0].get("x-forwarded-proto") == "https"
    assert client.socket.version() == "TLSv1.3"
    assert len(worker.connections) == 1


def test_one_two_is_spoken_and_alpn_answered(harness, authority, shown):
    router = harness.router(harness.worker(), **shown)
    context = authority.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2", "http/1.1"])
    client = harness.client(router, tls=context)
    assert (client.socket.version(), client.socket.selected_alpn_protocol()) == ("TLSv1.2", "http/1.1")
    client.must_be_open()


def test_an_older_version_than_is_asked_for_is_refused(harness, authority, shown):
    router = harness.router(**shown, tls_min_version="1.3")
    context = authority.client()
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        harness.client(router, tls=context)
    harness.client(router, tls=authority.client()).must_be_open()
    eventually(lambda: 'reason="tls_handshake"} 1' in router.server.metrics_text())


def offering(context: ssl.SSLContext, ciphers: str) -> ssl.SSLContext:
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(ciphers)
    return context


@pytest.mark.parametrize("suite", ["ECDHE-RSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305"])
def test_a_client_of_one_two_gets_forward_secrecy_and_authenticated_encryption(
    harness, authority, shown, suite
):
    context = offering(authority.client(), suite.replace("RSA", "ECDSA") + ":" + suite)
    client = harness.client(harness.router(harness.worker(), **shown), tls=context)
    assert client.socket.cipher()[0] in (suite, suite.replace("RSA", "ECDSA"))
    client.must_be_open()


@pytest.mark.parametrize("suites", ["AES128-SHA:ECDHE+AES128+SHA1", "AES128-GCM-SHA256", "DHE+AESGCM"])
def test_a_client_of_one_two_without_them_is_refused(harness, authority, shown, suites):
    """mending row 15: TLS 1.2 takes ECDHE and AEAD suites only."""
    # Whatever the kind of the certificate's key: the same suites with ECDSA are offered, too.
    context = offering(authority.client(), suites + ":ECDHE-ECDSA-AES128-SHA256:ECDHE-ECDSA-AES256-SHA")
    router = harness.router(harness.worker(), **shown)
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        harness.client(router, tls=context)
    harness.client(router, tls=authority.client()).must_be_open()


def test_other_suites_can_be_chosen_for_both_sides(harness, authority, shown, trusting):
    """mending row 15: --tls-ciphers changes the suites, of clients and of workers."""
    suite = "ECDHE-ECDSA-AES256-SHA:ECDHE-RSA-AES256-SHA"
    worker = harness.worker(tls=offering(authority.server("127.0.0.1"), suite))
    router = harness.router(worker, **shown, **trusting, tls_ciphers=suite)
    client = harness.client(router, tls=offering(authority.client(), suite))
    assert client.socket.cipher()[0] in suite.split(":")
    assert client.ask().body == b"hello"
    assert worker.connections[0].socket.cipher()[0] in suite.split(":")


def test_a_worker_of_one_two_without_them_cannot_be_reached(harness, authority, trusting):
    """mending row 15: what holds for clients holds for workers."""
    suites = "ECDHE-ECDSA-AES256-SHA:ECDHE-RSA-AES256-SHA:AES128-SHA"
    worker = harness.worker(tls=offering(authority.server("127.0.0.1"), suites))
    response = harness.client(harness.router(worker, **trusting)).ask()
    assert (response.status, error_of(response)["code"]) == (502, "worker_unreachable")


def test_long_bodies_come_through_both_ways(harness, authority, shown):
    body = os.urandom(3_000_000)

    def echo(connection, message):
        connection.send(response(200, message.body))

    client = harness.client(harness.router(harness.worker(echo), **shown), tls=authority.client())
    client.send(request("POST", "/x", body=body))  # nothing comes back before all of it is there
    assert client.read_response().body == body


@pytest.mark.parametrize("size", [1, 7, 16_383, 16_384, 16_385, 70_000])
def test_pieces_of_any_size_make_whole_records(harness, authority, shown, size):
    data = os.urandom(size)

    def answer(connection, _message):
        connection.send(SSE_HEAD + chunked(data, data[: size // 2] or b"x"))

    client = harness.client(harness.router(harness.worker(answer), **shown), tls=authority.client())
    assert client.ask("POST", "/x", body=data).body == data + (data[: size // 2] or b"x")


def test_every_event_comes_when_it_was_sent(harness, authority, shown):
    def stream(connection, _message):
        connection.send(SSE_HEAD)
        for number in range(5):
            gates[number].wait()
            connection.send(chunk(b"data: %d\n\n" % number))
        connection.send(b"0\r\n\r\n")

    worker = harness.worker(stream)
    gates = [worker.gate() for _ in range(5)]
    client = harness.client(harness.router(worker, hold_stream_head="off", **shown), tls=authority.client())
    client.send(request())
    client.read_head()
    for number in range(5):
        gates[number].open()
        assert client.read_chunk() == b"data: %d\n\n" % number
    assert client.read_chunk() == b""
    client.must_be_open()


def test_a_client_that_does_not_read_stops_its_worker(harness, authority, shown):
    def pour(connection, _message):
        connection.send(SSE_HEAD)
        while True:
            connection.send(chunk(bytes(60_000)))

    worker = harness.worker(pour, send_buffer=65536)
    router = harness.router(worker, **shown)
    client = harness.client(router, tls=authority.client(), receive_buffer=8192)
    client.send(request())
    client.read_head()
    worker.wait_until_stuck()
    stuck_at = worker.connections[0].sent
    read = 0
    while read < 6_000_000:
        read += len(client.read_chunk())
    eventually(lambda: worker.connections[0].sent > stuck_at, "it never went on")
    client.close()
    worker.connections[0].wait_ended()


@pytest.mark.parametrize("how", ["close", "reset", "unwrap"])
def test_a_client_that_leaves_ends_the_workers_work(harness, authority, shown, how):
    def stream(connection, _message):
        connection.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        connection.ending()

    worker = harness.worker(stream)
    router = harness.router(worker, **shown)
    client = harness.client(router, tls=authority.client())
    client.send(request())
    client.read_head()
    client.read_chunk()
    if how == "unwrap":  # says properly that no more will come, and keeps the connection
        client.socket.settimeout(0.0)
        with pytest.raises((ssl.SSLError, OSError)):
            client.socket.unwrap()
    else:
        getattr(client, how)()
    worker.connections[0].wait_ended()
    router.must_rest()


def test_an_answer_that_breaks_off_has_no_proper_end(harness, authority, shown):
    def answer(connection, _message):
        connection.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")

    worker = harness.worker(script=lambda connection: (connection.read_request(), answer(connection, None)))
    client = harness.client(harness.router(worker, **shown), tls=authority.client())
    client.send(request())
    client.read_head()
    with pytest.raises((EndedEarlyError, ConnectionResetError)):
        client.read_exactly(100)


def test_plain_http_on_the_tls_port_is_closed(harness, shown):
    router = harness.router(harness.worker(), **shown)
    client = harness.client(router)
    client.send(request())
    client.ending()
    assert not client.received.startswith(b"HTTP")
    eventually(lambda: 'reason="tls_handshake"} 1' in router.server.metrics_text())


def test_who_does_not_finish_the_handshake_has_as_long_as_for_a_head(harness, shown):
    router = harness.router(**shown, client_head_timeout_secs=0.2)
    silent, slow = harness.client(router), harness.client(router)
    slow.send(bytes.fromhex("1603010200010001fc0303"))
    for client in (silent, slow):
        assert client.ending() in ("eof", "reset")
    eventually(lambda: "vllm_router_client_connections 0\n" in router.server.metrics_text())


def test_a_connection_that_says_nothing_after_its_request_is_idle(harness, authority, shown):
    router = harness.router(**shown, client_idle_timeout_secs=0.2)
    client = harness.client(router, tls=authority.client())
    client.must_be_open()
    client.must_be_closed()


def test_clients_may_need_certificates(harness, authority, stranger, shown):
    router = harness.router(harness.worker(), **shown, tls_client_ca_file=authority.path)
    good = authority.client(authority.certify("somebody"))
    harness.client(router, tls=good).must_be_open()
    for context in (authority.client(), authority.client(stranger.certify("somebody"))):
        with pytest.raises((ssl.SSLError, ConnectionError, EndedEarlyError)):
            harness.client(router, tls=context).must_be_open()


def test_idle_clients_are_sent_home_properly_and_those_in_hand_finished(harness, authority, shown):
    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b"late"))

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker, **shown)
    busy, idle = (harness.client(router, tls=authority.client()) for _ in range(2))
    idle.must_be_open()
    busy.send(request())
    worker.wait_for_requests(1)
    router.shutdown()
    idle.must_be_closed()
    gate.open()
    assert busy.read_response().body == b"late"
    busy.must_be_closed()
    router.must_end()


def test_the_admin_port_speaks_it_and_the_metrics_do_not(harness, authority, shown):
    router = harness.router(**shown, admin_port=0, prometheus_port=0)
    assert harness.client_at(router.server.metrics_port).ask("GET", "/metrics").status == 200
    raw = socket.create_connection(("127.0.0.1", router.server.admin_port))
    with authority.client().wrap_socket(raw, server_hostname="localhost") as admin:
        admin.sendall(request("GET", "/list_workers"))
        assert admin.recv(1000).startswith(b"HTTP/1.1 200")


# ---- workers


def test_a_worker_over_tls_is_asked_checked_and_kept(harness, authority, trusting):
    worker = harness.worker(tls=authority.server("127.0.0.1"))
    router = harness.router(worker, **trusting)
    client = harness.client(router)
    for _ in range(3):
        assert client.ask("POST", "/v1/completions", body=b"{}").body == b"hello"
    assert len(worker.connections) == 1
    assert worker.requests[0].get("host") == worker.authority
    assert worker.requests[0].get("x-forwarded-proto") == "http"


def test_a_name_is_told_to_the_worker_and_has_to_be_in_its_certificate(harness, authority, trusting):
    asked = []
    context = authority.server("localhost")
    context.sni_callback = lambda _socket, name, _context: asked.append(name)
    worker = harness.worker(tls=context)
    named = harness.router(f"https://localhost:{worker.port}", **trusting)
    assert harness.client(named).ask().body == b"hello"
    assert asked == ["localhost"]
    numbered = harness.router(worker, **trusting)
    answer = harness.client(numbered).ask()
    assert (answer.status, error_of(answer)["code"]) == (502, "worker_unreachable")


def test_a_worker_that_nobody_vouches_for_is_not_asked(harness, stranger, trusting):
    worker = harness.worker(tls=stranger.server("127.0.0.1"))
    for options in (trusting, {}):  # our authority, the system's
        assert harness.client(harness.router(worker, **options)).ask().status == 502
    assert worker.requests == []
    insecure = harness.router(worker, worker_tls_insecure=True)
    assert harness.client(insecure).ask().body == b"hello"


def test_a_worker_without_tls_is_not_asked_either(harness, trusting):
    worker = harness.worker(script=lambda connection: connection.ending())
    router = harness.router(worker.url.replace("http:", "https:"), **trusting)
    client = harness.client(router)
    client.send(request())
    worker.wait_for_connections(1)
    worker.connections[0].send(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
    assert client.read_response().status == 502


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_worker_that_ends_the_handshake_cannot_be_reached(harness, trusting, how):
    def script(connection):
        connection.read_exactly(5)
        getattr(connection, how)()

    router = harness.router(harness.worker(script=script).url.replace("http:", "https:"), **trusting)
    client = harness.client(router)
    answer = client.ask()
    assert (answer.status, error_of(answer)["code"]) == (502, "worker_unreachable")
    client.must_be_open()


def test_a_handshake_that_takes_too_long_is_a_connect_that_did(harness, trusting):
    worker = harness.worker(script=lambda connection: connection.ending())
    router = harness.router(worker.url.replace("http:", "https:"), **trusting, connect_timeout_secs=0.2)
    answer = harness.client(router).ask()
    assert (answer.status, error_of(answer)["code"]) == (504, "connect_timeout")


def test_a_client_that_leaves_during_the_handshake_ends_it(harness, trusting):
    worker = harness.worker(script=lambda connection: connection.ending())
    router = harness.router(worker.url.replace("http:", "https:"), **trusting, connect_timeout_secs=100)
    client = harness.client(router)
    client.send(request())
    worker.wait_for_connections(1)
    client.close()
    worker.connections[0].wait_ended()


def test_a_worker_may_ask_for_a_certificate(harness, authority, trusting):
    worker = harness.worker(tls=authority.server("127.0.0.1", ask=True))
    files = authority.certify("router")
    shows = harness.router(worker, **trusting, worker_cert_path=files.cert, worker_key_path=files.key)
    assert harness.client(shows).ask().body == b"hello"
    assert harness.client(harness.router(worker, **trusting)).ask().status == 502


def test_health_checks_and_model_lists_go_the_same_way(harness, authority, stranger, trusting, written_to):
    stderr = written_to(2)
    good = harness.worker(tls=authority.server("127.0.0.1"))
    bad = harness.worker(tls=stranger.server("127.0.0.1"))
    router = harness.router(
        good, bad, **trusting, health_check_interval_secs=0.05, health_failure_threshold=1
    )
    good.wait_for_requests(2)
    eventually(lambda: [worker.healthy for worker in router.core.workers] == [True, False])
    assert harness.client(router).ask("GET", "/x").body == b"hello"
    eventually(lambda: "TLS failed: certificate verify failed" in stderr())


def test_a_connection_that_closed_while_it_rested_costs_nobody_anything(harness, authority, trusting):
    def once(connection):
        connection.read_request()
        connection.send(response(200, b"hello"))
        if len(worker.connections) == 1:
            gate.wait()
        else:
            connection.ending()

    worker = harness.worker(script=once, tls=authority.server("127.0.0.1"))
    gate = worker.gate()
    client = harness.client(harness.router(worker, **trusting))
    assert client.ask().body == b"hello"
    gate.open()
    worker.connections[0].over.wait(30)
    assert client.ask().body == b"hello"
    assert len(worker.connections) == 2


def test_the_next_handshake_takes_up_the_session(harness, authority, trusting):
    resumed = []

    def answer(connection, _message):
        resumed.append(connection.socket.session_reused)
        connection.send(response(200, b"hello", ("Connection", "close")))

    worker = harness.worker(answer, tls=authority.server("127.0.0.1"))
    client = harness.client(harness.router(worker, **trusting))
    for _ in range(3):
        assert client.ask().body == b"hello"
    assert resumed == [False, True, True]


@pytest.mark.parametrize("size", [0, 10, 100_000])
def test_an_end_that_came_with_the_last_bytes_is_seen(harness, authority, trusting, size):
    def answer(connection, _message):
        connection.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + bytes(size))
        connection.end()  # which waits for the router to end it, too

    worker = harness.worker(answer, tls=authority.server("127.0.0.1"))
    client = harness.client(harness.router(worker, **trusting))
    for _ in range(20):
        assert client.ask().body == bytes(size)


def test_an_end_that_the_worker_did_not_tell_is_none(harness, authority, trusting):
    """Anybody on the way could have made it."""

    def answer(connection, _message):
        connection.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhalf")
        raise ConnectionError  # closed below TLS

    worker = harness.worker(answer, tls=authority.server("127.0.0.1"))
    client = harness.client(harness.router(worker, **trusting))
    client.send(request())
    client.read_head()
    with pytest.raises((EndedEarlyError, ConnectionResetError)):
        client.read_to_last_chunk()


def test_both_ends_and_a_streamed_body(harness, authority, shown, trusting):
    body = os.urandom(2_000_000)

    def echo(connection, message):
        connection.send(response(200, message.body))

    worker = harness.worker(echo, tls=authority.server("127.0.0.1"))
    router = harness.router(worker, **shown, **trusting)
    client = harness.client(router, tls=authority.client())
    for size in (1_000, 100_000, 2_000_000):
        client.send(request("POST", "/x", body=body[:size]))
        assert client.read_response().body == body[:size]
    client.must_be_open()


# ---- files


def test_a_reload_shows_the_new_certificate_and_leaves_connections_be(harness, tmp_path, written_to):
    stderr = written_to(2)
    testing.configure_log()  # as it is at first, whatever ran in this process before

    def names(client):
        return {value for kind, value in client.socket.getpeercert()["subjectAltName"] if kind == "DNS"}

    mine = Authority(tmp_path)
    files = mine.certify("localhost", "old.example")
    router = harness.router(harness.worker(), tls_cert_path=files.cert, tls_key_path=files.key)
    assert router.server.has_something_to_reload
    client = harness.client(router, tls=mine.client())
    assert names(client) == {"localhost", "old.example"}
    mine.replace(files, "localhost", "new.example")
    router.server.reload()

    def shows_new():
        with_it = router.connect(tls=mine.client())
        found = names(with_it)
        with_it.close()
        return "new.example" in found

    eventually(shows_new)
    client.must_be_open()
    Path(files.cert).write_text("rubbish")
    router.server.reload()
    eventually(lambda: "the previous certificates and keys stay in force" in stderr())
    assert shows_new()
