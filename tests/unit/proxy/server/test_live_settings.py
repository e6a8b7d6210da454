"""cpp/proxy/server/live_settings.h: a change is in force as a whole, or not at all."""

import pytest

from tests.fakes.wire import eventually
from vllm_router import _core_testing as testing


def change(router, settings, workers, *, dry_run=False):
    rest = {"discovery_guard": 0.5, "discovery_hold_secs": 300, "dry_run": dry_run}
    return router.server.apply({"health_check_interval_secs": 0, **settings}, workers, **rest)


def test_workers_and_settings_change_together(harness):
    first, second = harness.worker(), harness.worker()
    router = harness.router(first)
    joins = [first.url, second.url]
    assert change(router, {"request_timeout_secs": 17}, joins, dry_run=True)[0] == [second.url]
    assert [worker.url for worker in router.core.workers] == [first.url]
    assert change(router, {"request_timeout_secs": 17}, joins)[0] == [second.url]
    eventually(lambda: {worker.url for worker in router.core.workers} == set(joins))
    assert testing.settings(router.server)["request_timeout_secs"] == 17


def test_a_change_that_cannot_be_made_changes_nothing(harness):
    first, second = harness.worker(), harness.worker()
    router = harness.router(first)
    before = testing.settings(router.server)
    with pytest.raises(ValueError, match="health_check_interval_secs cannot become 0, or another value"):
        change(router, {"health_check_interval_secs": 5, "request_timeout_secs": 17}, [first.url, second.url])
    assert testing.settings(router.server) == before
    assert [worker.url for worker in router.core.workers] == [first.url]
