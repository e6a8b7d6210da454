"""Workers that refuse, hang, stall or leave, and connections to them that are kept, reused and found dead."""

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import chunk, chunked, request, response

OK = b"HTTP/1.1 200 OK\r\n"
SSE_HEAD = OK + b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
BIG = 20_000_000  # more than the sockets between router and worker take
STREAMED = 100_000  # more than is read before a worker is asked


def ask(client, path="/v1/completions", body=b"{}"):
    return client.ask("POST", path, body=body)


# ---- connecting


def test_a_worker_that_refuses_is_a_502_that_does_not_name_it(harness):
    port = harness.refusing_port()
    router = harness.router(port)
    client = harness.client(router)
    for body in (b"{}", bytes(STREAMED)):
        answer = ask(client, body=body)
        assert (answer.status, error_of(answer)["code"]) == (502, "worker_unreachable")
        assert str(port.port) not in answer.body.decode()
        client = harness.client(router)


def test_the_connection_goes_on_after_a_502(harness):
    client = harness.client(harness.router(harness.refusing_port(), harness.worker()))
    statuses = [ask(client).status for _ in range(4)]
    assert statuses == [502, 200, 502, 200]


def test_a_worker_that_lets_nobody_in_is_a_504_after_the_connect_timeout(harness):
    client = harness.client(harness.router(harness.silent_port(), connect_timeout_secs=0.1))
    answer = ask(client)
    assert (answer.status, error_of(answer)["code"]) == (504, "connect_timeout")
    client.must_be_open()


def test_a_name_that_has_no_address_is_a_502(harness):
    # A label of more than 63 letters is no name to anybody, so nobody is asked.
    client = harness.client(harness.router("http://" + "a" * 64 + ":8000"))
    answer = ask(client)
    assert (answer.status, error_of(answer)["code"]) == (502, "worker_unreachable")


def test_a_worker_is_found_by_name_whatever_its_first_address(harness):
    worker = harness.worker()  # on 127.0.0.1, while localhost may be ::1 first
    client = harness.client(harness.router(f"http://localhost:{worker.port}"))
    assert ask(client).status == 200
    assert worker.requests[0].get("host") == f"localhost:{worker.port}"


def test_a_worker_at_an_ipv6_address_is_reached(harness):
    worker = harness.worker(host="::1")
    client = harness.client(harness.router(worker))
    assert ask(client).status == 200
    assert worker.requests[0].get("host") == f"[::1]:{worker.port}"


def test_without_workers_the_answer_is_a_503(harness):
    client = harness.client(harness.router())
    answer = ask(client)
    assert (answer.status, error_of(answer)["code"]) == (503, "no_workers")
    assert answer.get("retry-after") == "1"
    client.must_be_open()


def test_with_all_workers_unhealthy_the_answer_is_a_503(harness):
    worker = harness.worker()
    router = harness.router(worker)
    router.core.set_healthy(worker.url, False)
    client = harness.client(router)
    assert ask(client).status == 503
    router.core.set_healthy(worker.url, True)
    assert ask(client).status == 200


# ---- hanging


