"""cpp/proxy/disaggregation/stage_leg.h: one of the two requests, and what it reads of its response."""

import json

import pytest

from tests.fakes.pd import PARAMETERS, WHOLE
from tests.fakes.wire import chunk, chunked, request, response

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
BODY = b'{"prompt":"hi"}'


def ask(harness, prefill, decode):
    routing = {"prefill_urls": [prefill.url], "decode_urls": [decode.url]}
    options = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 5}
    router = harness.router(routing=routing, **options)
    return harness.client(router).ask("POST", "/v1/completions", body=BODY)


@pytest.mark.parametrize("how", ["length", "chunks", "bytes", "until_close"])
def test_prefills_response_is_read_whole(harness, how):
    def answer(connection, _message):
        if how == "length":
            connection.send(response(200, WHOLE))
        elif how == "until_close":
            connection.send(b"HTTP/1.1 200 OK\r\n\r\n" + WHOLE)
            connection.close()
        else:
            size = 7 if how == "chunks" else 1
            connection.send(CHUNKED)
            for at in range(0, len(WHOLE), size):
                connection.send(chunk(WHOLE[at : at + size]))
            connection.send(chunked(b""))

    decode = harness.worker()
    assert ask(harness, harness.worker(answer), decode).body == b"hello"
    assert json.loads(decode.requests[0].body)["kv_transfer_params"] == PARAMETERS


@pytest.mark.parametrize("size", [1, 3, 1000])
@pytest.mark.parametrize(
    "event", [b'data: {"error": {"code": 500}}\n\n', b'data:{ "error":{"code":503}}\n\n']
)
def test_an_error_event_that_begins_a_stream_is_no_first_byte(harness, event, size):
    served = []

    def answer(connection, message):
        served.append(message)
        if b"kv_transfer_params" not in message.body:
            connection.send(response(200, b"hello"))
            return
        connection.send(STREAM)
        for at in range(0, len(event), size):
            connection.send(chunk(event[at : at + size]))
        connection.send(chunked(b"data: [DONE]\n\n"))

    prefill = harness.worker(lambda connection, _: connection.send(response(200, WHOLE)))
    assert ask(harness, prefill, harness.worker(answer)).body == b"hello"
    assert len(served) == 2


@pytest.mark.parametrize(
    "first",
    [
        b'data: {"error": {"code": 400}}\n\n',
        b'data: {"errors": 1}\n\n',
        b'event: error\ndata: {"type":"error","error":{"type":"invalid_request_error"}}\n\n',
        b'event: message_start\ndata: {"error": {"code": 500}}\n\n',
        b"data: \n\n",
        b": hi\n\n",
        b"event: x\n\n",
    ],
)
def test_any_other_event_is_the_response(harness, first):
    def answer(connection, _message):
        connection.send(STREAM + chunk(first) + chunked(b"data: [DONE]\n\n"))

    prefill = harness.worker(lambda connection, _: connection.send(response(200, WHOLE)))
    decode = harness.worker(answer)
    assert ask(harness, prefill, decode).body == first + b"data: [DONE]\n\n"
    assert len(decode.requests) == 1


def test_a_first_event_that_is_late_is_relayed_as_it_comes(harness):
    def answer(connection, _message):
        connection.send(STREAM + chunk(b"data: "))
        gate.wait()
        connection.send(chunked(b"1\n\n", b"data: [DONE]\n\n"))

    prefill = harness.worker(lambda connection, _: connection.send(response(200, WHOLE)))
    decode = harness.worker(answer)
    gate = decode.gate()
    routing = {"prefill_urls": [prefill.url], "decode_urls": [decode.url]}
    client = harness.client(harness.router(routing=routing))
    client.send(request("POST", "/v1/completions", body=b'{"prompt":"hi","stream":true}'))
    assert client.read_head().status == 200  # after the limit for the rest of the event
    gate.open()
    assert client.read_until(b"[DONE]")


@pytest.mark.parametrize("size", [100, 100_000])
def test_a_rejection_arrives_as_it_came_though_it_is_long(harness, size):
    text = b'{"error": "%s"}' % (b"x" * size)
    prefill = harness.worker(lambda connection, _: connection.send(response(400, text)))
    message = ask(harness, prefill, harness.worker())
    assert (message.status, message.body) == (400, text)
