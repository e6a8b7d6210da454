"""cpp/proxy/fetch.h, through the merged model list and the health check of a worker that is added."""

import json
import re

import pytest

from tests.fakes.wire import chunk, response

MODELS = b'{"object": "list", "data": [{"id": "m"}]}'


def listed(harness, script):
    worker = harness.worker(script=script) if callable(script) else script
    answer = harness.client(harness.router(worker)).ask("GET", "/v1/models")
    return [model["id"] for model in json.loads(answer.body)["data"]] if answer.status == 200 else None


def saying(*pieces, close=False):
    def script(connection):
        connection.read_request()
        connection.send(*pieces)
        if close:
            connection.close()
        else:
            connection.ending()

    return script


def test_the_request_is_plain_and_closes(harness):
    worker = harness.worker(lambda connection, _: connection.send(response(200, MODELS)), path="/prefix")
    assert listed(harness, worker) == ["m"]
    message = worker.requests[0]
    assert message.start_line == "GET /prefix/v1/models HTTP/1.1"
    via = message.fields.pop()
    assert via[0] == "Via"
    assert re.fullmatch("1.1 vllm-router-[0-9a-f]{16}", via[1])
    assert message.fields == [
        ("Host", worker.authority),
        ("User-Agent", "vllm-router"),
        ("Accept", "*/*"),
        ("Connection", "close"),
    ]
    worker.connections[0].wait_ended()


@pytest.mark.parametrize("size", [1, 7, 50])
def test_an_answer_in_pieces_is_put_together(harness, size):
    whole = response(200, MODELS)
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    assert listed(harness, saying(*pieces)) == ["m"]


def test_the_end_of_the_body_is_enough(harness):
    assert listed(harness, saying(response(200, MODELS))) == ["m"]  # the connection stays open


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + MODELS,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk(MODELS),
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.1 204 No Content\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    ],
)
def test_an_answer_that_is_cut_or_empty_is_none(harness, said):
    assert listed(harness, saying(said, close=True)) is None


def test_an_answer_that_never_stops_is_given_up(harness):
    def flood(connection):
        connection.read_request()
        connection.send(b"HTTP/1.1 200 OK\r\n\r\n")
        while True:
            connection.send(bytes(1 << 20))

    assert listed(harness, flood) is None


def test_a_head_that_never_stops_is_given_up(harness):
    def flood(connection):
        connection.read_request()
        connection.send(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            connection.send(b"x" * 10_000)

    assert listed(harness, flood) is None


def test_a_worker_that_hangs_is_given_up_after_the_time_for_health_checks(harness):
    hanging = harness.worker(script=lambda connection: connection.ending())
    router = harness.router(health_check_timeout_secs=0.1, worker_startup_timeout_secs=0.1)
    assert harness.client(router).ask("POST", f"/add_worker?url={hanging.url}").status == 400
    for connection in hanging.connections:
        connection.wait_ended()


def test_every_address_of_a_name_is_tried(harness):
    worker = harness.worker(lambda connection, _: connection.send(response(200, MODELS)))
    assert listed(harness, f"http://localhost:{worker.port}") == ["m"]
