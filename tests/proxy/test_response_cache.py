"""The response cache on the request path: what is served again, what is not, and to whom."""

import json
import threading

import pytest

from tests.fakes.cached import (
    CHAT,
    EVENTS,
    JSON,
    MESSAGES,
    STREAM,
    Engine,
    GatedEngine,
    answer_of,
    ask,
    body_of,
    cache_of,
    cached,
    counted,
    led_and_followed,
    metric,
)
from tests.fakes.harness import error_of
from tests.fakes.wire import chunk, chunked, eventually, request, response
from tests.proxy.test_reload import Served

# ---- hit, miss, bypass


def test_the_second_of_two_equal_requests_is_a_hit(harness):
    engine = Engine(harness)
    router = cached(harness, engine)
    client = harness.client(router)
    first, second = ask(client), ask(client)
    assert (cache_of(first), cache_of(second)) == ("MISS", "HIT")
    assert first.get("age") is None
    assert second.get("age") == "0"
    assert second.body == first.body == answer_of(1)
    assert second.get("content-type") == "application/json"
    assert second.framing == "length"
    assert second.get("x-request-id") != first.get("x-request-id")
    assert engine.count == 1
    router.must_rest()


def test_a_stream_is_replayed_as_a_stream(harness):
    engine = Engine(harness)
    router = cached(harness, engine)
    client = harness.client(router)
    first, second = ask(client, body_of(stream=True)), ask(client, body_of(stream=True))
    assert (cache_of(first), cache_of(second)) == ("MISS", "HIT")
    assert second.body == first.body == b"".join(EVENTS)
    assert (second.framing, second.get("content-type")) == ("chunked", "text/event-stream")
    assert cache_of(ask(client)) == "MISS"  # not a stream
    assert engine.count == 2
    router.must_rest()


def test_an_old_client_gets_a_length(harness):
    router = cached(harness, Engine(harness))
    ask(harness.client(router), body_of(stream=True))
    client = harness.client(router)
    fields = b"Host: a\r\nContent-Type: application/json\r\n"
    body = body_of(stream=True)
    client.send(
        b"POST "
        + CHAT.encode()
        + b" HTTP/1.0\r\n"
        + fields
        + b"Content-Length: %d\r\n\r\n" % len(body)
        + body
    )
    message = client.read_response()
    assert (cache_of(message), message.framing, message.body) == ("HIT", "length", b"".join(EVENTS))


@pytest.mark.parametrize(
    ("body", "fields", "reason"),
    [
        (body_of(temperature=0.5), (), "temperature"),
        (json.dumps({"model": "m", "messages": MESSAGES}).encode(), (), "temperature_absent"),
        (body_of(store=True), (), "state"),
        (b"[]", (), "not_json"),
        (b'{"temperature":0,"temperature":0}', (), "odd_names"),
        (body_of(), (("Cache-Control", "no-store"),), "header"),
        (body_of(), (("Content-Encoding", "identity"),), "content"),
    ],
)
def test_what_may_not_be_cached_bypasses_it(harness, body, fields, reason):
    engine = Engine(harness)
    router = cached(harness, engine, decision_headers=True)
    client = harness.client(router)
    for _ in range(2):
        message = ask(client, body, *fields)
        assert cache_of(message) == "BYPASS"
        assert message.get("x-vllm-router-cache-reason") == reason
    assert engine.count == 2
    assert counted(router, f'vllm_router_response_cache_bypass_total{{reason="{reason}"}}') == 2
    assert counted(router, 'continuum_response_cache_requests_total{result="skip"}') == 2


def test_other_routes_have_no_header_of_it_and_other_inference_bypasses(harness):
    router = cached(harness, Engine(harness))
    client = harness.client(router)
    assert cache_of(client.ask("GET", "/other")) is None
    assert cache_of(client.ask("GET", "/health")) is None
    assert cache_of(ask(client, path="/v1/embeddings")) == "BYPASS"


