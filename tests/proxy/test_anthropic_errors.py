"""Errors on /v1/messages have Anthropic's form, plain and in streams, so that its SDKs name the exception."""

import json

import anthropic
import pytest

from tests.fakes.wire import chunk, eventually, request, response

MESSAGES, COUNT = "/v1/messages", "/v1/messages/count_tokens"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
PING = b'event: ping\ndata: {"type": "ping"}\n\n'
ASKED = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}


def sdk(router, key="k"):
    return anthropic.Anthropic(base_url=f"http://127.0.0.1:{router.port}", api_key=key, max_retries=0)


def raised(router, kind, key="k"):
    with sdk(router, key) as client, pytest.raises(kind) as caught:
        client.messages.create(**ASKED)
    return caught.value


@pytest.mark.parametrize("path", [MESSAGES, COUNT])
def test_an_error_of_the_router_has_their_form(harness, path):
    router = harness.router(harness.refusing_port().url)
    answer = harness.client(router).ask("POST", path, ("X-Request-Id", "r-1"), body=b"{}")
    assert answer.status == 502
    error = json.loads(answer.body)
    assert error["error"].pop("message")
    code = "worker_unreachable"
    assert error == {
        "type": "error",
        "error": {"type": "api_error", "code": code},
        "request_id": "r-1",
    }


def test_the_sdk_names_what_went_wrong(harness, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-one\n")
    router = harness.router(harness.worker(), client_api_key_file=str(keys))
    error = raised(router, anthropic.AuthenticationError)
    assert error.body["error"]["type"] == "authentication_error"
    router = harness.router(harness.worker(), max_payload_size=10)
    assert raised(router, anthropic.RequestTooLargeError).body["error"]["code"] == "body_too_large"
    router = harness.router()
    assert raised(router, anthropic.InternalServerError).body["error"]["type"] == "overloaded_error"


def cut(harness, sent, path=MESSAGES, **options):
    """What a client has of a stream whose worker leaves behind these bytes."""

    def script(connection):
        connection.read_request()
        connection.send(HEAD + chunk(sent))
        connection.close()

    router = harness.router(harness.worker(script=script), sse_error_event=True, **options)
    client = harness.client(router)
    client.send(request("POST", path, ("X-Request-Id", "r-1"), body=b"{}"))
    assert client.read_head().status == 200
    rest, data = client.read_to_end(), b""
    assert not rest.endswith(b"0\r\n\r\n")
    while rest:
        size, rest = rest.split(b"\r\n", 1)
        data += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    assert data.startswith(sent)
    return data[len(sent) :]


@pytest.mark.parametrize(
    "sent",
    [
        PING,
        PING + b": keep-alive\n",
        PING + b": keep-alive\n\n",
        PING.replace(b"\n", b"\r\n") + b": keep-alive\r\n",
        PING.replace(b"\n", b"\r"),
        PING.replace(b"\n", b"\r") + b":\r: more\r",
    ],
)
def test_a_stream_that_breaks_off_ends_with_their_event(harness, sent):
    """Row 27: the event had no name and OpenAI's form, and behind a comment there was none."""
    event = cut(harness, sent)
    assert event.startswith(b"event: error\ndata: ")
    assert event.endswith(b"}\n\n")
    assert json.loads(event.split(b"data: ")[1]) == {
        "type": "error",
        "error": {
            "type": "api_error",
            "message": "The stream was aborted before its end.",
            "code": "worker_closed",
        },
        "request_id": "r-1",
    }


def test_the_sdk_raises_the_error_that_a_stream_breaks_off_with(harness):
    """Row 27: it skips events without a name that it knows, so the stream seemed to end by itself."""
    start = {"type": "message_start", "message": {"id": "m", "type": "message", "role": "assistant"}}
    start["message"] |= {"content": [], "model": "m", "stop_reason": None, "stop_sequence": None}
    start["message"]["usage"] = {"input_tokens": 1, "output_tokens": 1}
    event = b"event: message_start\ndata: " + json.dumps(start).encode() + b"\n\n"

    def script(connection):
        connection.read_request()
        connection.send(HEAD + chunk(event))
        connection.ending()

    worker = harness.worker(script=script)
    router = harness.router(worker, sse_error_event=True)
    with sdk(router) as client, client.messages.create(**ASKED, stream=True) as stream:
        assert next(stream).type == "message_start"
        drain = json.dumps({"url": worker.url, "timeout_secs": 0.1}).encode()
        assert harness.client(router).ask("POST", "/admin/drain", body=drain).status == 202
        with pytest.raises(anthropic.APIStatusError) as caught:
            next(stream)
    assert caught.value.body["error"]["type"] == "overloaded_error"


def test_a_worker_s_own_error_stays_as_it_is(harness):
    theirs = b'{"type":"error","error":{"type":"invalid_request_error","message":"m"}}'
    worker = harness.worker(lambda connection, _: connection.send(response(400, theirs)))
    answer = harness.client(harness.router(worker)).ask("POST", MESSAGES, body=b"{}")
    assert (answer.status, answer.body) == (400, theirs)
    eventually(lambda: len(worker.requests) == 1)
