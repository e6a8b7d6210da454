"""cpp/proxy/peer_sync/peer_outages.h: an outage counts until the others are heard again."""

import pytest

from tests.fakes.wire import eventually
from tests.proxy.test_peer_sync import metric, open_router
from tests.unit.proxy.peer_sync.test_peer_sync_service import wait_until_up


@pytest.fixture
def workers(harness):
    return [harness.worker(), harness.worker()]


def test_an_outage_counts_while_it_lasts_and_no_longer(harness, redis, workers):
    router = open_router(harness, workers, redis)
    wait_until_up(harness, router)
    before = metric(router, "peer_sync_outage_seconds_total")
    redis.pause()
    wait_until_up(harness, router, up=False)
    eventually(lambda: metric(router, "peer_sync_outage_seconds_total") > before + 1)
    redis.resume()
    wait_until_up(harness, router)
    total = metric(router, "peer_sync_outage_seconds_total")
    assert total > before + 1
    frames = metric(router, "peer_sync_frames_sent_total")
    eventually(lambda: metric(router, "peer_sync_frames_sent_total") > frames + 2)
    assert metric(router, "peer_sync_outage_seconds_total") == total
