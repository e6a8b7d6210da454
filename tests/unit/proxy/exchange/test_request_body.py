"""cpp/proxy/exchange/request_body.h: which body is read first and which is streamed;
the bytes are in tests/proxy/.
"""

import pytest

from tests.fakes.wire import chunk, chunked, request, response

SMALL = 64 * 1024


def contacted_early(harness, policy, head, body, rest, *fields):
    """Whether a worker is asked while `rest` of the body is still missing."""

    def answer(connection):
        message = connection.read_request_head()
        while message.get("transfer-encoding") is not None and connection.read_chunk():
            pass
        if message.get("content-length") is not None:
            connection.read_exactly(int(message.get("content-length")))
        connection.send(response(200, b""))

    worker = harness.worker(script=answer)
    client = harness.client(harness.router(worker, policy=policy))
    client.send(request("POST", "/v1/completions", head, *fields) + body)
    client.wait_until_read()
    # Whether it was asked shows when it was not: a request of another client, sent later, comes first.
    asked = bool(worker.connections) or _comes_soon(worker)
    client.send(rest)
    assert client.read_response().status == 200
    return asked


def _comes_soon(worker):
    with worker._changed:
        return worker._changed.wait_for(lambda: bool(worker.connections), 0.2)


SESSION = ("X-Session-ID", "s")
LENGTHS = [(10, False), (SMALL, False), (SMALL + 1, True), (1_000_000, True), (3_000_000, True)]


@pytest.mark.parametrize(("size", "early"), LENGTHS)
def test_a_long_body_with_a_length_is_streamed_if_the_head_is_enough(harness, size, early):
    head = ("Content-Length", str(size))
    assert contacted_early(harness, "round_robin", head, bytes(size - 1), b"x") is early


@pytest.mark.parametrize("size", [10, SMALL + 1, 1_000_000, 3_000_000])
def test_every_body_is_read_first_if_the_policy_needs_it(harness, size):
    head = ("Content-Length", str(size))
    assert contacted_early(harness, "consistent_hash", head, bytes(size - 1), b"x") is False


def test_a_session_header_is_enough_for_a_hashing_policy(harness):
    head = ("Content-Length", "100000")
    assert contacted_early(harness, "consistent_hash", head, bytes(99_999), b"x", SESSION) is True


@pytest.mark.parametrize(
    ("size", "early"), [(10, False), (SMALL, False), (SMALL + 8192, True), (1_000_000, True)]
)
def test_a_chunked_body_is_streamed_when_it_has_grown_long(harness, size, early):
    head = ("Transfer-Encoding", "chunked")
    assert contacted_early(harness, "round_robin", head, chunk(bytes(size)), chunked(b"x")) is early


def test_bytes_behind_a_body_are_the_next_request_in_every_plan(harness):
    worker = harness.worker(
        lambda connection, message: connection.send(response(200, b"%d" % len(message.body)))
    )
    for policy in ("round_robin", "consistent_hash"):
        client = harness.client(harness.router(worker, policy=policy))
        for size in (0, 5, 5000, SMALL, SMALL + 5, 1_000_000, 2_000_000):
            body = bytes(size)
            client.send(request("POST", "/1", body=body) + request("POST", "/2", body=b"ab"))
            assert client.read_response().body == b"%d" % size
            assert client.read_response().body == b"2"
            pieces = [body] if body else []
            whole = request("POST", "/1", ("Transfer-Encoding", "chunked")) + chunked(*pieces)
            client.send(whole + request("POST", "/2", body=b"ab"))
            assert client.read_response().body == b"%d" % size
            assert client.read_response().body == b"2"
