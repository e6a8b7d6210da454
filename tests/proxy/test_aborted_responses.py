"""Complete responses that say that their engine aborted the generation, as vLLM does at a SIGTERM."""

import json

import pytest

from tests.fakes.prometheus_text import parse
from tests.fakes.wire import chunk, eventually, request, response

SSE_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
JSON = ("Content-Type", "application/json")
CHAT, COMPLETIONS, GENERATE = "/v1/chat/completions", "/v1/completions", "/generate"
MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
BREAKERS = {"disable_circuit_breaker": False, "cb_failure_threshold": 3, "cb_timeout_duration_secs": 3600}
GOOD = {
    CHAT: "stop",
    COMPLETIONS: "length",
    GENERATE: {"type": "stop"},
    MESSAGES: "end_turn",
    RESPONSES: "completed",
}
BAD = {
    CHAT: "abort",
    COMPLETIONS: "abort",
    GENERATE: {"type": "abort", "message": "Aborted"},
    MESSAGES: None,
    RESPONSES: "cancelled",
}


def plain(path, why):
    if path == MESSAGES:
        content = [{"type": "text", "text": "half a sen"}]
        return {"type": "message", "content": content} | ({"stop_reason": why} if why else {})
    if path == RESPONSES:
        return {"id": "resp_1", "output": [], "status": why}
    if path == GENERATE:
        return {"text": "half a sen", "meta_info": {"finish_reason": why}}
    return {
        "choices": [{"index": 0, "message": {"content": "half a sen"}, "finish_reason": why}],
        "usage": {},
    }


def stream(path, why):
    if path == MESSAGES:
        said = [
            {"type": "message_start", "message": {"id": "m", "content": [], "stop_reason": None}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "half"}},
            {"type": "message_delta", "delta": {"stop_reason": why, "stop_sequence": None}, "usage": {}},
            {"type": "message_stop"},
        ]
    elif path == RESPONSES:
        said = [{"type": "response.completed", "response": plain(path, why)}]
    elif path == GENERATE:
        said = [plain(path, None), plain(path, why)]
    else:
        said = [
            {"choices": [{"delta": {"content": "half"}}]},
            {"choices": [{"index": 0, "finish_reason": why}]},
        ]
    body = b"".join(b"data: %s\n\n" % json.dumps(event).encode() for event in said)
    return body if path in (MESSAGES, RESPONSES) else body + b"data: [DONE]\n\n"


def engine(connection, message):
    """Does what the body says: {"ends": why} or {"aborted": 1}; a stream if it asks for one."""
    if message.method == "GET":
        return connection.send(response(200, b"{}", JSON))
    asked = json.loads(message.body)
    why = BAD[message.target] if asked.get("aborted") else GOOD[message.target]
    if not asked.get("stream"):
        return connection.send(response(200, json.dumps(plain(message.target, why)).encode(), JSON))
    return connection.send(SSE_HEAD + chunk(stream(message.target, why)) + b"0\r\n\r\n")


def ask(client, path=CHAT, **body):
    return client.ask("POST", path, JSON, body=json.dumps(body).encode())


def page_of(router):
    router.must_rest()
    return parse(router.server.metrics_text())


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", list(BAD))
def test_it_is_counted_and_logged_as_an_end_by_the_worker(harness, written_to, path, streamed):
    """Row 12: in each API, streamed and plain; the client gets it as it is."""
    stdout = written_to(1)
    router = harness.router(harness.worker(engine), access_log=True)
    client = harness.client(router)
    aborted = ask(client, path, aborted=1, stream=streamed)
    good = ask(client, path, stream=streamed)
    assert (aborted.status, good.status) == (200, 200)
    body = aborted.body if streamed else json.loads(aborted.body)
    assert body == (stream if streamed else plain)(path, BAD[path])
    page = page_of(router)
    ends = page["vllm_router_exchange_end_total"]
    assert ends.value(route=path, end="worker_aborted") == 1
    assert ends.value(route=path, end="done") == 1
    assert page["vllm_router_request_errors_total"].value(route=path, error_type="worker_aborted") == 1
    assert page["vllm_router_requests_total"].total() == 1
    eventually(lambda: stdout().count("\n") == 2)
    first, second = stdout().splitlines()
    assert " worker_aborted " in first
    assert "error=worker_aborted" in first
    assert " done " in second


