"""A stream's 200 that promises nothing yet: it waits in the router for the first byte of its body."""

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import chunk, chunked, request, response

ON = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 5}
PATH = "/v1/completions"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"
EVENT = b"data: 1\n\n"


def streams(connection, _message):
    connection.send(HEAD + chunked(EVENT))


@pytest.mark.parametrize(
    ("said", "how"),
    [
        *((said, how) for said in (HEAD, HEAD + b"9", HEAD + b"9\r\n") for how in ("close", "reset")),
        (PLAIN, "reset"),  # closed, it would be a whole stream without events
    ],
)
def test_a_stream_that_ends_before_its_first_byte_is_given_to_another_worker(harness, said, how):
    """mending row 4: vLLM sends the head of a stream before it has queued the request."""

    def break_off(connection, _message):
        connection.send(said)
        getattr(connection, how)()

    client = harness.client(harness.router(harness.worker(break_off), harness.worker(streams), **ON))
    answer = client.ask("POST", PATH, body=b"{}")
    assert (answer.status, answer.body) == (200, EVENT)


def test_alone_such_a_stream_is_an_error_with_a_true_status(harness):
    def break_off(connection, _message):
        connection.send(HEAD)
        connection.reset()

    answer = harness.client(harness.router(harness.worker(break_off))).ask("POST", PATH, body=b"{}")
    assert (answer.status, error_of(answer)["code"]) == (502, "worker_closed")


def test_the_first_byte_timeout_covers_a_stream(harness):
    def stall(connection, _message):
        connection.send(HEAD)
        connection.ending()

    client = harness.client(
        harness.router(harness.worker(stall), harness.worker(streams), first_byte_timeout_secs=0.1, **ON)
    )
    assert client.ask("POST", PATH, body=b"{}").body == EVENT


def test_head_and_first_event_leave_together(harness):
    def answer(connection, _message):
        connection.send(HEAD)
        gate.wait()
        connection.send(chunk(EVENT))
        more.wait()
        connection.send(b"0\r\n\r\n")

    worker = harness.worker(answer)
    gate, more = worker.gate(), worker.gate()
    client = harness.client(harness.router(worker))
    client.send(request("POST", PATH, body=b"{}"))
    gate.wait_for_someone()
    assert not client.readable(0.05)
    gate.open()
    assert client.read_head().status == 200
    assert client.read_chunk() == EVENT
    more.open()
    assert client.read_to_last_chunk() == b""


def test_a_head_whose_buffer_has_to_grow_is_the_same_head(harness):
    """The bytes of a held head may move when the first event is long."""
    fields = b"".join(b"X-Field-%d: %s\r\n" % (number, b"v" * 60) for number in range(40))
    long_event = b"data: " + b"x" * 20_000 + b"\n\n"

    def answer(connection, _message):
        connection.send(HEAD[:-2] + fields + b"\r\n")
        gate.wait()
        connection.send(chunked(long_event))

    worker = harness.worker(answer)
    gate = worker.gate()
    client = harness.client(harness.router(worker))
    client.send(request("POST", PATH, body=b"{}"))
    gate.wait_for_someone()
    gate.open()
    answer = client.read_response()
    assert answer.body == long_event
    assert answer.get("x-field-39") == "v" * 60


@pytest.mark.parametrize("body", [b"0\r\n\r\n", b"9\r\n" + EVENT])
def test_the_end_of_a_stream_or_its_first_byte_lets_it_go(harness, body):
    def answer(connection, _message):
        connection.send(HEAD)
        connection.send(body)
        connection.ending()

    client = harness.client(harness.router(harness.worker(answer)))
    client.send(request("POST", PATH, body=b"{}"))
    assert client.read_head().status == 200


@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(b"200 OK", b"500 No"),
        b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 0\r\n\r\n",
    ],
    ids=["error", "no stream", "empty"],
)
def test_other_heads_are_not_held(harness, head):
    def answer(connection, _message):
        connection.send(head)
        connection.ending()

    client = harness.client(harness.router(harness.worker(answer)))
    client.send(request("POST", PATH, body=b"{}"))
    client.read_head()


def test_off_sends_a_head_at_once(harness):
    def answer(connection, _message):
        connection.send(HEAD)
        gate.wait()
        connection.send(b"0\r\n\r\n")

    worker = harness.worker(answer)
    gate = worker.gate()
    client = harness.client(harness.router(worker, hold_stream_head="off"))
    client.send(request("POST", PATH, body=b"{}"))
    assert client.read_head().status == 200
    gate.open()
    assert client.read_to_last_chunk() == b""


def test_a_client_that_leaves_while_its_head_is_held_is_noticed(harness):
    def answer(connection, _message):
        connection.send(HEAD)
        connection.ending()

    worker = harness.worker(answer)
    router = harness.router(worker)
    client = harness.client(router)
    client.send(request("POST", PATH, body=b"{}"))
    worker.wait_for_requests(1)
    client.close()
    assert worker.connections[0].wait_ended() in ("eof", "reset")
    router.must_rest()


def test_an_error_status_of_a_retry_is_what_the_client_sees(harness):
    def break_off(connection, _message):
        connection.send(HEAD)
        connection.reset()

    refusing = harness.worker(lambda connection, _: connection.send(response(400, b"no")))
    client = harness.client(harness.router(harness.worker(break_off), refusing, **ON))
    assert client.ask("POST", PATH, body=b"{}").status == 400
