"""cpp/proxy/peer_sync/peer_snapshots.h: a router that starts knows what was, and never waits long for it.

Permissions are in test_peer_sync_service.py; that a router that stops leaves one is in
tests/proxy/test_peer_sync.py.
"""

import pytest

from tests.fakes.redis_server import FakeRedis
from tests.fakes.wire import eventually
from tests.proxy.test_peer_sync import chosen, metric, open_router, status
from tests.unit.proxy.peer_sync.test_peer_rounds import open_fake, wait_until_up


@pytest.fixture
def workers(harness):
    return [harness.worker(), harness.worker()]


def test_a_snapshot_that_does_not_come_keeps_no_router_out(harness, workers):
    with FakeRedis() as fake:
        open_fake(fake, GET=None)
        router = open_router(harness, workers, fake)
        fake.wait_for("GET")
        wait_until_up(harness, router)
        told = len(fake.wait_for("XADD"))
        fake.wait_for("XADD", told + 10)
        snapshots = [words for words in fake.commands if words[0] == "GET" and ":snap:" in words[1]]
        assert len(snapshots) == 1
        assert metric(router, "peer_sync_rounds_total", result="error") == 0
        router.shutdown()
        router.must_end()
        fake.wait_for("ZREM")
        # It knows less than the one that wrote the snapshot, which it has not read.
        assert not [words for words in fake.commands if words[0] == "SET"]


def test_what_a_router_says_last_waits_for_no_snapshot(harness, workers):
    with FakeRedis() as fake:
        open_fake(fake, SET=None)
        router = open_router(harness, workers, fake)
        wait_until_up(harness, router)
        router.shutdown()
        router.must_end()
        fake.wait_for("SET")
        fake.wait_for("ZREM")


def test_a_router_that_started_without_redis_reads_the_snapshot_once_it_is_there(harness, redis, workers):
    first = open_router(harness, workers, redis)
    wait_until_up(harness, first)
    chosen(harness, first)
    first.shutdown()
    first.must_end()
    redis.pause()
    router = open_router(harness, workers, redis)
    eventually(lambda: status(harness, router)["redis"]["trouble"] != "")
    redis.resume()
    eventually(lambda: metric(router, "peer_sync_snapshots_total", direction="read") == 1)
