"""--sse-error-event: a stream that has to be cut says why, between two events, and still has no end."""

import json

import pytest

from tests.fakes.wire import chunk, chunked, request

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = b'data: {"choices": []}\n\n'
ON = {"sse_error_event": True, "hold_stream_head": "off"}


def streams(harness, *pieces, then="wait"):
    """A worker that sends a head and these pieces, and then waits for us to leave, closes or resets."""

    def script(connection):
        connection.read_request()
        connection.send(HEAD + b"".join(pieces))
        connection.ending() if then == "wait" else getattr(connection, then)()

    return harness.worker(script=script)


def begin(harness, router, **kwargs):
    client = harness.client(router)
    client.send(request("POST", "/v1/chat/completions", body=b"{}", **kwargs))
    assert client.read_head().status == 200
    return client


def events(client):
    """All that comes until the connection ends, which is before the last chunk."""
    rest = client.read_to_end()
    assert not rest.endswith(b"0\r\n\r\n")
    data = b""
    while rest:
        size, rest = rest.split(b"\r\n", 1)
        data += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return data


def error(event):
    assert event.startswith(b"data: ")
    assert event.endswith(b"\n\n")
    told = json.loads(event[6:])["error"]
    assert (told["message"], told["type"], told["param"]) == (
        "The stream was aborted before its end.",
        "server_error",
        None,
    )
    return told["code"]


@pytest.mark.parametrize(
    ("then", "behind", "code"),
    [
        ("close", b"", "worker_closed"),
        ("reset", b"", "worker_closed"),
        ("wait", b"xyz\r\n", "worker_bad_framing"),
        ("wait", b"", "stream_idle_timeout"),
    ],
)
@pytest.mark.parametrize(
    "sent", [b"", EVENT, EVENT * 200, b"data: 1\r\n\r\n"], ids=["none", "one", "many", "crlf"]
)
def test_the_last_event_says_why(harness, then, behind, code, sent):
    worker = streams(harness, chunk(sent) if sent else b"", behind, then=then)
    client = begin(harness, harness.router(worker, stream_idle_timeout_secs=0.3, **ON))
    told = events(client)
    assert told.startswith(sent)
    assert error(told[len(sent) :]) == code


def test_a_stream_that_takes_too_long_says_so(harness):
    router = harness.router(streams(harness, chunk(EVENT)), stream_total_timeout_secs=0.3, **ON)
    assert error(events(begin(harness, router))[len(EVENT) :]) == "total_timeout"


def test_a_shutdown_that_cuts_says_so(harness):
    router = harness.router(streams(harness, chunk(EVENT)), shutdown_grace_period_secs=0.1, **ON)
    router.may_cut = True
    client = begin(harness, router)
    client.read_chunk()
    router.shutdown()
    assert error(events(client)) == "shutting_down"
    router.must_end()


def test_a_worker_that_has_to_go_says_so(harness):
    router = harness.router(worker := streams(harness, chunk(EVENT)), **ON)
    client = begin(harness, router)
    client.read_chunk()
    drain = json.dumps({"url": worker.url, "timeout_secs": 0.1}).encode()
    assert harness.client(router).ask("POST", "/admin/drain", body=drain).status == 202
    assert error(events(client)) == "worker_drained"


@pytest.mark.parametrize("unfinished", [b"data: {", b"data: 1\n", b"data: 1\r\n", b"\r\n\n:"])
def test_nothing_is_put_into_an_event_that_is_not_finished(harness, unfinished):
    worker = streams(harness, chunk(EVENT), chunk(unfinished), then="close")
    assert events(begin(harness, harness.router(worker, **ON))) == EVENT + unfinished


def test_it_is_off_unless_asked_for(harness):
    assert events(begin(harness, harness.router(streams(harness, chunk(EVENT), then="close")))) == EVENT


def test_other_answers_are_cut_without_a_word(harness):
    def script(connection):
        connection.read_request()
        connection.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(EVENT))
        connection.close()

    assert events(begin(harness, harness.router(harness.worker(script=script), **ON))) == EVENT


def test_where_the_end_of_the_connection_is_the_end_of_the_answer_it_is_reset(harness):
    client = begin(harness, harness.router(streams(harness, chunk(EVENT), then="close"), **ON), version="1.0")
    with pytest.raises(ConnectionResetError):
        client.read_to_end()
    assert b"error" not in client.received


def test_a_whole_stream_has_its_own_end(harness):
    worker = harness.worker(lambda connection, _: connection.send(HEAD + chunked(EVENT, b"data: [DONE]\n\n")))
    client = harness.client(harness.router(worker, **ON))
    answer = client.ask("POST", "/v1/chat/completions", body=b"{}")
    assert answer.body == EVENT + b"data: [DONE]\n\n"
    client.must_be_open()


def test_a_client_that_does_not_read_is_told_nothing(harness):
    """Half of a chunk is on its way, and nothing may stand in the middle of it."""

    def pour(connection, _message):
        connection.send(HEAD)
        while True:
            connection.send(chunk(b"data: " + bytes([120]) * 60_000 + b"\n\n"))

    worker = harness.worker(pour)
    router = harness.router(worker, shutdown_grace_period_secs=0.1, **ON)
    router.may_cut = True
    client = harness.client(router, receive_buffer=8192)
    client.send(request("POST", "/v1/chat/completions", body=b"{}"))
    client.read_head()
    worker.wait_until_stuck()
    router.shutdown()
    router.must_end()
    client.ending()
    assert b"error" not in client.received
