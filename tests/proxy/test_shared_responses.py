"""The response cache in a Redis: routers that share it, and a Redis that dies, hangs, lies or comes back."""

import json

import pytest

from tests.fakes.cached import (
    CHAT,
    EVENTS,
    FALLBACK,
    JSON,
    STREAM,
    Engine,
    answer_of,
    ask,
    body_of,
    cache_of,
    cached,
    counted,
    kept,
    keys_of,
    metric,
    send_answer,
    shared,
    stats_of,
)
from tests.fakes.wire import chunk, chunked, eventually, request, wait_until_logged

# ---- routers that share it


def test_what_one_router_kept_another_sends(harness, redis):
    engine = Engine(harness)
    one, two = shared(harness, redis, engine), shared(harness, redis, engine)
    first, second = harness.client(one), harness.client(two)
    before = engine.count
    for body in (body_of(seed=1), body_of(seed=1, stream=True)):
        said = ask(first, body)
        assert cache_of(said) == "MISS"
        eventually(lambda body=body: cache_of(ask(first, body)) == "HIT")
        found = ask(second, body)
        assert (cache_of(found), found.body) == ("HIT", said.body)
        assert found.get("content-type") == said.get("content-type")
    assert engine.count >= before + 2


def test_values_expire_by_themselves_and_hide_requests(harness, redis):
    router = shared(harness, redis, Engine(harness), response_cache_ttl_secs=100)
    client = harness.client(router)
    redis.call("FLUSHALL")
    ask(client, body_of(user="a secret"))
    kept(redis, 1)
    (key,) = keys_of(redis)
    assert len(key) == len("cr:resp:") + 64
    assert 90 < redis.call("TTL", key) <= 100
    assert b"secret" not in redis.call("GET", key)


def test_an_invalidation_at_one_router_is_one_at_all(harness, redis):
    engine = Engine(harness)
    one, two = shared(harness, redis, engine), shared(harness, redis, engine)
    first, second = harness.client(one), harness.client(two)
    ask(first)
    eventually(lambda: cache_of(ask(second)) == "HIT")
    cleared = first.ask("POST", "/admin/response-cache/invalidate", body=b'{"clear_all": true}')
    said = json.loads(cleared.body)
    assert (said["success"], said["action"]) == (True, "clear_all")
    assert said["cleared_entries"] >= 1
    assert cache_of(ask(first)) == "MISS"
    old = answer_of(1)
    eventually(lambda: ask(second).body != old, "the old response is still sent")


@pytest.mark.parametrize("what", [b'{"clear_all": true}', b'{"model": "m"}'])
def test_an_invalidation_says_whether_redis_has_it(harness, redis, what):
    """Row 22: it was acknowledged though Redis was cut off, and lost with its router."""
    router = shared(harness, redis, Engine(harness))
    client = harness.client(router)

    def said():
        reply = json.loads(client.ask("POST", "/admin/response-cache/invalidate", body=what).body)
        return reply["success"], reply["shared"], reply["pending"]

    assert said() == (True, True, False)
    redis.kill()
    assert said() == (True, False, True)
    assert redis.start()
    eventually(lambda: said() == (True, True, False))


@pytest.mark.parametrize("how", ["type", "right"])
def test_generations_that_cannot_be_read_are_seen_and_the_way_back_is_told(harness, redis, capfd, how):
    """Row 22: each router used its own memory, while metric and stats said that Redis was used."""
    router = shared(harness, redis, Engine(harness))
    client = harness.client(router)
    name = "cr:resp:~gen"
    redis.call("DEL", name)
    redis.call(*(("SET", name, "x") if how == "type" else ("ACL", "SETUSER", "default", "-hgetall")))
    eventually(lambda: metric(router, FALLBACK) == 1)
    assert stats_of(client)["redis"]["fallback_active"] is True
    assert cache_of(ask(client, body_of(seed=3))) == "MISS"
    assert cache_of(ask(client, body_of(seed=3))) == "HIT"  # from memory
    redis.call(*(("DEL", name) if how == "type" else ("ACL", "SETUSER", "default", "+hgetall")))
    eventually(lambda: metric(router, FALLBACK) == 0)
    wait_until_logged(capfd, "is used again")


# ---- faults