def test_off_there_is_no_trace_of_it(harness):
    engine = Engine(harness)
    router = harness.router(engine)
    client = harness.client(router)
    for _ in range(2):
        assert cache_of(ask(client)) is None
    assert engine.count == 2
    text = router.server.metrics_text()
    assert "router_response_cache" not in text
    assert "continuum" not in text
    assert json.loads(client.ask("GET", "/admin/response-cache/stats").body) == {"enabled": False}
    refused = client.ask("POST", "/admin/response-cache/invalidate", body=b'{"clear_all": true}')
    assert refused.status == 409


def test_no_cache_asks_a_worker_and_keeps_what_it_says(harness):
    router = cached(harness, Engine(harness))
    client = harness.client(router)
    ask(client)
    fresh = ask(client, None, ("Cache-Control", "no-cache"))
    assert (cache_of(fresh), fresh.body) == ("MISS", answer_of(2))
    assert ask(client).body == answer_of(2)


def test_every_member_path_and_query_counts(harness):
    engine = Engine(harness)
    client = harness.client(cached(harness, engine))
    bodies = [body_of(), body_of(seed=1), body_of(max_tokens=1), body_of(stop=["a"]), body_of(user="u")]
    for body in bodies:
        assert cache_of(ask(client, body)) == "MISS"
    assert cache_of(ask(client, path=f"{CHAT}?a=1")) == "MISS"
    assert cache_of(ask(client, path="/v1/completions")) == "MISS"
    for body in bodies:
        assert cache_of(ask(client, body)) == "HIT"
    # The same members in another order, with other blanks between them.
    members = json.loads(body_of())
    turned = json.dumps(dict(reversed(members.items())), indent=1).encode()
    assert (
        cache_of(
            ask(
                client,
                turned.replace(
                    b'[\n  {\n   "role": "user",\n   "content": "Hello!"\n  }\n ]',
                    json.dumps(MESSAGES).encode(),
                ),
            )
        )
        == "HIT"
    )
    assert engine.count == 7


# ---- tenants


def test_other_credentials_never_meet(harness):
    engine = Engine(harness)
    client = harness.client(cached(harness, engine))
    keys = [(), (("Authorization", "Bearer a"),), (("Authorization", "Bearer b"),), (("x-api-key", "a"),)]
    for fields in keys:
        assert cache_of(ask(client, None, *fields)) == "MISS"
    assert [ask(client, None, *fields).body for fields in keys] == [answer_of(i) for i in (1, 2, 3, 4)]
    assert engine.count == 4


def test_an_empty_credential_hides_no_other(harness):
    engine = Engine(harness)
    client = harness.client(cached(harness, engine))
    empty = ("Authorization", "")
    both = [(("Authorization", "Bearer a"), ("x-api-key", key)) for key in "ab"]
    for fields in [(empty, ("x-api-key", "a")), (empty, ("x-api-key", "b")), *both]:
        assert cache_of(ask(client, None, *fields)) == "MISS"
    assert engine.count == 4


def test_a_header_names_the_tenant(harness):
    engine = Engine(harness)
    options = {"response_cache_tenant_source": "header", "response_cache_tenant_header": "x-team"}
    client = harness.client(cached(harness, engine, **options))
    assert cache_of(ask(client)) == "BYPASS"
    assert cache_of(ask(client, None, ("X-Team", "a"), ("Authorization", "Bearer 1"))) == "MISS"
    assert cache_of(ask(client, None, ("X-Team", "a"), ("Authorization", "Bearer 2"))) == "HIT"
    assert cache_of(ask(client, None, ("X-Team", "b"), ("Authorization", "Bearer 1"))) == "MISS"


# ---- what is kept


def refusing(what):
    def send(connection, _message, number):
        connection.send(*what(number))

    return send


