"""The prefix index in a Redis: routers that share it, and a Redis that dies, hangs, lies or comes back."""

import json

import pytest

from tests.fakes.prometheus_text import parse
from tests.fakes.redis_server import FakeRedis, hang_up
from tests.fakes.sse_kv_server import (
    PREFIX,
    SseKvServer,
    event,
    open_router,
    prefix,
    source_of,
    stats,
    wait_for_index,
)
from tests.fakes.wire import eventually

HOT, WARM = f"cr:kvidx:{PREFIX}", f"cr:kvidx:w:{PREFIX}"


@pytest.fixture
def fake():
    with FakeRedis() as server:
        yield server


@pytest.fixture
def servers():
    return [SseKvServer(), SseKvServer()]


@pytest.fixture
def workers(harness, servers):
    return [harness.worker(server) for server in servers]


def name_of(worker):
    """By which a router without a source knows it."""
    return worker.url.removeprefix("http://")


def share(harness, workers, redis, told, **options):
    """A router over all workers that is told by `told` alone; those by their host and port."""
    settings = {
        "kv_index_backend": "redis",
        "redis_url": redis.url,
        "decision_headers": True,
        "kv_lookup_timeout_ms": 1000,
        "kv_prefix_source": [source_of(worker, name_of(worker)) for worker in told],
        **options,
    }
    return open_router(harness, *workers, policy="kv_overlap", **settings)


def metric(router, name, **labels):
    return parse(router.server.metrics_text())[name].value(**labels)


def wait_until_used(router, connections=9):
    """By all of its connections: eight of the one thread that serves clients, and the control thread's."""
    eventually(lambda: metric(router, "continuum_cache_redis_connections_idle") == connections)


def chat(harness, router, text="a"):
    if not hasattr(router, "chat_client"):
        router.chat_client = harness.client(router)
    body = {
        "model": "llama-3",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": text * 1000},
        ],
    }
    return router.chat_client.ask("POST", "/v1/chat/completions", body=json.dumps(body).encode())


def chosen(harness, router, text="a"):
    return chat(harness, router, text).get("x-vllm-router-worker")


@pytest.mark.parametrize("holder", [0, 1])
def test_a_router_without_sources_routes_by_what_another_was_told(harness, redis, servers, workers, holder):
    told = share(harness, workers, redis, [workers[holder]])
    other = share(harness, workers, redis, [])
    for router in (told, other):
        wait_until_used(router)
    servers[holder].wait_connected()
    servers[holder].send(event("created", PREFIX, 4096))
    eventually(lambda: redis.call("ZSCORE", HOT, name_of(workers[holder])) == b"4096")
    for router in (told, other):
        assert {chosen(harness, router, text) for text in "abcd"} == {workers[holder].url}
    assert stats(harness, other)["config"]["backend"] == "redis"
    assert stats(harness, other)["index"]["entry_count"] == 0
    assert stats(harness, other)["routing_decisions"]["kv_aware"] == 4


def test_a_name_of_its_own_source_finds_the_worker(harness, redis, workers):
    named = [source_of(worker, f"vllm-{number}") for number, worker in enumerate(workers, 1)]
    router = share(harness, workers, redis, [], kv_prefix_source=named)
    wait_until_used(router)
    redis.call("ZADD", HOT, "4096", "vllm-2")
    assert chosen(harness, router) == workers[1].url


def test_the_keys_are_those_of_continuum_router_and_expire(harness, redis, servers, workers):
    router = share(
        harness,
        workers,
        redis,
        [workers[0]],
        routing={"kv_storage_offloading": "offloads", "kv_index_ttl_secs": 90},
    )
    wait_until_used(router)
    name = name_of(workers[0]).encode()
    servers[0].wait_connected()
    servers[0].send(event("created", PREFIX))
    eventually(lambda: redis.call("ZRANGE", HOT, "0", "-1", "WITHSCORES") == [name, b"16"])
    assert 80 <= redis.call("TTL", HOT) <= 90
    servers[0].send(event("offloaded", PREFIX, 32))
    eventually(lambda: redis.call("ZRANGE", WARM, "0", "-1", "WITHSCORES") == [name, b"32"])
    assert redis.call("EXISTS", HOT) == 0
    servers[0].send(event("reloaded", PREFIX))
    eventually(lambda: redis.call("ZRANGE", HOT, "0", "-1", "WITHSCORES") == [name, b"32"])
    assert redis.call("EXISTS", WARM) == 0
    servers[0].send(event("evicted", PREFIX))
    eventually(lambda: redis.call("KEYS", "cr:kvidx:*") == [])


