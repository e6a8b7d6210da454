"""cpp/proxy/exchange/upstream_response.h: the head that an attempt waits for."""

from tests.fakes.harness import error_of
from tests.fakes.wire import chunk, request, response

HINTS = b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_the_head_is_the_first_that_is_not_informational(harness):
    worker = harness.worker(lambda connection, _: connection.send(HINTS, HINTS + response(201, b"made")))
    got = harness.client(harness.router(worker)).ask("POST", "/x")
    assert (got.status, got.body, got.informational) == (201, b"made", [])


def test_the_head_of_a_stream_is_held_until_a_byte_of_its_body_came(harness):
    def two_steps(connection, _message):
        connection.send(STREAM + b"9")  # the size of a chunk is no byte of the body
        gate.wait()
        connection.send(chunk(b"data: 1\n\n")[1:] + chunk(b""))

    worker = harness.worker(two_steps)
    gate = worker.gate()
    client = harness.client(harness.router(worker))
    client.send(request("POST", "/v1/completions", body=b"{}"))
    worker.wait_for_requests(1)
    assert not client.readable(0.1)
    gate.open()
    assert client.read_response().body == b"data: 1\n\n"


def test_a_worker_that_sends_no_head_in_time_is_given_up(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    got = harness.client(harness.router(worker, first_byte_timeout_secs=0.1)).ask("POST", "/x")
    assert (got.status, error_of(got)["code"]) == (504, "first_byte_timeout")