CUT = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 500\r\n\r\n{"
ENDLESS = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n"


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (lambda _: [response(500, b"{}", JSON)], "status"),
        (lambda n: [response(201, answer_of(n), JSON)], "status"),
        (lambda n: [response(200, answer_of(n), ("Content-Type", "text/plain"))], "type"),
        (lambda n: [response(200, answer_of(n), JSON, ("Set-Cookie", "a=b"))], "type"),
        (lambda n: [response(200, answer_of(n), JSON, ("Cache-Control", "private"))], "type"),
        (lambda n: [response(200, answer_of(n), JSON, ("Content-Encoding", "x"))], "type"),
        (lambda n: [response(200, answer_of(n, "abort"), JSON)], "error_inside"),
        (lambda n: [response(200, answer_of(n, None), JSON)], "error_inside"),
        (lambda _: [response(200, b'{"error": {"message": "no"}}', JSON)], "error_inside"),
        (lambda _: [response(200, b"[1]", JSON)], "error_inside"),
    ],
)
def test_a_response_that_is_not_whole_and_good_is_not_kept(harness, sent, reason):
    engine = Engine(harness, send=refusing(sent))
    router = cached(harness, engine, disable_retries=True, decision_headers=True)
    client = harness.client(router)
    for _ in range(2):
        assert cache_of(ask(client)) == "MISS"
    assert engine.count == 2
    assert counted(router, f'vllm_router_response_cache_not_stored_total{{reason="{reason}"}}') == 2
    assert counted(router, "continuum_response_cache_entries") == 0
    router.must_rest()


def test_a_response_that_ends_with_its_connection_is_not_kept(harness):
    def send(connection, _message, number):
        connection.send(ENDLESS + answer_of(number))
        connection.end()

    engine = Engine(harness, send=send)
    router = cached(harness, engine)
    for _ in range(2):
        assert cache_of(ask(harness.client(router))) == "MISS"
    assert counted(router, 'vllm_router_response_cache_not_stored_total{reason="incomplete"}') == 2


@pytest.mark.parametrize(
    "events",
    [
        EVENTS[:-1],  # no [DONE]
        EVENTS[:1] + EVENTS[3:],  # a choice that has not ended
        (EVENTS[0], b'data: {"error":{"message":"no"}}\n\n', EVENTS[3]),
        (*EVENTS, EVENTS[0]),  # something behind the end
    ],
)
def test_a_stream_that_is_not_whole_and_good_is_not_kept(harness, events):
    def send(connection, _message, _number):
        connection.send(STREAM + b"".join(map(chunk, events)) + chunked())

    engine = Engine(harness, send=send)
    router = cached(harness, engine)
    client = harness.client(router)
    for _ in range(2):
        assert cache_of(ask(client, body_of(stream=True))) == "MISS"
    assert engine.count == 2
    assert counted(router, "continuum_response_cache_entries") == 0


def test_a_stream_that_breaks_off_is_not_kept(harness):
    def send(connection, _message, _number):
        connection.send(STREAM + chunk(EVENTS[0]))
        connection.reset()

    engine = Engine(harness, send=send)
    router = cached(harness, engine)
    for _ in range(2):
        client = harness.client(router)
        client.send(request("POST", CHAT, JSON, body=body_of(stream=True)))
        client.read_until(b"\r\n\r\n")
        client.ending()
    assert engine.count == 2
    eventually(lambda: metric(router, "vllm_router_response_cache_capture_bytes") == 0)
    assert counted(router, "continuum_response_cache_entries") == 0


@pytest.mark.parametrize("by_chunks", [False, True])
@pytest.mark.parametrize("more", [0, 1])
def test_the_limit_of_a_response_and_one_byte_more(harness, by_chunks, more):
    size = 2048
    padding = b" " * (size + more - len(answer_of(1)))

    def send(connection, _message, number):
        whole = answer_of(number) + padding
        if by_chunks:
            head = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            connection.send(head + chunked(whole[:1000], whole[1000:]))
        else:
            connection.send(response(200, whole, JSON))

    engine = Engine(harness, send=send)
    client = harness.client(cached(harness, engine, response_cache_max_response_size=size))
    first, second = ask(client), ask(client)
    assert cache_of(second) == ("MISS" if more else "HIT")
    if not more:
        assert first.body == second.body