def test_a_purge_removes_what_was_written_for_that_worker(harness, redis, servers, workers):
    router = share(harness, workers, redis, workers, routing={"kv_index_max_entries": 2000})
    wait_until_used(router)
    for server in servers:
        server.wait_connected()
    servers[0].send(b"".join(event("created", prefix(n)) for n in range(1100)))
    servers[1].send(event("created", prefix(7)))
    eventually(lambda: redis.call("DBSIZE") == 1100 and redis.call("ZCARD", f"cr:kvidx:{prefix(7)}") == 2)
    servers[0].send(event("purged"), event("created", prefix(5)))
    eventually(lambda: sorted(redis.call("KEYS", "*")) == [f"cr:kvidx:{prefix(n)}".encode() for n in (5, 7)])
    assert redis.call("ZRANGE", f"cr:kvidx:{prefix(7)}", "0", "-1") == [name_of(workers[1]).encode()]


def test_replies_are_kept_for_a_while(harness, fake, workers):
    fake.replies["ZREVRANGEBYSCORE"] = b"*0\r\n"
    router = share(harness, workers, fake, [])
    wait_until_used(router)
    chat(harness, router)
    first = len(fake.wait_for("ZREVRANGEBYSCORE", 2))
    assert first == 2
    # Within 100 ms nothing is looked up; how often a slow machine takes longer is not the point.
    for _ in range(20):
        chat(harness, router)
    assert len(fake.wait_for("ZREVRANGEBYSCORE", 2)) < 42
    assert fake.wait_for("ZREVRANGEBYSCORE")[:2] == [
        ["ZREVRANGEBYSCORE", key, "+inf", "-inf", "WITHSCORES", "LIMIT", "0", "128"] for key in (HOT, WARM)
    ]


@pytest.mark.parametrize(
    "reply",
    [
        b"*2\r\n$1\r\na\r\n$3\r\nnan\r\n",
        b"*2\r\n$1\r\na\r\n$3\r\n-12\r\n",
        b"*1\r\n$1\r\na\r\n",
        b"*2\r\n:1\r\n:2\r\n",
        b"$4\r\nwhat\r\n",
        b"*-1\r\n",
        b"-WRONGTYPE x\r\n",
    ],
)
def test_what_other_programs_write_is_not_used(harness, fake, workers, reply):
    fake.replies["ZREVRANGEBYSCORE"] = reply
    router = share(harness, workers, fake, [])
    wait_until_used(router)
    assert chat(harness, router).status == 200
    assert stats(harness, router)["routing_decisions"]["kv_aware"] == 0


@pytest.mark.parametrize(
    "reply",
    [
        None,
        hang_up,
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"*2\r\n$100\r\nhalf",
        b"-NOAUTH Authentication required.\r\n",
        b"-LOADING Redis is loading\r\n",
        b"-MOVED 1 127.0.0.1:1\r\n",
    ],
)
def test_a_redis_in_trouble_fails_no_request(harness, fake, servers, workers, reply):
    fake.replies["ZREVRANGEBYSCORE"] = reply
    router = share(
        harness,
        workers,
        fake,
        [workers[1]],
        kv_lookup_timeout_ms=5,
        redis_command_timeout_ms=100,
        redis_pool_size=1,
    )
    wait_until_used(router, 2)
    servers[1].wait_connected()
    servers[1].send(event("created", PREFIX, 4096))
    wait_for_index(harness, router, entry_count=1)

    def falls_back():
        assert chosen(harness, router) == workers[1].url  # by its own memory
        return metric(router, "continuum_cache_fallback_active") == 1

    eventually(falls_back)
    fake.replies["ZREVRANGEBYSCORE"] = b"*0\r\n"
    eventually(lambda: metric(router, "continuum_cache_fallback_active") == 0)
    assert chosen(harness, router) == workers[1].url


