"""How the server ends: idle clients are sent home, work in hand is finished, what lasts too long is cut."""

import json
import socket
import threading

import pytest

from tests.fakes.harness import QUIET, error_of
from tests.fakes.wire import EndedEarlyError, chunk, chunked, eventually, request, response
from vllm_router import Router, _core

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
SHORT = {"shutdown_grace_period_secs": 0.1}


def test_idle_connections_are_closed_and_the_port_too(harness):
    router = harness.router(harness.worker(), threads=2)
    clients = [harness.client(router) for _ in range(10)]
    for client in clients[:5]:
        client.ask()
    router.shutdown()
    for client in clients:
        client.must_be_closed()
    router.must_end()
    with pytest.raises(ConnectionRefusedError):
        router.connect()


def test_a_request_in_hand_is_answered_and_told_to_close(harness):
    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b"late"))

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker)
    client, idle = harness.client(router), harness.client(router)
    client.send(request())
    worker.wait_for_requests(1)
    router.shutdown()
    idle.must_be_closed()
    assert not router.server.wait(0.01)
    gate.open()
    answered = client.read_response()
    assert (answered.body, answered.get("connection")) == (b"late", "close")
    client.must_be_closed()
    router.must_end()


def test_a_stream_in_hand_is_finished(harness):
    def stream(connection, _message):
        connection.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        gate.wait()
        connection.send(chunked(b"data: 2\n\n", b"data: [DONE]\n\n"))

    worker = harness.worker(stream)
    gate = worker.gate()
    router = harness.router(worker)
    client, idle = harness.client(router), harness.client(router)
    client.send(request())
    client.read_head()
    assert client.read_chunk() == b"data: 1\n\n"
    router.shutdown()
    idle.must_be_closed()
    gate.open()
    assert client.read_to_end().endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")
    router.must_end()


def test_a_request_that_is_half_there_is_finished(harness):
    router = harness.router(harness.worker(), policy="consistent_hash")
    head, body, idle = harness.client(router), harness.client(router), harness.client(router)
    whole = request("POST", "/x", body=b"hello")
    head.send(whole[:20])
    body.send(whole[:-2])
    for client in (head, body):
        client.wait_until_read()
    router.shutdown()
    idle.must_be_closed()
    head.send(whole[20:])
    body.send(whole[-2:])
    for client in (head, body):
        answer = client.read_response()
        assert (answer.status, answer.get("connection")) == (200, "close")
        client.must_be_closed()
    router.must_end()


@pytest.mark.parametrize("threads", [1, 2])
def test_every_request_that_was_sent_before_the_shutdown_is_answered(harness, threads):
    """Some are not even accepted yet, some wait in sockets that look idle."""
    router = harness.router(harness.worker(), threads=threads)
    resting = [harness.client(router) for _ in range(30)]
    for client in resting:
        client.ask()
    for client in resting:
        client.send(request())
    new = [harness.client(router) for _ in range(30)]
    for client in new:
        client.send(request())
    router.shutdown()
    for client in (*resting, *new):
        assert client.read_response().body == b"hello"
        client.must_be_closed()
    router.must_end()


def test_pipelined_requests_after_the_one_in_hand_are_not_begun(harness):
    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b""))

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker)
    client, idle = harness.client(router), harness.client(router)
    client.send(request() * 3)
    worker.wait_for_requests(1)
    router.shutdown()
    idle.must_be_closed()
    gate.open()
    assert client.read_response().get("connection") == "close"
    client.must_be_closed()
    assert len(worker.requests) == 1


def test_own_answers_announce_the_close_too(harness):
    """Readiness turns first, while requests still come in for the time of settling."""
    router = harness.router(harness.worker(), shutdown_settle_secs=100)
    client, other = harness.client(router), harness.client(router)
    assert client.ask("GET", "/readiness").status == 200
    router.shutdown()
    eventually(lambda: client.ask("GET", "/readiness").status == 503)
    answer = client.ask("GET", "/readiness")
    assert json.loads(answer.body)["reason"] == "shutting down"
    assert harness.client(router).ask().status == 200  # a newcomer
    assert other.ask("GET", "/liveness").status == 200
    router.shutdown()  # the second call does not settle any longer
    client.must_be_closed()
    other.must_be_closed()
    router.must_end()


# ---- cut


def test_after_the_grace_period_streams_are_cut_and_counted(harness):
    def stream(connection, _message):
        connection.send(SSE_HEAD + chunk(b"data: 1\n\n"))
        connection.ending()

    worker = harness.worker(stream)
    router = harness.router(worker, threads=2, **SHORT)
    router.may_cut = True
    clients = [harness.client(router) for _ in range(5)]
    for client in clients:
        client.send(request())
        client.read_head()
        client.read_chunk()
    router.shutdown()
    for client in clients:
        with pytest.raises((EndedEarlyError, ConnectionResetError)):
            client.read_chunk()
    for connection in worker.connections:
        connection.wait_ended()
    router.must_end()
    assert router.server.exchanges_cut == 5
    assert sum(router.loads()) == 0


def test_one_exchange_that_is_cut_is_told_as_one(harness, capfd):
    worker = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(worker, **SHORT)
    router.may_cut = True
    client = harness.client(router)
    client.send(request())
    worker.wait_for_requests(1)
    router.shutdown()
    router.must_end()
    _core.flush_log()
    assert "shutting down: 1 exchange is aborted\n" in capfd.readouterr().err


