"""cpp/proxy/admission/tenant_topic.h: what is counted of reports, and a server without limits.

What routers make of them is in tests/proxy/test_peer_sync.py."""

from tests.fakes.wire import eventually
from tests.proxy.test_peer_sync import forged, get, metric, open_router, publish

REPORT = b"\x0a\x05\x0a\x01a\x20\x02"  # the tenant `a` has two requests open


def told(harness, redis, **options):
    """A router that was told of a tenant, in a frame with sections that it does not know."""
    workers = [harness.worker()]
    router = open_router(harness, workers, redis, **options)
    eventually(lambda: get(harness, router, "/ha/health").status == 200)
    publish(redis, forged(workers, topics=[(10, REPORT), (10, b"\xff"), (31, b"of a later version")]))
    eventually(lambda: metric(router, "peer_sync_frames_read_total", result="ok") == 1)
    return router


def reports(router):
    results = ("told", "delayed", "heard", "ignored", "no_room", "malformed")
    return [metric(router, "tenant_limit_reports_total", result=result) for result in results]


def test_reports_are_counted(harness, redis):
    router = told(harness, redis, admission_config="tenant concurrency=2 default")
    assert reports(router) == [0, 0, 1, 0, 0, 1]
    assert metric(router, "tenant_limit_parts") == 1


def test_without_limits_nothing_is_told_or_heard(harness, redis):
    router = told(harness, redis, admission_config="tenant weight=2 default")
    assert reports(router) == [0, 0, 0, 1, 0, 1]


def test_without_classes_nothing_is_read(harness, redis):
    assert reports(told(harness, redis)) == [0] * 6