def test_a_reply_that_comes_late_serves_later_requests(harness, fake, workers):
    held = []

    def hold(connection, words):
        held.append((connection, words[1]))

    fake.replies["ZREVRANGEBYSCORE"] = hold
    router = share(harness, workers, fake, [], kv_lookup_timeout_ms=1)
    wait_until_used(router)
    name = name_of(workers[1]).encode()
    found = b"*2\r\n$%d\r\n%s\r\n$4\r\n4096\r\n" % (len(name), name)

    def served():
        holder = chosen(harness, router)
        while held:  # when the request is over, and as many as have come by now
            connection, key = held.pop(0)
            connection.sendall(found if key == HOT else b"*0\r\n")
        kv_aware = stats(harness, router)["routing_decisions"]["kv_aware"]
        return holder == workers[1].url and kv_aware > 0

    eventually(served)


def test_a_redis_that_dies_and_returns_gets_what_was_told_meanwhile(harness, redis, servers, workers):
    told = share(harness, workers, redis, [workers[1]])
    other = share(harness, workers, redis, [])
    for router in (told, other):
        wait_until_used(router)
    servers[1].wait_connected()
    redis.kill()
    for router in (told, other):
        eventually(lambda router=router: metric(router, "continuum_cache_fallback_active") == 1)
    servers[1].send(event("created", PREFIX, 4096))
    wait_for_index(harness, told, entry_count=1)
    assert chosen(harness, told) == workers[1].url
    assert chat(harness, other).status == 200
    assert redis.start()
    for router in (told, other):
        wait_until_used(router)
        assert metric(router, "continuum_cache_fallback_active") == 0
    eventually(lambda: redis.call("EXISTS", HOT) == 1)
    eventually(lambda: chosen(harness, other) == workers[1].url)
    assert metric(told, "vllm_router_redis_dropped_writes_total") == 0


def test_a_removal_reaches_a_redis_that_was_away(harness, redis, servers, workers):
    """It was dropped, and since an eviction is told once, its worker was believed for a TTL."""
    router = share(harness, workers, redis, workers, redis_command_timeout_ms=100)
    wait_until_used(router)
    servers[1].wait_connected()
    servers[1].send(event("created", PREFIX, 4096))
    eventually(lambda: redis.call("EXISTS", HOT) == 1)
    redis.pause()
    eventually(
        lambda: chat(harness, router).status == 200 and metric(router, "continuum_cache_fallback_active") == 1
    )
    servers[1].send(event("evicted", PREFIX))
    wait_for_index(harness, router, entry_count=0)
    redis.resume()
    eventually(lambda: redis.call("EXISTS", HOT) == 0)


def test_metrics_of_redis(harness, redis, servers, workers):
    router = share(harness, workers, redis, [workers[0]])
    wait_until_used(router)
    servers[0].wait_connected()
    servers[0].send(event("created", PREFIX))
    eventually(lambda: redis.call("EXISTS", HOT) == 1)
    eventually(lambda: "continuum_cache_redis_latency_seconds_count 1" in router.server.metrics_text())
    for kind in ("connection", "timeout", "other"):
        assert metric(router, "continuum_cache_redis_errors_total", type=kind) == 0
    assert metric(router, "continuum_cache_redis_connections_active") == 0


def test_without_redis_there_are_no_metrics_of_it(harness, workers):
    assert "continuum_cache" not in open_router(harness, *workers).server.metrics_text()


def test_a_router_that_starts_without_redis_serves(harness, fake, workers):
    fake.close()
    router = share(harness, workers, fake, [])
    assert chat(harness, router).status == 200
    eventually(lambda: metric(router, "continuum_cache_fallback_active") == 1)
