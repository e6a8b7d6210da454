"""--anthropic-cache-control-injection: what workers get of POST /v1/messages, and clients of them."""

import json

import anthropic
import pytest

from tests.fakes.pd import handing_over, responding, series, staged
from tests.fakes.wire import eventually, response
from vllm_router.testing import SimulatedWorker

PATH = "/v1/messages"
MARKER = b',"cache_control":{"type":"ephemeral"}'
PLAIN = b'{ "model" : "m", "system":"You are \\u00e9.", "max_tokens": 1.0,"messages":[]}'
MARKED = PLAIN.replace(rb'"You are \u00e9."', rb'[{"type":"text","text":"You are \u00e9."' + MARKER + b"}]")
PRESENT = b'{"system":[{"type":"text","text":"a","cache_control":null}]}'
ON = {"anthropic_cache_control_injection": True}


def post(client, body, path=PATH, *fields):
    return client.ask("POST", path, ("Content-Type", "application/json"), *fields, body=body)


def bodies(worker):
    return [message.body for message in worker.requests if message.method == "POST"]


@pytest.mark.parametrize("policy", ["round_robin", "cache_aware", "prefix_aware"])
def test_a_system_prompt_gets_a_marker_and_all_else_stays(harness, policy):
    worker = harness.worker()
    router = harness.router(worker, policy=policy, **ON)
    client = harness.client(router)
    others = [PRESENT, b"{}", b'{"system":"a","system":"b"}', b"text", b'{"system":"a"}}']
    for body in (PLAIN, *others):
        assert post(client, body).body == b"hello"
    assert bodies(worker) == [MARKED, *others]
    expected = {"added": 1, "present": 1, "no_text": 1, "odd_names": 1, "unreadable": 2}
    eventually(lambda: series(router, "cache_control_total") == expected, "the counts")


def test_only_messages_are_edited(harness):
    worker = harness.worker()
    router = harness.router(worker, policy="round_robin", **ON)
    client = harness.client(router)
    for path in ("/v1/messages/count_tokens", "/v1/chat/completions", "/v1/messages/batches", "/messages"):
        assert post(client, PLAIN, path).body == b"hello"
    assert client.ask("PUT", PATH, body=PLAIN).body == b"hello"
    assert client.ask("GET", PATH).body == b"hello"
    assert client.ask("POST", PATH).body == b"hello"
    sent = [message.body for message in worker.requests if message.target != "/health"]
    assert sent == [PLAIN] * 5 + [b""] * 2
    assert series(router, "cache_control_total") == {}


def test_by_default_all_bytes_pass(harness):
    worker = harness.worker()
    router = harness.router(worker)
    assert post(harness.client(router), PLAIN).body == b"hello"
    assert bodies(worker) == [PLAIN]
    assert series(router, "cache_control_total") == {}


@pytest.mark.parametrize("policy", ["round_robin", "cache_aware"])
@pytest.mark.parametrize("chunks", [False, True])
def test_a_body_of_any_length_gets_it(harness, policy, chunks):
    worker = harness.worker()
    router = harness.router(worker, policy=policy, max_payload_size=16 << 20, body_memory_mb=64, **ON)
    client = harness.client(router)
    body = b'{"system":"hi","x":"' + b"x" * (9 << 20) + b'"}'
    if chunks:
        client.send(b"POST /v1/messages HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
        for at in range(0, len(body), 100_000):
            piece = body[at : at + 100_000]
            client.send(b"%x\r\n" % len(piece) + piece + b"\r\n")
        client.send(b"0\r\n\r\n")
        assert client.read_response("POST").body == b"hello"
    else:
        assert post(client, body).body == b"hello"
    assert bodies(worker) == [body.replace(b'"hi"', b'[{"type":"text","text":"hi"' + MARKER + b"}]")]


def test_each_attempt_sends_the_same(harness):
    """Also where another worker has failed after it had read the request."""
    worker = harness.worker()
    failing = harness.worker(lambda connection, _: connection.send(response(503, b"busy")))
    router = harness.router(
        harness.refusing_port(),
        failing,
        worker,
        policy="round_robin",
        disable_retries=False,
        retry_initial_backoff_ms=1,
        retry_max_backoff_ms=20,
        **ON,
    )
    client = harness.client(router)
    for _ in range(3):
        assert post(client, PLAIN).body == b"hello"
    assert set(bodies(failing)) == {MARKED}
    assert bodies(worker) == [MARKED] * 3
    eventually(lambda: series(router, "cache_control_total") == {"added": 3}, "once for each request")


def test_it_is_added_where_members_are_removed(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker, pd_strip_client_params="always", **ON))
    assert post(client, b'{"kv_transfer_params":1,"system":"hi","bootstrap_room":2,"x":3}').body == b"hello"
    assert post(client, b'{"system":"hi"}').body == b"hello"
    block = b'"system":[{"type":"text","text":"hi"' + MARKER + b"}]"
    assert bodies(worker) == [b"{" + block + b',"x":3}', b"{" + block + b"}"]