def test_a_stored_response_that_was_cancelled_is_told_as_it_is(harness):
    """Row 12: a client reads what became of its own request, which it has cancelled."""
    cancelled = json.dumps(plain(RESPONSES, "cancelled")).encode()
    router = harness.router(
        harness.worker(lambda connection, _: connection.send(response(200, cancelled, JSON)))
    )
    client = harness.client(router)
    assert client.ask("GET", f"{RESPONSES}/resp_1").status == 200
    assert client.ask("POST", f"{RESPONSES}/resp_1/cancel", body=b"").status == 200
    assert page_of(router)["vllm_router_exchange_end_total"].values_of("end") == {"done"}


@pytest.mark.parametrize("reuse", [True, False])
def test_an_engine_that_ends_is_one_failure_and_one_health_check(harness, capfd, reuse):
    """Row 12: a SIGTERM aborts all responses at once. The health check finds out what it means."""
    worker = harness.worker(engine)
    router = harness.router(
        worker, harness.worker(engine), policy="round_robin", health_check_interval_secs=3600, **BREAKERS
    )
    worker.wait_for_requests(1)
    client = harness.client(router)
    for _ in range(40):
        ask(client, aborted=1)
        if not reuse:
            client = harness.client(router)
    page = page_of(router)
    assert page["vllm_router_exchange_end_total"].value(route=CHAT, end="worker_aborted") == 40
    assert page["vllm_router_cb_state"].total() == 0
    blamed = page["vllm_router_server_errors_total"]
    assert blamed.total() == 2  # workers
    eventually(lambda: [message.target for message in worker.requests].count("/health") >= 2)
    assert capfd.readouterr().err.count("aborts responses") == 2


def test_a_client_that_has_its_own_requests_aborted_ejects_no_worker(harness):
    """Row 12: by /abort_request for instance; others' requests are served all the while."""
    worker = harness.worker(engine)
    router = harness.router(worker, harness.worker(engine), **BREAKERS)
    attacker, honest = harness.client(router), harness.client(router)
    for _ in range(30):
        ask(attacker, aborted=1, stream=True)
        assert ask(honest).status == 200
    page = page_of(router)
    assert page["vllm_router_cb_state"].total() == 0
    assert page["vllm_router_exchange_end_total"].value(route=CHAT, end="done") == 30


def test_it_is_not_sent_to_another_worker(harness):
    """Row 12: the client, or the operator, may have wanted the abort, and would get what it has ended."""
    router = harness.router(harness.worker(engine), harness.worker(engine), disable_retries=False)
    assert json.loads(ask(harness.client(router), aborted=1).body) == plain(CHAT, "abort")
    assert page_of(router)["vllm_router_exchange_end_total"].total() == 1
    assert page_of(router)["vllm_router_retries_total"].total() == 0


@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("path", [CHAT, COMPLETIONS, MESSAGES, GENERATE])
def test_the_response_cache_does_not_keep_it(harness, path, streamed):
    """Row 12: nor give it to an equal request that waits."""
    worker = harness.worker(engine)
    cache = {"response_cache": True, "response_cache_routes": [path]}
    client = harness.client(harness.router(worker, **cache))
    body = {
        "model": "m",
        "temperature": 0,
        "messages": [],
        "sampling_params": {"temperature": 0},
        "stream": streamed,
    }
    for aborted, cached in ((1, "MISS"), (1, "MISS"), (0, "MISS"), (0, "HIT")):
        more = {"aborted": 1} if aborted else {}
        assert ask(client, path, **body, **more).get("x-cache") == cached


def test_a_client_that_leaves_at_the_abort_leaves_the_event_behind(harness):
    """Row 12: clients need not wait for the end of a stream."""

    def answer(connection, _message):
        connection.send(SSE_HEAD + chunk(stream(CHAT, "abort")))
        connection.ending()

    router = harness.router(harness.worker(answer), **BREAKERS)
    client = harness.client(router)
    client.send(request("POST", CHAT, body=b"{}"))
    client.read_head()
    client.read_until(b"[DONE]")
    client.close()
    router.must_rest()
    page = page_of(router)
    assert page["vllm_router_exchange_end_total"].values_of("end") == {"worker_aborted"}
    assert page["vllm_router_server_errors_total"].total() == 1