def test_the_limit_of_a_request_and_one_byte_more(harness):
    engine = Engine(harness)
    client = harness.client(cached(harness, engine, response_cache_max_request_size=4096))
    small = body_of(user="u" * (4096 - len(body_of(user=""))))
    large = body_of(user="u" * (4097 - len(body_of(user=""))))
    assert [cache_of(ask(client, small)) for _ in range(2)] == ["MISS", "HIT"]
    assert [cache_of(ask(client, large)) for _ in range(2)] == ["BYPASS", "BYPASS"]
    # Chunked, its length is seen as it arrives.
    client.send(
        b"POST " + CHAT.encode() + b" HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        b"Transfer-Encoding: chunked\r\n\r\n" + chunked(large[:100], large[100:])
    )
    assert cache_of(client.read_response()) == "BYPASS"


def test_streams_are_not_cached_where_their_limit_is_0(harness):
    router = cached(harness, Engine(harness), response_cache_max_stream_buffer_size=0, decision_headers=True)
    client = harness.client(router)
    for _ in range(2):
        message = ask(client, body_of(stream=True))
        assert (cache_of(message), message.get("x-vllm-router-cache-reason")) == ("BYPASS", "stream")
    assert [cache_of(ask(client)) for _ in range(2)] == ["MISS", "HIT"]


def test_named_fields_are_kept_as_well(harness):
    def send(connection, _message, number):
        connection.send(response(200, answer_of(number), JSON, ("X-Kept", "yes"), ("X-Other", "no")))

    client = harness.client(
        cached(harness, Engine(harness, send=send), response_cache_store_headers=["x-kept"])
    )
    first, second = ask(client), ask(client)
    assert (first.get("x-kept"), first.get("x-other")) == ("yes", "no")
    assert (second.get("x-kept"), second.get("x-other")) == ("yes", None)


def test_a_workers_own_x_cache_is_replaced(harness):
    def send(connection, _message, number):
        connection.send(response(200, answer_of(number), JSON, ("X-Cache", "HIT from far")))

    client = harness.client(cached(harness, Engine(harness, send=send)))
    assert [cache_of(ask(client)) for _ in range(2)] == ["MISS", "HIT"]


def test_capacity_and_least_recent_use(harness):
    engine = Engine(harness)
    router = cached(harness, engine, response_cache_capacity=2)
    client = harness.client(router)
    one, two, three = body_of(seed=1), body_of(seed=2), body_of(seed=3)
    for body in (one, two, one, three):
        ask(client, body)
    assert [cache_of(ask(client, body)) for body in (one, three)] == ["HIT", "HIT"]
    assert counted(router, "continuum_response_cache_entries") == 2
    assert counted(router, "continuum_response_cache_evictions_total") == 1
    assert cache_of(ask(client, two)) == "MISS"


def test_a_response_is_not_used_after_its_time(harness):
    router = cached(harness, Engine(harness), response_cache_ttl_secs=1)
    client = harness.client(router)
    ask(client)
    assert cache_of(ask(client)) == "HIT"
    eventually(lambda: cache_of(ask(client)) == "MISS", "it never expired")


# ---- without workers, permits and loads


def test_a_hit_needs_no_worker(harness):
    engine = Engine(harness)
    router = cached(harness, engine, disable_retries=True)
    client = harness.client(router)
    ask(client)
    engine.worker.stop_listening()
    for connection in engine.worker.connections:
        connection.close()
    assert cache_of(ask(client)) == "HIT"
    failed = ask(client, body_of(seed=1))
    assert (failed.status, cache_of(failed)) == (502, "MISS")
    assert error_of(failed)["code"]


