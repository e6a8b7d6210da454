"""--sse-keepalive-secs: a client that waits for its stream gets comments, and then what it would have got."""

import contextlib
import json

import anthropic
import openai
import pytest

from tests.fakes.pd import WHOLE, staged
from tests.fakes.prometheus_text import parse
from tests.fakes.wire import chunk, chunked, eventually, request, response
from vllm_router import _core

CHAT, MESSAGES, RESPONSES, GENERATE = "/v1/chat/completions", "/v1/messages", "/v1/responses", "/generate"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
JSON = ("Content-Type", "application/json")
COMMENT = b": keep-alive\n\n"
EVENT = b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"word"}}]}\n\n'
DONE = b"data: [DONE]\n\n"
ON = {"sse_keepalive_secs": 0.1}
STREAM = json.dumps({"model": "m", "stream": True, "messages": [], "prompt": "a"}).encode()
WITNESS = json.dumps({"stream": True, "user": "witness"}).encode()
RETRIES = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 5}


def streams(connection, _message):
    connection.send(HEAD + chunked(EVENT, DONE))


class Slow:
    """A worker that does something once its gate is open."""

    def __init__(self, harness, then=streams):
        self.worker = harness.worker(self.answer)
        self.gate = self.worker.gate()
        self.then = then

    def answer(self, connection, message):
        self.gate.wait()
        self.then(connection, message)


def silent(connection, _message):
    connection.ending()


class Turns:
    """Two workers: the first request that any of them gets is treated in one way, the others in another."""

    def __init__(self, harness, first, then=streams):
        self.turns = iter([first])
        self.then = then
        self.workers = [harness.worker(self.answer), harness.worker(self.answer)]
        self.gate = self.workers[0].gate()

    def answer(self, connection, message):
        next(self.turns, self.then)(connection, message)


def sending(data):
    return lambda connection, _message: connection.send(data)


def begin(client, path=CHAT, *fields, body=STREAM, **more):
    """Has the client wait until it has its first comment; the head."""
    client.send(request("POST", path, JSON, *fields, body=body, **more))
    head = client.read_head()
    assert client.read_chunk() == COMMENT
    return head


def rest(client):
    """What comes behind the comments, to the last chunk."""
    data = client.read_to_last_chunk()
    while data.startswith(COMMENT):
        data = data[len(COMMENT) :]
    assert b"keep-alive" not in data
    return data


def data_of(events):
    """The data of each event: objects, and [DONE]."""
    assert events.endswith(b"\n\n")
    lines = [line[6:] for line in events.split(b"\n") if line.startswith(b"data: ")]
    return [json.loads(line) if line != b"[DONE]" else "[DONE]" for line in lines]


def page_of(router):
    router.must_rest()
    return parse(router.server.metrics_text())


@pytest.fixture
def json_log(written_to):
    """`log = json_log(1)`: as written_to, with an access log in JSON."""
    _core.configure_log(log_format="json")
    yield written_to
    _core.configure_log()


# ---- the comments