def test_a_request_that_has_no_answer_yet_is_answered_with_503_when_it_is_cut(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    silent = harness.silent_port()
    router = harness.router(worker, silent, policy="round_robin", connect_timeout_secs=100, **SHORT)
    router.may_cut = True
    thinking, connecting = harness.client(router), harness.client(router)
    thinking.send(request())
    router.wait_for_load(1)
    connecting.send(request())
    router.wait_for_load(2)
    router.shutdown()
    for client in (thinking, connecting):
        answer = client.read_response()
        assert (answer.status, error_of(answer)["code"]) == (503, "shutting_down")
        assert answer.get("connection") == "close"
        assert answer.get("retry-after") == "1"
        client.must_be_closed()
    router.must_end()
    assert router.server.exchanges_cut == 2


def test_a_second_shutdown_cuts_at_once(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(worker)
    router.may_cut = True
    client = harness.client(router)
    client.send(request())
    worker.wait_for_requests(1)
    router.shutdown()
    assert not router.server.wait(0.05)
    router.shutdown()
    assert client.read_response().status == 503
    router.must_end(3.0)


def test_half_requests_are_cut_as_well(harness):
    worker = harness.worker()
    router = harness.router(worker, policy="consistent_hash", **SHORT)
    router.may_cut = True
    whole = request("POST", "/x", body=b"hello")
    head, body, chunks = (harness.client(router) for _ in range(3))
    head.send(whole[:20])
    body.send(whole[:-2])
    chunks.send(request("POST", "/x", ("Transfer-Encoding", "chunked")) + b"5\r\nhe")
    for client in (head, body, chunks):
        client.wait_until_read()
    router.shutdown()
    head.must_be_closed()  # there is no request to answer
    for client in (body, chunks):
        assert client.read_response().status == 503
        client.must_be_closed()
    router.must_end(3.0)


def test_a_streamed_request_is_cut_while_its_body_flows(harness):
    def swallow(connection):
        connection.read_request_head()
        connection.ending()

    worker = harness.worker(script=swallow)
    router = harness.router(worker, **SHORT)
    router.may_cut = True
    client = harness.client(router)
    client.send(request("POST", "/x", ("Content-Length", "1000000")) + bytes(100_000))
    worker.wait_for_requests(1)
    router.shutdown()
    assert client.read_response().status == 503
    worker.connections[0].wait_ended()
    router.must_end(3.0)


@pytest.mark.parametrize("version", ["1.1", "1.0"])
def test_a_client_that_does_not_read_cannot_hold_the_server_up(harness, version):
    def pour(connection, _message):
        connection.send(SSE_HEAD)
        while True:
            connection.send(chunk(bytes(60_000)))

    worker = harness.worker(pour)
    router = harness.router(worker, **SHORT)
    router.may_cut = True
    client = harness.client(router, receive_buffer=8192)
    client.send(request(version=version))
    client.read_head()
    worker.wait_until_stuck()
    router.shutdown()
    router.must_end(2.0)
    if version == "1.0":
        with pytest.raises(ConnectionResetError):
            client.read_to_end()
    else:
        client.ending()
        assert not client.received.endswith(b"0\r\n\r\n")


def test_a_client_that_lingers_cannot_hold_the_server_up(harness):
    router = harness.router(harness.worker(), **SHORT)
    client = harness.client(router)
    client.send(b"rubbish\r\n\r\n")
    client.read_response()
    router.shutdown()
    router.must_end(2.0)


def test_admin_calls_that_wait_are_ended(harness):
    silent = harness.silent_port()
    hanging = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(silent, hanging, health_check_timeout_secs=100)
    adding, hung, listing = (harness.client(router) for _ in range(3))
    adding.send(request("POST", f"/add_worker?url={harness.refusing_port().url}", body=b""))
    hung.send(request("POST", f"/add_worker?url={harness.worker(hanging.answer).url}", body=b""))
    listing.send(request("GET", "/v1/models"))
    hanging.wait_for_requests(1)
    adding.wait_until_read()
    listing.wait_until_read()
    router.shutdown()
    for client in (adding, hung):  # which could last for minutes: no grace for them
        answer = client.read_response()
        assert (answer.status, error_of(answer)["code"]) == (503, "shutting_down")
    router.shutdown()
    assert listing.read_response().status == 503
    router.must_end(3.0)


def test_health_checks_under_way_do_not_hold_the_server_up(harness):
    hanging = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(
        hanging, harness.silent_port(), health_check_interval_secs=0.01, health_check_timeout_secs=100
    )
    hanging.wait_for_requests(1)
    router.shutdown()
    router.must_end(2.0)


def test_a_scraper_does_not_hold_the_server_up(harness):
    router = harness.router(prometheus_port=0)
    scraper = harness.client_at(router.server.metrics_port)
    scraper.ask("GET", "/metrics")
    router.shutdown()
    scraper.must_be_closed()
    router.must_end(2.0)


# ---- without a word


def test_a_server_that_is_dropped_ends(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(worker)
    router.may_cut = True
    client = harness.client(router)
    client.send(request())
    worker.wait_for_requests(1)
    server, router.server = router.server, None
    del server
    assert client.read_response().status == 503
    assert router.loads() == [0]
    worker.connections[0].wait_ended()


def test_shutting_down_often_and_from_many_threads_is_fine(harness):
    router = harness.router(harness.worker(), threads=2)
    threads = [threading.Thread(target=router.shutdown) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    router.must_end()
    router.must_end()
    router.shutdown()


def test_a_router_outlives_its_servers(harness):
    worker = harness.worker()
    core = Router(policy="round_robin", worker_urls=[worker.url])
    for _ in range(3):
        server = _core.Server(core, **QUIET)
        with socket.create_connection(("127.0.0.1", server.port)) as client:
            client.sendall(request())
            assert client.recv(100).startswith(b"HTTP/1.1 200")
        server.shutdown()
        assert server.wait(10)
        del server
    assert core.workers[0].selections == 3