def test_a_hit_takes_no_permit(harness):
    held = threading.Event()
    gate = None

    def send(connection, message, number):
        if b"slow" in message.body:
            held.set()
            gate.wait()
        connection.send(response(200, answer_of(number), JSON))

    engine = Engine(harness, send=send)
    gate = engine.worker.gate()
    router = cached(harness, engine, max_concurrent_requests=1, queue_size=0)
    client = harness.client(router)
    ask(client)
    slow = harness.client(router)
    slow.send(request("POST", CHAT, JSON, body=body_of(user="slow")))
    assert held.wait(10)
    assert cache_of(ask(client)) == "HIT"
    refused = ask(client, body_of(seed=1))
    assert (refused.status, cache_of(refused)) == (429, "MISS")
    assert ask(client, body_of(temperature=1)).status == 429
    gate.open()
    slow.read_response()
    router.must_rest()


def test_a_hit_is_no_decision(harness):
    engine = Engine(harness)
    router = cached(harness, engine, policy="cache_aware")
    client = harness.client(router)
    for _ in range(5):
        ask(client)
    decisions = f'vllm_router_decisions_total{{worker="{engine.url}"}}'
    text = router.server.metrics_text()
    found = [line for line in text.splitlines() if engine.url in line and "decisions" in line]
    assert all(float(line.rsplit(" ", 1)[1]) <= 1 for line in found), (decisions, found)
    assert router.loads() == [0]


# ---- invalidation


def test_clear_all(harness):
    router = cached(harness, Engine(harness))
    client = harness.client(router)
    for seed in range(3):
        ask(client, body_of(seed=seed))
    cleared = client.ask("POST", "/admin/response-cache/invalidate", body=b'{"clear_all": true}')
    assert json.loads(cleared.body) == {"success": True, "action": "clear_all", "cleared_entries": 3}
    assert cache_of(ask(client, body_of(seed=0))) == "MISS"


def test_one_model_and_one_key(harness):
    router = cached(harness, Engine(harness))
    client = harness.client(router)
    ask(client)
    ask(client, body_of(model="other"))
    said = client.ask("POST", "/admin/response-cache/invalidate", body=b'{"model": "m"}')
    assert json.loads(said.body)["success"] is True
    assert [cache_of(ask(client)), cache_of(ask(client, body_of(model="other")))] == ["MISS", "HIT"]
    nothing = client.ask("POST", "/admin/response-cache/invalidate", body=b'{"key": "%s"}' % (b"0" * 64))
    assert json.loads(nothing.body) == {"success": True, "action": "key", "cleared_entries": 0}


def test_an_alias_is_invalidated_as_its_models_are(harness):
    router = cached(harness, Engine(harness), model_alias=["fast=m", "prod=other:1,third:0"])
    client = harness.client(router)
    for alias, models in (("fast", ["fast"]), ("prod", ["prod", "third"])):
        bodies = [body_of(model=model) for model in models]
        for expected in ("MISS", "HIT"):
            assert [cache_of(ask(client, body)) for body in bodies] == [expected] * len(bodies)
        said = client.ask(
            "POST", "/admin/response-cache/invalidate", body=json.dumps({"model": alias}).encode()
        )
        assert json.loads(said.body) == {"success": True, "action": "model", "cleared_entries": 0}
        assert [cache_of(ask(client, body)) for body in bodies] == ["MISS"] * len(bodies)


@pytest.mark.parametrize("model", ["m:ad", "m:ad:v2", "m: ad"])
def test_a_model_is_invalidated_with_its_adapters(harness, model):
    client = harness.client(cached(harness, Engine(harness)))
    body = body_of(model=model)
    for _ in range(2):
        assert [cache_of(ask(client, body)) for _ in range(2)] == ["MISS", "HIT"]
        client.ask("POST", "/admin/response-cache/invalidate", body=b'{"model": "m"}')
    assert [cache_of(ask(client, body)) for _ in range(2)] == ["MISS", "HIT"]
    adapter = model.split(":", 1)[1].strip()
    lora = json.dumps({"lora_name": adapter, "lora_path": "/a"}).encode()
    client.ask("POST", "/load_lora_adapter", JSON, body=lora)
    assert cache_of(ask(client, body)) == "MISS"