def test_without_the_fallback_requests_bypass_the_cache(harness, redis):
    router = shared(
        harness, redis, Engine(harness), response_cache_fallback_to_memory=False, decision_headers=True
    )
    client = harness.client(router)
    redis.kill()
    eventually(lambda: metric(router, FALLBACK) == 1)
    for _ in range(2):
        said = ask(client, body_of(seed=2))
        assert (cache_of(said), said.get("x-vllm-router-cache-reason")) == ("BYPASS", "store_down")


def test_what_is_no_routers_response_is_not_sent(harness, redis):
    engine = Engine(harness)
    router = shared(harness, redis, engine)
    client = harness.client(router)
    redis.call("FLUSHALL")
    eventually(lambda: cache_of(ask(client)) == "HIT")
    kept(redis, 1)
    (key,) = keys_of(redis)
    good = redis.call("GET", key)
    other = good[:32] + bytes(32) + good[64:]  # of another key
    for value in (b"", b"hello", good[:-1], good + b"x", good[:90] + b"X" + good[91:], other):
        redis.call("SET", key, value)
        before = engine.count
        said = ask(client)
        assert (said.status, cache_of(said)) == (200, "MISS"), value
        assert said.body == answer_of(before + 1)
        eventually(lambda: cache_of(ask(client)) == "HIT")
    assert counted(router, "vllm_router_response_cache_corrupt_total") == 6


@pytest.mark.parametrize("signed", [True, False])
def test_with_a_key_only_what_it_signed_is_sent(harness, redis, tmp_path, signed):
    secret = tmp_path / "secret"
    secret.write_text("x" * 32)
    engine = Engine(harness)
    options = {"response_cache_integrity_key_file": str(secret)}
    one = shared(harness, redis, engine, **(options if signed else {}))
    two = shared(harness, redis, engine, **options)
    ask(harness.client(one), body_of(seed=5))
    kept(redis, 3)  # with those of the probes
    assert cache_of(ask(harness.client(two), body_of(seed=5))) == ("HIT" if signed else "MISS")


# ---- clients that do not read

HELD = "vllm_router_body_memory_bytes"
EVENT = b'data: {"choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":null}]}\n\n' % (b"x" * 10_000)
LONG = [EVENT] * 900 + list(EVENTS)  # more than half of the memory, and than sockets take
LONG_BYTES = sum(map(len, LONG))
PATIENT = {"response_cache_lookup_budget_ms": 10_000, "redis_command_timeout_ms": 10_000}


def send_long(connection, message, number):
    if b'"stream": true' not in message.body:
        send_answer(connection, message, number)
    else:
        connection.send(STREAM, *map(chunk, LONG), chunked())


def ask_without_reading(harness, router, body):
    reader = harness.client(router, receive_buffer=4096)
    reader.send(request("POST", CHAT, JSON, body=body))
    return reader, reader.read_head()


@pytest.mark.parametrize("backend", ["memory", "redis"])
def test_long_responses_that_nobody_reads_leave_memory_for_bodies(harness, redis, backend):
    engine = Engine(harness, send=send_long)
    options = {**PATIENT, "body_memory_mb": 16, "decision_headers": True}
    if backend == "redis":
        router = shared(harness, redis, engine, **options)
    else:
        router = cached(harness, engine, **options)
    client = harness.client(router)
    one, other = body_of(seed=1, stream=True), body_of(seed=2, stream=True)
    for body in (one, other):
        eventually(lambda body=body: cache_of(ask(client, body)) == "HIT")
    eventually(lambda: metric(router, HELD) == 0)

    idle = [ask_without_reading(harness, router, one) for _ in range(3)]
    assert [head.get("x-cache") for _, head in idle] == ["HIT"] * 3
    held = metric(router, HELD)
    assert LONG_BYTES < held < LONG_BYTES + 4096  # one copy, for all of them
    asked = engine.count
    said = ask(client, other)
    assert (said.status, len(said.body)) == (200, LONG_BYTES)
    assert (cache_of(said), said.get("x-vllm-router-cache-reason")) == ("BYPASS", "memory")
    assert engine.count == asked + 1
    assert cache_of(ask(client, one)) == "HIT"
    assert ask(client, b"x" * 1_000_000).status == 200  # there is room for bodies

    for reader, _ in idle:
        reader.close()
    eventually(lambda: metric(router, HELD) == 0)
    assert cache_of(ask(client, other)) == "HIT"
    assert counted(router, 'vllm_router_response_cache_bypass_total{reason="memory"}') == 1