def test_the_key_is_that_of_the_clients_body(harness):
    """Policies match the prompt as it came."""

    def statuses(**setting):
        worker = harness.worker()
        router = harness.router(worker, policy="cache_aware", decision_headers=True, **setting)
        client = harness.client(router)
        body = json.dumps(
            {"model": "m", "system": "You are kind. " * 40, "messages": [{"role": "user", "content": "Hi"}]}
        ).encode()
        return [post(client, body).get("x-vllm-router-cache-status") for _ in range(2)]

    assert statuses(**ON) == statuses()


@pytest.mark.parametrize("kind", ["text", "blocks"])
def test_both_stages_get_it(harness, kind):
    prefill, decode = handing_over(harness), responding(harness)
    router = staged(harness, [prefill], [decode], **ON)
    text = b'{"type":"text","text":"hi"}'
    system = b'"hi"' if kind == "text" else b"[ " + text + b" ]"
    marked = b'[{"type":"text","text":"hi"' + MARKER + b"}]"
    if kind == "blocks":
        marked = b"[ " + text[:-1] + MARKER + b"} ]"
    end = b',"messages":[{"role":"user","content":"hi"}],"max_tokens":7}'
    assert post(harness.client(router), b'{"system":' + system + end).status == 200
    (at_prefill,), (at_decode,) = bodies(prefill), bodies(decode)
    assert json.loads(at_prefill)["max_tokens"] == 1
    assert json.loads(at_decode)["max_tokens"] == 7
    for copy in (at_prefill, at_decode):
        assert b'"system":' + marked in copy
        assert copy.count(b"cache_control") == 1
        assert "kv_transfer_params" in json.loads(copy)
    eventually(lambda: series(router, "cache_control_total") == {"added": 1}, "the count")


def test_a_worker_that_serves_both_stages_gets_it(harness):
    """The client has transfer members and an image that each worker would fetch by itself."""
    prefill, decode = handing_over(harness), responding(harness)
    router = staged(harness, [prefill], [decode], **ON)
    image = b'{"type":"image","source":{"type":"url","url":"http://x/y.png"}}'
    end = b',"messages":[{"role":"user","content":[' + image + b"]}]}"
    client = harness.client(router)
    marked = b'{"system":[{"type":"text","text":"hi"' + MARKER + b"}]" + end
    assert post(client, b'{"system":"hi"' + end).status == 200
    assert post(client, b'{"kv_transfer_params":1,"system":"hi"' + end).status == 200
    assert bodies(prefill) == []
    assert bodies(decode) == [marked, marked]


def test_the_setting_is_among_those_of_prefix_routing(harness):
    client = harness.client(harness.router(harness.worker(), **ON))
    stats = json.loads(client.ask("GET", "/admin/prefix-routing/stats").body)
    assert stats["config"]["anthropic_cache_control_injection"] is True


WHOLE = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "m",
    "content": [{"type": "text", "text": "hello"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 1, "output_tokens": 1, "cache_creation_input_tokens": 9},
}


@pytest.mark.parametrize(
    "system",
    ["You are kind: é😀\n", [{"type": "text", "text": "You"}, {"type": "text", "text": "are kind"}]],
    ids=["text", "blocks"],
)
def test_a_real_client_gets_its_prompt_marked(harness, system):
    worker = harness.worker(lambda connection, _: connection.send(response(200, json.dumps(WHOLE).encode())))
    router = harness.router(worker, **ON)
    request = {"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "hi"}]}
    with anthropic.Anthropic(
        base_url=f"http://127.0.0.1:{router.port}", api_key="k", max_retries=0
    ) as client:
        message = client.messages.create(**request, system=system)
    assert message.content[0].text == "hello"
    assert message.usage.cache_creation_input_tokens == 9
    (sent,) = (json.loads(body) for body in bodies(worker))
    blocks = [{"type": "text", "text": system}] if isinstance(system, str) else system
    assert sent == {
        **request,
        "system": [*blocks[:-1], {**blocks[-1], "cache_control": {"type": "ephemeral"}}],
    }


def test_a_real_client_streams_from_a_worker_that_takes_blocks(harness):
    with SimulatedWorker(engine="instant") as worker:
        router = harness.router(worker, **ON)
        with anthropic.Anthropic(
            base_url=f"http://127.0.0.1:{router.port}", api_key="k", max_retries=0
        ) as client:
            request = {
                "model": "simulated-model",
                "max_tokens": 5,
                "messages": [{"role": "user", "content": "hi"}],
            }
            whole = client.messages.create(**request, system="You are kind.")
            with client.messages.stream(**request, system="You are kind.") as stream:
                assert stream.get_final_text() == whole.content[0].text
        eventually(lambda: series(router, "cache_control_total") == {"added": 2}, "the count")