def test_what_was_asked_before_an_invalidation_is_not_kept(harness):
    engine = GatedEngine(harness)
    router = cached(harness, engine)
    leader, (second,) = led_and_followed(harness, router, engine, 1)
    client = harness.client(router)
    client.ask("POST", "/admin/response-cache/invalidate", body=b'{"clear_all": true}')
    engine.gates[0].open()
    assert leader.read_response().body == answer_of(1)
    engine.wait_for_request()  # the second goes on alone
    engine.gates[1].open()
    assert second.read_response().body == answer_of(2)
    assert counted(router, "continuum_response_cache_entries") == 0
    router.must_rest()


@pytest.mark.parametrize(
    ("path", "body", "outdated"),
    [
        ("/v1/load_lora_adapter", b'{"lora_name": "m", "lora_path": "/a"}', True),
        ("/v1/load_lora_adapter", b'{"lora_name": "other", "lora_path": "/a"}', False),
        ("/v1/unload_lora_adapter", b"no json", True),
        ("/update_weights_from_disk", b"{}", True),
        ("/wake_up", b"", True),
        ("/collective_rpc", b"{}", True),
        ("/v1/load_lora_adapte%72", b'{"lora_name": "m", "lora_path": "/a"}', True),
        ("/update_weight%73", b"{}", True),
        ("/somewhere", b"{}", False),
    ],
)
def test_requests_that_change_weights_outdate_responses(harness, path, body, outdated):
    engine = Engine(harness)
    router = cached(harness, engine)
    client = harness.client(router)
    ask(client)
    client.ask("POST", path, JSON, body=body)
    assert cache_of(ask(client)) == ("MISS" if outdated else "HIT")


@pytest.mark.parametrize("members", [{"model": "m:ad"}, {"lora_path": "ad"}, {"model": "ad"}])
def test_an_adapter_is_outdated_however_requests_name_it(harness, members):
    client = harness.client(cached(harness, Engine(harness)))
    body = body_of(**members)
    assert [cache_of(ask(client, body)) for _ in range(2)] == ["MISS", "HIT"]
    client.ask("POST", "/load_lora_adapter", JSON, body=b'{"lora_name": "ad", "lora_path": "/a"}')
    assert cache_of(ask(client, body)) == "MISS"


def test_requests_that_name_no_model_are_outdated_with_any(harness):
    client = harness.client(cached(harness, Engine(harness)))
    body = b'{"messages": [], "temperature": 0}'
    assert [cache_of(ask(client, body)) for _ in range(2)] == ["MISS", "HIT"]
    client.ask("POST", "/admin/response-cache/invalidate", body=b'{"model": "m"}')
    assert cache_of(ask(client, body)) == "MISS"


def test_the_other_routers_key_is_for_chats_without_a_query(harness):
    engine = Engine(harness)
    router = cached(
        harness,
        engine,
        response_cache_key_scheme="seed004",
        response_cache_routes=[CHAT, "/v1/messages"],
        decision_headers=True,
    )
    client = harness.client(router)
    assert [cache_of(ask(client)) for _ in range(2)] == ["MISS", "HIT"]
    for path in ("/v1/messages", f"{CHAT}?a=1"):
        said = ask(client, path=path)
        assert (cache_of(said), said.get("x-vllm-router-cache-reason")) == ("BYPASS", "uncovered_member")
    streamed = body_of(stream=True)
    assert [cache_of(ask(client, body)) for body in (streamed, streamed, body_of())] == ["MISS", "HIT", "HIT"]
    client.ask("POST", "/admin/response-cache/invalidate", body=b'{"model": "m"}')
    assert [cache_of(ask(client, body)) for body in (streamed, body_of())] == ["MISS", "MISS"]


