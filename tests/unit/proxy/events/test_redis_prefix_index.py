"""cpp/proxy/events/redis_prefix_index.h: what it sends.

What it does for requests is in tests/proxy/test_redis_index.py.
"""

import json

import pytest

from tests.fakes.redis_server import FakeRedis
from tests.fakes.sse_kv_server import PREFIX, SseKvServer, event, open_router, prefix, wait_for_index
from tests.fakes.wire import eventually

BODY = {
    "model": "llama-3",
    "messages": [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "a"},
    ],
}


@pytest.fixture
def fake():
    with FakeRedis() as redis:
        redis.replies["ZREVRANGEBYSCORE"] = b"*0\r\n"
        redis.replies["EXEC"] = b"*3\r\n:1\r\n:1\r\n:0\r\n"
        yield redis


@pytest.fixture
def source():
    return SseKvServer()


def share(harness, fake, source, **options):
    router = open_router(
        harness,
        harness.worker(source),
        policy="kv_overlap",
        kv_index_backend="redis",
        redis_url=fake.url,
        **options,
    )
    source.wait_connected()
    fake.wait_for("PING", 9)
    eventually(lambda: "continuum_cache_redis_connections_idle 9" in router.server.metrics_text())
    return router


def test_an_entry_is_written_in_one_transaction(harness, fake, source):
    share(harness, fake, source)
    source.send(event("created", PREFIX, 2048))
    fake.wait_for("EXEC")
    begun = fake.commands.index(["MULTI"])
    assert fake.commands[begun : begun + 5] == [
        ["MULTI"],
        ["ZADD", f"cr:kvidx:{PREFIX}", "2048", "vllm-1"],
        ["EXPIRE", f"cr:kvidx:{PREFIX}", "600"],
        ["ZREM", f"cr:kvidx:w:{PREFIX}", "vllm-1"],
        ["EXEC"],
    ]
    source.send(event("evicted", PREFIX))
    assert fake.wait_for("ZREM", 3)[1:] == [
        ["ZREM", f"cr:kvidx:{PREFIX}", "vllm-1"],
        ["ZREM", f"cr:kvidx:w:{PREFIX}", "vllm-1"],
    ]


def test_what_cannot_be_used_is_not_written(harness, fake, source):
    router = share(harness, fake, source)
    source.send(event("moved", PREFIX), event("created", "12"), event("purged"))
    wait_for_index(harness, router, received=3, index_evicted=1)
    assert not {"MULTI", "ZADD", "ZREM"} & {words[0] for words in fake.commands}


def test_a_purge_leaves_what_came_back_meanwhile(harness, fake, source):
    router = share(harness, fake, source)
    source.send(b"".join(event("created", prefix(n)) for n in range(600)))
    wait_for_index(harness, router, entry_count=600)
    fake.wait_for("EXEC", 600)
    fake.replies["ZREM"] = None  # the first 500 take a while
    source.send(event("purged"))
    fake.wait_for("ZREM", 600 + 1000)
    first = {words[1] for words in fake.commands if words[0] == "ZREM"}
    back = next(n for n in range(600) if f"cr:kvidx:{prefix(n)}" not in first)
    assert len([n for n in range(600) if f"cr:kvidx:{prefix(n)}" in first]) == 500
    source.send(event("created", prefix(back)))
    wait_for_index(harness, router, entry_count=1)
    fake.wait_for("MULTI", 601)
    fake.replies["ZREM"] = b":1\r\n"
    for connection in fake.connections:
        # The connection of the writer has 1,000 replies to come, others none: they would be closed for one.
        if connection.getpeername() == fake.writer:
            connection.sendall(b":1\r\n" * 1000)
    fake.wait_for("ZREM", 600 + 1000 + 1 + 198)
    removed = [words[1] for words in fake.commands if words[0] == "ZREM"]
    assert f"cr:kvidx:{prefix(back)}" not in removed


def test_a_request_of_which_the_policy_reads_no_prefix_waits_for_nothing(harness, fake, source):
    router = share(harness, fake, source)
    client = harness.client(router)
    client.ask("GET", "/v1/models")
    assert client.ask("POST", "/v1/chat/completions", body=b"{}").status == 200
    assert client.ask("POST", "/v1/chat/completions", body=json.dumps(BODY).encode()).status == 200
    assert len(fake.wait_for("ZREVRANGEBYSCORE", 2)) == 2


def test_a_policy_that_reads_no_index_opens_no_redis(harness, fake, source, capfd):
    router = harness.router(
        harness.worker(source), policy="prefix_aware", kv_index_backend="redis", redis_url=fake.url
    )
    assert (
        harness.client(router).ask("POST", "/v1/chat/completions", body=json.dumps(BODY).encode()).status
        == 200
    )
    assert fake.connections == []
    assert "--kv-index-backend redis has no effect without a prefix index" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"redis_url": ""}, "kv_index_backend is redis and redis_url is missing"),
        ({"redis_url": "redis://u:SECRET@h:x"}, "redis_url has a port that is no whole number"),
        ({"redis_url": "redis://u@h"}, "redis_url has a user and no password; set redis_password_file"),
        ({"redis_password_file": "/no/such"}, "^redis_password_file: .*/no/such"),
        ({"redis_url": "rediss://h", "redis_ca_file": "/no/such"}, "^redis_ca_file: .*/no/such"),
    ],
)
def test_settings_that_cannot_be_used_end_the_start(harness, fake, source, options, sentence):
    settings = {"kv_index_backend": "redis", "redis_url": fake.url, **options}
    with pytest.raises((OSError, ValueError), match=sentence) as rejected:
        open_router(harness, harness.worker(source), policy="kv_overlap", **settings)
    assert "SECRET" not in str(rejected.value)


def test_the_password_of_the_file_is_used(harness, fake, source, tmp_path):
    (tmp_path / "password").write_text("from the file\n")
    share(harness, fake, source, redis_password_file=str(tmp_path / "password"))
    assert fake.commands[0] == ["AUTH", "from the file"]