@pytest.mark.parametrize("option", ["first_byte_timeout_secs", "request_timeout_secs"])
@pytest.mark.parametrize("said", [b"", OK, b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_a_worker_that_does_not_answer_in_time_is_a_504_and_sees_us_leave(harness, option, said):
    def hang(connection, _message):
        connection.send(said)
        connection.ending()

    worker = harness.worker(hang)
    client = harness.client(harness.router(worker, **{option: 0.1}))
    answer = ask(client)
    assert (answer.status, error_of(answer)["code"]) == (504, "first_byte_timeout")
    assert worker.connections[0].wait_ended() in ("eof", "reset")
    client.must_be_open()


def test_a_worker_that_takes_no_more_of_a_request_is_a_504(harness):
    def take_nothing(connection):
        connection.read_request_head()
        gate.wait()
        connection.ending()

    worker = harness.worker(script=take_nothing, receive_buffer=8192)
    gate = worker.gate()
    client = harness.client(harness.router(worker, policy="consistent_hash", upstream_write_timeout_secs=0.1))
    answer = ask(client, body=bytes(8_000_000))
    assert (answer.status, error_of(answer)["code"]) == (504, "worker_write_timeout")
    gate.open()
    worker.connections[0].wait_ended()
    client.must_be_open()


def test_a_worker_that_takes_no_more_of_a_streamed_request_is_a_504(harness):
    def take_nothing(connection):
        connection.read_request_head()
        gate.wait()
        connection.ending()

    worker = harness.worker(script=take_nothing, receive_buffer=8192)
    gate = worker.gate()
    client = harness.client(harness.router(worker, upstream_write_timeout_secs=0.1))
    client.socket.setblocking(False)
    client.send(request("POST", "/x", ("Content-Length", str(BIG))))
    sent = 0
    while not client.readable(0.0):
        sent += client.send_what_fits(bytes(1 << 16))
    client.socket.settimeout(30)
    answer = client.read_response()
    assert (answer.status, error_of(answer)["code"]) == (504, "worker_write_timeout")
    assert sent < BIG
    gate.open()
    worker.connections[0].wait_ended()


@pytest.mark.parametrize("said", [SSE_HEAD, SSE_HEAD + chunk(b"data: 1\n\n"), SSE_HEAD + b"5\r\nda"])
def test_a_stream_that_stalls_is_cut(harness, said):
    def stall(connection, _message):
        connection.send(said)
        connection.ending()

    worker = harness.worker(stall)
    client = harness.client(harness.router(worker, stream_idle_timeout_secs=0.1, hold_stream_head="off"))
    client.send(request())
    assert client.read_head().status == 200
    assert not client.read_to_end().endswith(b"0\r\n\r\n")
    worker.connections[0].wait_ended()


def test_a_stream_that_moves_outlives_every_timeout_of_a_single_step(harness):
    def stream(connection, _message):
        connection.send(SSE_HEAD)
        for number in range(10):
            pace._event.wait(0.1)
            connection.send(chunk(b"data: %d\n\n" % number))
        connection.send(chunked())

    worker = harness.worker(stream)
    pace = worker.gate()
    router = harness.router(
        worker, stream_idle_timeout_secs=0.4, first_byte_timeout_secs=0.4, request_timeout_secs=0.4
    )
    client = harness.client(router)
    assert client.ask().body.endswith(b"data: 9\n\n")
    client.must_be_open()


@pytest.mark.parametrize("kind", ["stream", "other"])
def test_an_answer_that_takes_longer_than_its_whole_time_is_cut(harness, kind):
    def drip(connection, _message):
        connection.send(SSE_HEAD if kind == "stream" else OK + b"Content-Length: 1000000\r\n\r\n")
        while True:
            pace._event.wait(0.01)
            connection.send(chunk(b"data: x\n\n") if kind == "stream" else b"x")

    worker = harness.worker(drip)
    pace = worker.gate()
    option = "stream_total_timeout_secs" if kind == "stream" else "request_timeout_secs"
    client = harness.client(harness.router(worker, **{option: 0.3}))
    client.send(request())
    assert client.read_head().status == 200
    assert not client.read_to_end().endswith(b"0\r\n\r\n")
    worker.connections[0].wait_ended()


# ---- kept connections


def test_connections_to_a_worker_are_used_again_the_youngest_first(harness):
    def answer(connection, message):
        if message.target == "/wait":
            gate.wait()
        connection.send(response(200, b"%d" % worker.connections.index(connection)))

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker)
    first, second = harness.client(router), harness.client(router)
    first.send(request("GET", "/wait"))
    worker.wait_for_requests(1)
    assert second.ask().body == b"1"
    gate.open()
    assert first.read_response().body == b"0"
    for _ in range(5):  # 0 came back last
        assert first.ask().body == b"0"
        assert second.ask().body == b"0"
    assert len(worker.connections) == 2


def test_clients_share_the_connections_to_a_worker(harness):
    worker = harness.worker()
    router = harness.router(worker)
    for _ in range(20):
        client = harness.client(router)
        assert ask(client).status == 200
        client.close()
    assert len(worker.connections) == 1
    assert len(worker.requests) == 20


def test_a_client_s_connection_carries_many_requests(harness):
    client = harness.client(harness.router(harness.worker(), harness.worker()))
    for number in range(200):
        assert ask(client, body=b"x" * number).status == 200


def test_an_idle_connection_is_closed_before_the_worker_would(harness):
    worker = harness.worker()
    router = harness.router(worker, upstream_pool_idle_secs=0.1)
    client = harness.client(router)
    ask(client)
    assert worker.connections[0].wait_ended() == "eof"
    assert ask(client).status == 200
    assert len(worker.connections) == 2


def test_no_more_idle_connections_are_kept_than_allowed(harness):
    def answer(connection, _message):
        if len(worker.requests) <= 4:
            gate.wait()
        connection.send(response(200, b""))

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker, upstream_pool_size=2)
    clients = [harness.client(router) for _ in range(4)]
    for client in clients:
        client.send(request())
    worker.wait_for_requests(4)
    gate.open()
    for client in clients:
        client.read_response()
    closed = [connection for connection in worker.wait_for_connections(4) if connection.over.wait(0.0)]
    router.wait_for_load(0)
    while len(closed) < 2:
        closed = [connection for connection in worker.connections if connection.over.wait(0.01)]
    assert len(closed) == 2


