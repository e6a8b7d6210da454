"""cpp/proxy/exchange/decision_headers.h: --decision-headers tells why a worker was asked."""

import json

from tests.fakes.wire import response

CHAT = "/v1/chat/completions"


def chat(system="You are kind. " * 20, model="m"):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Hi"}]
    return json.dumps({"model": model, "messages": messages}).encode()


def ours(answer):
    return {name: value for name, value in answer.fields if name.startswith("x-vllm-router-")}


def stay(connection, _):
    forged = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nX-Vllm-Router-Worker: me\r\n\r\nok"
    connection.send(forged)


def test_answers_say_why_their_worker_was_asked(harness):
    worker = harness.worker(stay)
    client = harness.client(harness.router(worker, policy="cache_aware", decision_headers=True))
    first, second = (ours(client.ask("POST", CHAT, body=chat())) for _ in range(2))
    size = len("\x1esystem\x1f\x1euser\x1fHi") + 280
    assert first == {
        "x-vllm-router-worker": worker.url,
        "x-vllm-router-policy": "cache_aware",
        "x-vllm-router-method": "load",
        "x-vllm-router-reason": "prefix_miss",
        "x-vllm-router-model": "m",
        "x-vllm-router-cache-status": f"0/{size} bytes",
        "x-vllm-router-attempts": "1",
        "x-vllm-router-queue-ms": first["x-vllm-router-queue-ms"],
        "x-vllm-router-candidates": f"{worker.url} load=0 matched=0",
    }
    assert int(first["x-vllm-router-queue-ms"]) >= 0
    assert second["x-vllm-router-method"] == "cache_hit"
    assert second["x-vllm-router-cache-status"] == f"{size}/{size} bytes"


def test_the_chosen_worker_comes_first_and_at_most_eight_are_named(harness):
    workers = [harness.worker(stay) for _ in range(10)]
    client = harness.client(harness.router(*workers, decision_headers=True, policy="round_robin"))
    for worker in workers:
        headers = ours(client.ask("POST", CHAT, body=chat()))
        named = headers["x-vllm-router-candidates"].split(", ")
        assert len(named) == 8
        assert named[0].startswith(f"{worker.url} load=")
        assert headers["x-vllm-router-worker"] == worker.url
        assert "x-vllm-router-cache-status" not in headers


def test_a_model_that_is_no_header_is_left_out(harness):
    client = harness.client(harness.router(harness.worker(stay), policy="cache_aware", decision_headers=True))
    for model in ("a\r\nSet-Cookie: x", "é", "x" * 300, "", "a b"):
        headers = client.ask("POST", CHAT, body=chat(model=model)).fields
        assert not [name for name, _ in headers if name in ("x-vllm-router-model", "set-cookie")]


def test_they_are_off_unless_asked_for(harness):
    client = harness.client(harness.router(harness.worker(lambda c, _: c.send(response(200, b"ok")))))
    assert ours(client.ask("POST", CHAT, body=chat())) == {}
