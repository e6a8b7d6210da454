"""An engine that fails while it streams, and says so in the stream before it ends it properly."""

import json

import pytest

from tests.fakes.prometheus_text import parse
from tests.fakes.wire import chunk, eventually, request, response

CHAT = "/v1/chat/completions"
SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
WORD = b'data: {"choices":[{"delta":{"content":"word"}}]}\n\n'
# What vLLM says at a SIGTERM, SGLang when it aborts, and vLLM on /v1/messages.
SERVER_ERRORS = [
    b'data: {"error": {"message": "EngineCore encountered an issue.", "type": "InternalServerError", '
    b'"param": null, "code": 500}}\n\ndata: [DONE]\n\n',
    b'data: {"error": {"object": "error", "message": "Aborted.", "type": "SERVICE_UNAVAILABLE", '
    b'"param": null, "code": 503}}\n\ndata: [DONE]\n\n',
    b'event: error\ndata: {"type": "error", "error": {"type": "internal_error", "message": "m"}}\n\n',
]
CLIENT_ERRORS = [
    b'data: {"error": {"message": "too long", "type": "BadRequestError", "code": 400}}\n\ndata: [DONE]\n\n',
    b'data: {"error": {"message": "m", "type": "invalid_request_error", "code": null}}\n\ndata: [DONE]\n\n',
    b'data: {"error": {"message": "m", "type": "NotImplementedError", "code": 501}}\n\ndata: [DONE]\n\n',
]
BREAKERS = {"disable_circuit_breaker": False, "cb_failure_threshold": 3, "cb_timeout_duration_secs": 3600}


def streaming(*events):
    def answer(connection, _message):
        connection.send(SSE_HEAD + b"".join(chunk(event) for event in (WORD, *events)) + b"0\r\n\r\n")

    return answer


def ask(client):
    return client.ask("POST", CHAT, body=b"{}")


def page_of(router):
    router.must_rest()
    return parse(router.server.metrics_text())


@pytest.mark.parametrize("event", SERVER_ERRORS)
def test_a_stream_that_ends_with_an_error_of_the_server_s_is_a_failure(harness, written_to, event):
    """mending row 5: in the metrics, in the access log and for the breaker; the client gets it as it is."""
    stdout = written_to(1)
    router = harness.router(harness.worker(streaming(event)), access_log=True, **BREAKERS)
    client = harness.client(router)
    for _ in range(3):
        answer = ask(client)
        assert (answer.status, answer.body) == (200, WORD + event)
    page = page_of(router)
    assert page["vllm_router_exchange_end_total"].value(route=CHAT, end="worker_error") == 3
    assert page["vllm_router_request_errors_total"].value(route=CHAT, error_type="worker_error_event") == 3
    assert page["vllm_router_requests_total"].total() == 0
    assert page["vllm_router_cb_state"].total() == 1
    eventually(lambda: stdout().count("\n") == 3)
    lines = stdout().splitlines()
    assert all(" worker_error " in line and "worker_error_event" in line for line in lines), lines


@pytest.mark.parametrize("event", CLIENT_ERRORS)
def test_an_error_that_is_about_the_request_is_none(harness, event):
    router = harness.router(harness.worker(streaming(event)), **BREAKERS)
    client = harness.client(router)
    for _ in range(5):
        assert ask(client).body == WORD + event
    page = page_of(router)
    assert page["vllm_router_cb_state"].total() == 0
    assert page["vllm_router_exchange_end_total"].value(route=CHAT, end="worker_error") == 0
    assert page["vllm_router_requests_total"].total() == 5


def test_a_client_that_leaves_at_the_event_leaves_the_failure_behind(harness):
    """mending row 5: clients raise an error and close, often before the stream has ended."""

    def answer(connection, _message):
        connection.send(SSE_HEAD + chunk(WORD) + chunk(SERVER_ERRORS[0]))
        connection.ending()

    worker = harness.worker(answer)
    router = harness.router(worker, **BREAKERS)
    for _ in range(3):
        client = harness.client(router)
        client.send(request("POST", CHAT, body=b"{}"))
        client.read_head()
        client.read_until(b"[DONE]")
        client.close()
        router.must_rest()
    assert page_of(router)["vllm_router_cb_state"].total() == 1


def test_requests_that_fail_every_engine_amid_their_streams_eject_nobody(harness):
    """mending row 5: it is a 5xx without a second opinion, so a worker is compared with the fleet."""

    def engine(connection, message):
        bad = json.loads(message.body).get("prompt") == "fail"
        streaming(*([SERVER_ERRORS[0]] if bad else [b"data: [DONE]\n\n"]))(connection, message)

    router = harness.router(*[harness.worker(engine) for _ in range(3)], **BREAKERS)
    client = harness.client(router)
    for _ in range(30):
        client.ask("POST", CHAT, body=b'{"prompt": "fail"}')
        assert client.ask("POST", CHAT, body=b'{"prompt": "hello"}').body.endswith(b"[DONE]\n\n")
    assert page_of(router)["vllm_router_cb_state"].total() == 0


def test_a_worker_that_says_so_is_checked_at_once(harness):
    """mending row 5: its engine is dead, and so will be its process."""

    def answer(connection, message):
        if message.target == "/health":
            connection.send(response(200, b""))
        else:
            streaming(SERVER_ERRORS[0])(connection, message)

    worker = harness.worker(answer)
    router = harness.router(worker, health_check_interval_secs=3600)
    worker.wait_for_requests(1)
    ask(harness.client(router))
    messages = worker.wait_for_requests(3)
    assert [message.target for message in messages] == ["/health", CHAT, "/health"]