def test_a_client_that_waits_gets_comments_and_then_its_stream(harness, json_log):
    stdout = json_log(1)
    slow = Slow(harness)
    router = harness.router(slow.worker, access_log=True, **ON)
    client = harness.client(router)
    client.send(request("POST", CHAT, JSON, ("X-Request-Id", "mine"), body=STREAM))
    head = client.read_until(b"\r\n\r\n")
    assert head == (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nCache-Control: no-cache\r\n"
        b"X-Accel-Buffering: no\r\nx-request-id: mine\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    for _ in range(3):
        assert client.read_until(b"\r\n") == b"e\r\n"
        assert client.read_exactly(16) == b": keep-alive\n\n\r\n"
    slow.gate.open()
    assert rest(client) == EVENT + DONE
    client.must_be_open()
    page = page_of(router)
    assert page["vllm_router_sse_keepalives_total"].value() >= 3
    assert page["vllm_router_exchange_end_total"].value(route=CHAT, end="done") == 1
    assert page["vllm_router_ttft_seconds"].total() == 1
    eventually(lambda: stdout().count("\n") >= 1)
    line = json.loads(stdout().splitlines()[0])
    assert line["keepalives"] >= 3
    assert (line["status"], line["end"], line["bytes_out"]) == (200, "done", len(EVENT + DONE))


def test_a_comment_comes_while_the_head_is_held_and_none_later(harness):
    """Row 35: vLLM sends a head before it has queued the request. Nothing stands between events."""

    def answer(connection, _message):
        connection.send(HEAD)
        first.wait()
        connection.send(chunk(EVENT))
        second.wait()
        connection.send(chunk(DONE) + b"0\r\n\r\n")

    slow = Slow(harness)
    worker = harness.worker(
        lambda connection, message: (slow.answer if message.body == WITNESS else answer)(connection, message)
    )
    first, second = worker.gate(), worker.gate()
    router = harness.router(worker, **ON)
    client, witness = harness.client(router), harness.client(router)
    begin(client)
    first.open()
    data = b""
    while not data.endswith(EVENT):
        data += client.read_chunk()
    begin(witness, body=WITNESS)
    for _ in range(4):
        assert witness.read_chunk() == COMMENT
    assert not client.readable(0)
    second.open()
    assert client.read_to_last_chunk() == DONE
    slow.gate.open()
    assert rest(witness) == EVENT + DONE


@pytest.mark.parametrize(
    ("method", "path", "body", "more"),
    [
        ("POST", CHAT, b'{"messages": []}', {}),
        ("POST", CHAT, b'{"stream": false}', {}),
        ("POST", CHAT, b'{"stream": "true"}', {}),
        ("POST", CHAT, b'{"x": {"stream": true}}', {}),
        ("POST", CHAT, b'[{"stream": true}]', {}),
        ("POST", CHAT, STREAM, {"version": "1.0"}),
        ("POST", "/v1/embeddings", STREAM, {}),
        ("POST", "/v1/unknown", STREAM, {}),
        ("GET", RESPONSES + "/resp_1", None, {}),
        ("HEAD", CHAT, None, {}),
        ("PUT", CHAT, STREAM, {}),
    ],
)
def test_others_get_none(harness, method, path, body, more):
    """Row 35: who wants no stream, or could not tell its end, as with HTTP/1.0."""
    plain = response(200, b"" if method == "HEAD" else b"{}", JSON)

    def answer(connection, message):
        (streams if message.body == WITNESS else sending(plain))(connection, message)

    slow = Slow(harness, answer)
    router = harness.router(slow.worker, **ON)
    client, witness = harness.client(router), harness.client(router)
    client.send(request(method, path, JSON, body=body, **more))
    slow.gate.wait_for_someone()
    begin(witness, body=WITNESS)
    for _ in range(3):
        assert witness.read_chunk() == COMMENT
    assert not client.readable(0)
    slow.gate.open()
    assert client.read_response(to=method).get("content-type") == "application/json"
    assert rest(witness) == EVENT + DONE


def test_off_there_are_none(harness):
    off, on = Slow(harness), Slow(harness)
    client, witness = (
        harness.client(harness.router(off.worker)),
        harness.client(harness.router(on.worker, **ON)),
    )
    client.send(request("POST", CHAT, JSON, body=STREAM))
    off.worker.wait_for_requests(1)
    begin(witness)
    for _ in range(3):
        assert witness.read_chunk() == COMMENT
    assert not client.readable(0)
    for slow in (off, on):
        slow.gate.open()
    answer = client.read_response()
    assert (answer.body, answer.get("x-accel-buffering")) == (EVENT + DONE, None)


def test_a_response_in_time_is_the_worker_s_own(harness):
    """Row 35: with its status and its fields."""
    head = HEAD.replace(b"\r\n\r\n", b"\r\nX-Engine: 7\r\n\r\n")
    worker = harness.worker(sending(head + chunked(EVENT, DONE)))
    answer = harness.client(harness.router(worker, sse_keepalive_secs=60)).ask(
        "POST", CHAT, JSON, body=STREAM
    )
    assert (answer.get("x-engine"), answer.body) == ("7", EVENT + DONE)
    assert worker.requests[0].get("accept-encoding") == "identity"
    refusing = harness.worker(sending(response(400, b'{"error": {}}', JSON, reason="No")))
    client = harness.client(harness.router(refusing, sse_keepalive_secs=60))
    assert client.ask("POST", CHAT, JSON, body=STREAM).status == 400


def test_a_long_body_is_read_for_it(harness):
    """Row 35: a policy that reads heads only would stream it."""
    body = json.dumps({"prompt": "x" * 1_000_000, "stream": True}).encode()
    slow = Slow(harness)
    client = harness.client(harness.router(slow.worker, policy="round_robin", **ON))
    begin(client, body=body)
    slow.gate.open()
    assert rest(client) == EVENT + DONE
    assert slow.worker.requests[0].body == body


def test_a_client_that_queues_gets_comments(harness):
    slow = Slow(harness)
    router = harness.router(slow.worker, max_concurrent_requests=1, queue_timeout_secs=60, **ON)
    first, second = harness.client(router), harness.client(router)
    begin(first)
    begin(second)
    assert len(slow.worker.requests) == 1
    slow.gate.open()
    assert rest(first) == rest(second) == EVENT + DONE


def test_a_client_that_expects_continue_gets_both(harness):
    slow = Slow(harness)
    client = harness.client(harness.router(slow.worker, **ON))
    client.send(request("POST", CHAT, JSON, ("Expect", "100-continue"), body=STREAM)[: -len(STREAM)])
    assert client.read_head().status == 100
    client.send(STREAM)
    assert client.read_head().status == 200
    assert client.read_chunk() == COMMENT
    slow.gate.open()
    assert rest(client) == EVENT + DONE


def test_pipelined_requests_stay_in_order(harness):
    """Row 35: a comment is part of the response to the first."""
    slow = Slow(harness)
    client = harness.client(harness.router(slow.worker, **ON))
    client.send(request("POST", CHAT, JSON, body=STREAM) * 2)
    for _ in range(2):
        slow.gate.wait_for_someone()
        assert client.read_head().status == 200
        slow.gate.open()
        assert rest(client).endswith(EVENT + DONE)


def test_the_head_has_what_is_known(harness):
    """Row 35: CORS, the request's id, the decision, Connection."""
    slow = Slow(harness)
    router = harness.router(slow.worker, cors_allowed_origins=["http://page"], decision_headers=True, **ON)
    client = harness.client(router)
    head = begin(client, CHAT, ("Origin", "http://page"), ("Connection", "close"))
    assert head.get("access-control-allow-origin") == "http://page"
    assert head.get("x-vllm-router-worker") == slow.worker.url
    assert head.get("connection") == "close"
    assert head.get("x-request-id").startswith("chatcmpl-")
    slow.gate.open()
    assert rest(client) == EVENT + DONE
    client.must_be_closed()


def test_a_stream_with_a_length_goes_on_in_chunks(harness):
    slow = Slow(harness, sending(response(200, EVENT + DONE, ("Content-Type", "text/event-stream"))))
    client = harness.client(harness.router(slow.worker, **ON))
    begin(client)
    slow.gate.open()
    assert rest(client) == EVENT + DONE
    client.must_be_open()


def test_the_response_cache_keeps_no_comment(harness):
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    slow = Slow(harness, sending(HEAD + chunked(EVENT, end, DONE)))
    client = harness.client(harness.router(slow.worker, response_cache=True, **ON))
    body = b'{"model": "m", "temperature": 0, "stream": true, "messages": []}'
    begin(client, body=body)
    slow.gate.open()
    assert rest(client) == EVENT + end + DONE
    hit = client.ask("POST", CHAT, JSON, body=body)
    assert (hit.get("x-cache"), hit.body) == ("HIT", EVENT + end + DONE)


def test_over_tls(harness, authority):
    slow = Slow(harness)
    files = authority.certify("localhost", "127.0.0.1")
    router = harness.router(slow.worker, tls_cert_path=files.cert, tls_key_path=files.key, **ON)
    client = harness.client(router, tls=authority.client())
    begin(client)
    slow.gate.open()
    assert rest(client) == EVENT + DONE


def test_prefill_is_the_silence_that_it_is_for(harness):
    prefill = Slow(harness, sending(response(200, WHOLE)))
    decode = harness.worker(streams)
    client = harness.client(staged(harness, [prefill.worker], [decode], **ON))
    begin(client, body=b'{"stream": true, "messages": [{"role": "user", "content": "word"}]}')
    prefill.gate.open()
    assert rest(client) == EVENT + DONE


# ---- clients that leave


@pytest.mark.parametrize("how", ["close", "reset"])
def test_a_client_that_leaves_between_comments_is_noticed(harness, how):
    worker = harness.worker(silent)
    router = harness.router(worker, **ON)
    client = harness.client(router)
    begin(client)
    getattr(client, how)()
    assert worker.connections[0].wait_ended() in ("eof", "reset")
    assert page_of(router)["vllm_router_exchange_end_total"].values_of("end") == {"client_gone"}


# ---- what comes after a comment


def test_another_worker_may_still_be_attempted(harness, json_log):
    """Row 35: nothing of a response has been sent."""
    stdout = json_log(1)

    def die(connection, _message):
        turns.gate.wait()
        connection.reset()

    turns = Turns(harness, die)
    options = {"access_log": True, **RETRIES, **ON}
    client = harness.client(harness.router(*turns.workers, **options))
    begin(client)
    turns.gate.open()
    assert rest(client) == EVENT + DONE
    eventually(lambda: stdout().count("\n") == 1)
    line = json.loads(stdout())
    assert (line["status"], line["end"], line["retries"]) == (200, "done", 1)


def test_a_first_byte_timeout_is_retried_and_then_told(harness):
    options = {"first_byte_timeout_secs": 0.3, **ON}
    client = harness.client(harness.router(*Turns(harness, silent).workers, **RETRIES, **options))
    begin(client)
    assert rest(client) == EVENT + DONE
    alone = harness.router(harness.worker(silent), **options)
    client = harness.client(alone)
    begin(client)
    error, done = data_of(rest(client))
    assert (error["error"]["code"], done) == ("first_byte_timeout", "[DONE]")
    client.must_be_open()
    assert page_of(alone)["vllm_router_http_responses_total"].value(route=CHAT, code="504") == 1


@pytest.mark.parametrize("path", [CHAT, GENERATE, MESSAGES, RESPONSES])
def test_an_error_of_the_router_is_an_event_of_the_api(harness, path, json_log):
    """Row 35: the log and the metrics have the status that it would have been."""
    stdout = json_log(1)
    options = {"first_byte_timeout_secs": 0.3, "access_log": True, **ON}
    router = harness.router(harness.worker(silent), **options)
    client = harness.client(router)
    begin(client, path)
    events = rest(client)
    data = data_of(events)
    message = "The worker did not start its response in time."
    if path == MESSAGES:
        assert events.startswith(b"event: error\ndata: ")
        assert data[0].pop("request_id")
        error = {"type": "timeout_error", "message": message, "code": "first_byte_timeout"}
        assert data == [{"type": "error", "error": error}]
    elif path == RESPONSES:
        assert events.startswith(b"event: error\ndata: ")
        assert data[0].pop("error")["code"] == "first_byte_timeout"
        expected = {"type": "error", "code": "first_byte_timeout", "message": message}
        assert data == [{**expected, "param": None, "sequence_number": 0}]
    else:
        error = {"message": message, "type": "server_error", "param": None, "code": "first_byte_timeout"}
        assert data == [{"error": error}, "[DONE]"]
    client.must_be_open()
    page = page_of(router)
    assert page["vllm_router_request_errors_total"].value(route=path, error_type="first_byte_timeout") == 1
    assert page["vllm_router_requests_total"].total() == 0
    eventually(lambda: stdout().count("\n") >= 1)
    line = json.loads(stdout().splitlines()[0])
    assert (line["status"], line["error"]) == (504, "first_byte_timeout")
    assert line["keepalives"] >= 1


VLLM = {
    "error": {"message": "The prompt is too long.", "type": "BadRequestError", "param": None, "code": 400}
}
OLD = {"object": "error", "message": "The prompt is too long.", "type": "BadRequestError", "code": 400}
ANTHROPIC = {
    "type": "error",
    "error": {"type": "invalid_request_error", "message": "The prompt is too long."},
}


@pytest.mark.parametrize(
    ("path", "status", "body", "expected"),
    [
        (CHAT, 400, json.dumps(VLLM, indent=2), [VLLM, "[DONE]"]),
        (CHAT, 400, json.dumps(OLD), [{"error": OLD}, "[DONE]"]),
        (CHAT, 500, "Internal Server Error", [500, "[DONE]"]),
        (CHAT, 404, '{"detail":"Not Found"}', ["Not Found", "[DONE]"]),
        (CHAT, 503, "", [503, "[DONE]"]),
        (CHAT, 422, '{"error": ' + "x" * 100_000 + "}", [422, "[DONE]"]),
        (MESSAGES, 400, json.dumps(ANTHROPIC), [ANTHROPIC]),
        (MESSAGES, 400, json.dumps(VLLM), [ANTHROPIC]),
        (MESSAGES, 503, "", [503]),
        (CHAT, 200, '{"id": "c",\r\n "choices": []}', [{"id": "c", "choices": []}, "[DONE]"]),
    ],
)
def test_an_error_of_a_worker_is_an_event_of_the_api(harness, path, status, body, expected):
    """Row 35: it comes as the worker has it, where the API has such a form."""
    slow = Slow(harness, sending(response(status, body.encode(), JSON, reason="No")))
    router = harness.router(slow.worker, **ON)
    client = harness.client(router)
    begin(client, path)
    slow.gate.open()
    told = data_of(rest(client))
    for one, wanted in zip(told, expected, strict=True):
        if isinstance(wanted, int):
            assert f"status {wanted}" in one["error"]["message"]
        elif isinstance(wanted, str) and wanted != "[DONE]":
            assert one["error"]["message"] == wanted
        else:
            assert one == wanted
    client.must_be_open()
    assert page_of(router)["vllm_router_http_responses_total"].value(route=path, code=str(status)) == 1


@pytest.mark.parametrize(
    "answer",
    [
        response(200, b"\x1f\x8b", ("Content-Type", "text/event-stream"), ("Content-Encoding", "gzip")),
        response(200, b"<html>", ("Content-Type", "text/html")),
        response(204, b"", length=False),
        response(302, b"", ("Location", "/x"), reason="Found"),
        response(200, b"[]", JSON),
    ],
    ids=["gzip", "html", "nothing", "elsewhere", "list"],
)
def test_what_is_no_event_stream_is_an_error(harness, answer):
    slow = Slow(harness, sending(answer))
    router = harness.router(slow.worker, **ON)
    client = harness.client(router)
    begin(client)
    slow.gate.open()
    error, done = data_of(rest(client))
    assert (error["error"]["code"], done) == ("worker_bad_answer", "[DONE]")
    assert page_of(router)["vllm_router_http_responses_total"].value(route=CHAT, code="502") == 1


def test_an_error_that_breaks_off_is_an_error(harness):
    def answer(connection, _message):
        connection.send(b"HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\nhalf")
        connection.close()

    slow = Slow(harness, answer)
    client = harness.client(harness.router(slow.worker, **ON))
    begin(client)
    slow.gate.open()
    assert data_of(rest(client))[0]["error"]["code"] == "worker_closed"


def test_a_stream_that_is_cut_has_no_end(harness):
    def answer(connection, _message):
        connection.send(HEAD + chunk(EVENT))
        connection.close()

    slow = Slow(harness, answer)
    client = harness.client(harness.router(slow.worker, **ON))
    begin(client)
    slow.gate.open()
    assert client.read_to_end().endswith(chunk(EVENT))


def test_a_request_that_queues_too_long_is_told_so(harness):
    slow = Slow(harness)
    router = harness.router(slow.worker, max_concurrent_requests=1, queue_timeout_secs=0.3, **ON)
    first, second = harness.client(router), harness.client(router)
    begin(first)
    begin(second)
    assert data_of(rest(second))[0]["error"]["code"] == "queue_timeout"
    slow.gate.open()
    assert rest(first) == EVENT + DONE


def test_a_shutdown_is_told(harness):
    router = harness.router(harness.worker(silent), shutdown_grace_period_secs=0.1, **ON)
    client = harness.client(router)
    begin(client)
    router.may_cut = True
    router.shutdown()
    error, done = data_of(rest(client))
    assert (error["error"]["code"], done) == ("shutting_down", "[DONE]")
    client.must_be_closed()


# ---- the official SDKs


@contextlib.contextmanager
def sdk(harness, path, then):
    """A client of the SDK for this path, before a worker that does this after some comments."""
    slow = Slow(harness, then)
    router = harness.router(slow.worker, **ON)
    kinds = {MESSAGES: anthropic.Anthropic}
    base = f"http://127.0.0.1:{router.port}" + ("" if path == MESSAGES else "/v1")
    client = kinds.get(path, openai.OpenAI)(base_url=base, api_key="k", max_retries=0, timeout=20)
    with client:
        yield client, slow, router
    router.must_rest()


def test_the_openai_sdk_ignores_comments(harness):
    with sdk(harness, CHAT, streams) as (client, slow, _router):
        stream = client.chat.completions.create(model="m", messages=[], stream=True)
        slow.gate.open()
        assert [event.choices[0].delta.content for event in stream] == ["word"]


def test_the_openai_sdk_raises_the_error(harness):
    with sdk(harness, CHAT, sending(response(400, json.dumps(VLLM).encode(), JSON))) as (
        client,
        slow,
        _router,
    ):
        stream = client.chat.completions.create(model="m", messages=[], stream=True)
        slow.gate.open()
        with pytest.raises(openai.APIError, match="too long"):
            list(stream)
    with sdk(harness, RESPONSES, sending(response(503, b""))) as (client, slow, _router):
        stream = client.responses.create(model="m", input="a", stream=True)
        slow.gate.open()
        with pytest.raises(openai.APIError, match="status 503"):
            list(stream)


def test_the_anthropic_sdk_ignores_comments_and_raises_the_error(harness):
    said = [
        {
            "type": "message_start",
            "message": {
                "id": "m",
                "type": "message",
                "role": "assistant",
                "model": "m",
                "content": [],
                "stop_reason": None,
                "usage": {"input_tokens": 1, "output_tokens": 1},
            },
        },
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "word"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
        {"type": "message_stop"},
    ]
    events = [b"event: %s\ndata: %s\n\n" % (one["type"].encode(), json.dumps(one).encode()) for one in said]
    wanted = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    with sdk(harness, MESSAGES, sending(HEAD + chunked(*events))) as (client, slow, _router):
        stream = client.messages.create(**wanted, stream=True)
        slow.gate.open()
        assert "".join(e.delta.text for e in stream if e.type == "content_block_delta") == "word"
    with sdk(harness, MESSAGES, sending(response(400, json.dumps(VLLM).encode(), JSON))) as (
        client,
        slow,
        _router,
    ):
        stream = client.messages.create(**wanted, stream=True)
        slow.gate.open()
        with pytest.raises(anthropic.APIStatusError, match="too long"):
            list(stream)