def test_what_a_worker_makes_before_it_has_changed_is_outdated_too(harness):
    gate = None
    changing = threading.Event()

    def send(connection, message, number):
        if message.target == "/wake_up":
            changing.set()
            gate.wait()
        connection.send(response(200, answer_of(number), JSON))

    engine = Engine(harness, send=send)
    gate = engine.worker.gate()
    router = cached(harness, engine)
    admin = harness.client(router)
    admin.send(request("POST", "/wake_up", JSON, body=b""))
    assert changing.wait(10)
    client = harness.client(router)
    assert [cache_of(ask(client)) for _ in range(2)] == ["MISS", "HIT"]
    gate.open()
    admin.read_response()
    assert cache_of(ask(client)) == "MISS"


# ---- replay


def test_a_replay_waits_for_its_client(harness):
    """As fast as the client reads, and the thread serves others meanwhile."""
    big = b"x" * 6_000_000
    first = b'data: {"choices":[{"index":0,"delta":{"content":"' + big + b'"},"finish_reason":"stop"}]}\n\n'

    def send(connection, _message, _number):
        connection.send(STREAM + chunked(first, b"data: [DONE]\n\n"))

    router = cached(harness, Engine(harness, send=send), threads=1)
    client = harness.client(router)
    ask(client, body_of(stream=True))
    slow = harness.client(router)
    slow.send(request("POST", CHAT, JSON, body=body_of(stream=True)))
    slow.wait_until_received(1)
    assert cache_of(ask(client, body_of(stream=True))) == "HIT"
    message = slow.read_response()
    assert (cache_of(message), message.body) == ("HIT", first + b"data: [DONE]\n\n")
    gone = harness.client(router)
    gone.send(request("POST", CHAT, JSON, body=body_of(stream=True)))
    gone.wait_until_received(1)
    gone.reset()
    router.must_rest()


def test_a_replay_holds_no_request(harness):
    body = answer_of(1) + b" " * 8_000_000

    def send(connection, _message, _number):
        connection.send(response(200, body, JSON))

    router = cached(harness, Engine(harness, send=send), response_cache_max_response_size=16 << 20)
    client = harness.client(router)
    large = body_of(user="u" * 500_000)
    ask(client, large)
    slow = harness.client(router)
    slow.send(request("POST", CHAT, JSON, body=large))
    slow.wait_until_received(1)
    stored = len(body) + 4_096  # at most
    eventually(lambda: len(body) < metric(router, "vllm_router_body_memory_bytes") < stored)
    assert slow.read_response().body == body
    router.must_rest()


# ---- reload


def test_other_rules_outdate_what_was_kept_under_the_last(harness, tmp_path):
    engine = Engine(harness)
    text = f"worker_urls: [{engine.url}]\nresponse_cache: {{enabled: true, tenant_source: %s}}\n"
    with harness.keeping_descriptors():
        served = Served(harness, tmp_path / "settings.yaml", text % "shared")
    client = served.client()
    key = ("Authorization", "Bearer a")
    assert [cache_of(ask(client, None, key)) for _ in range(2)] == ["MISS", "HIT"]
    assert served.reload(text % "credential")[0] == 200
    assert cache_of(ask(client)) == "MISS"
    served.close()


def test_a_reload_turns_it_on_and_off(harness, tmp_path):
    engine = Engine(harness)
    text = f"worker_urls: [{engine.url}]\nresponse_cache: {{enabled: %s}}\n"
    with harness.keeping_descriptors():
        served = Served(harness, tmp_path / "settings.yaml", text % "false")
    client = served.client()
    assert cache_of(ask(client)) is None
    assert served.reload(text % "true")[0] == 200
    assert [cache_of(ask(client)) for _ in range(2)] == ["MISS", "HIT"]
    assert served.reload(text % "false")[0] == 200
    assert cache_of(ask(client)) is None
    assert served.reload(text % "true")[0] == 200
    assert cache_of(ask(client)) == "MISS"  # nothing was kept meanwhile
    served.close()