def test_a_pool_of_none_keeps_none(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker, upstream_pool_size=0))
    for number in range(1, 4):
        ask(client)
        assert worker.connections[-1].wait_ended() == "eof"
        assert len(worker.connections) == number


def test_a_kept_connection_that_the_worker_closes_is_forgotten(harness):
    worker = harness.worker(lambda connection, _: connection.send(response(200, b"")) or connection.close())
    client = harness.client(harness.router(worker))
    for _ in range(5):
        assert ask(client).status == 200
    assert len(worker.requests) == 5


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_kept_connection_that_ends_on_the_next_request_is_retried_once_on_a_fresh_one(harness, how):
    """The worker's idle timeout and our next request cross on the way."""

    def answer(connection, message):
        if message.target == "/again" and connection is worker.connections[0]:
            getattr(connection, how)()
            return
        connection.send(response(200, message.body))

    worker = harness.worker(answer)
    router = harness.router(worker)
    client = harness.client(router)
    assert ask(client).status == 200
    assert ask(client, "/again", b"hello").body == b"hello"
    assert [message.target for message in worker.requests] == ["/v1/completions", "/again", "/again"]
    assert worker.requests[1].raw == worker.requests[2].raw
    assert [len(connection.requests) for connection in worker.connections] == [2, 1]


@pytest.mark.parametrize("how", ["close", "reset"])
def test_only_one_retry_is_made(harness, how):
    def answer(connection, message):
        if message.target == "/again":
            getattr(connection, how)()
            return
        connection.send(response(200, message.body))

    worker = harness.worker(answer)
    client = harness.client(harness.router(worker))
    ask(client)
    answer = ask(client, "/again")
    assert (answer.status, error_of(answer)["code"]) == (502, "worker_closed")
    assert len(worker.requests) == 3
    client.must_be_open()


@pytest.mark.parametrize("said", [b"H", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 100 Continue\r\n\r\n"])
def test_a_kept_connection_that_ends_after_a_byte_of_an_answer_is_not_retried(harness, said):
    # The worker has begun to work on the request.
    def answer(connection, message):
        if message.target == "/again":
            connection.send(said)
            connection.close()
            return
        connection.send(response(200, b""))

    worker = harness.worker(answer)
    client = harness.client(harness.router(worker))
    ask(client)
    assert ask(client, "/again").status == 502
    assert len(worker.requests) == 2


def test_a_fresh_connection_that_ends_is_not_retried(harness):
    worker = harness.worker(lambda connection, _: connection.close())
    client = harness.client(harness.router(worker))
    assert ask(client).status == 502
    assert len(worker.requests) == 1


def test_one_retry_finds_the_worker_gone(harness):
    def answer(connection, message):
        if message.target == "/again":
            worker.stop_listening()
            connection.close()
            return
        connection.send(response(200, b""))

    worker = harness.worker(answer)
    client = harness.client(harness.router(worker))
    ask(client)
    assert error_of(ask(client, "/again"))["code"] == "worker_unreachable"


def test_a_worker_that_was_restarted_is_found_again(harness):
    first = harness.worker()
    router = harness.router(first)
    client = harness.client(router)
    ask(client)
    first.stop()
    assert ask(client).status == 502
    second = harness.worker(port=first.port)
    assert ask(client).status == 200
    assert len(second.requests) == 1


# ---- one of several


def test_a_failing_worker_harms_only_its_own_requests(harness):
    failing = harness.worker(lambda connection, _: connection.reset())
    healthy = harness.worker()
    router = harness.router(failing, healthy, threads=2)
    statuses = [ask(harness.client(router)).status for _ in range(20)]
    assert statuses == [502, 200] * 10
