"""cpp/proxy/thread/slow_uploads.h: how many are cut; the rest is in tests/proxy/test_slow_uploads.py."""

from tests.fakes.wire import eventually, request
from tests.proxy.test_long_bodies import POSTS, metric
from tests.proxy.test_slow_uploads import MIB, drip


def test_no_more_are_cut_than_wait(harness):
    worker = harness.worker()
    router = harness.router(worker, max_concurrent_requests=4, threads=2)
    slow = [drip(harness, router, 2 * MIB, 66_000) for _ in range(4)]
    eventually(lambda: metric(router, "concurrent_requests") == 4)
    waiting = [harness.client(router) for _ in range(2)]
    for client in waiting:
        client.send(request("POST", POSTS, body=b"{}"))
    for client in waiting:
        assert client.read_response().status == 200
    cut = metric(router, 'admission_rejected_total{reason="body_too_slow"}')
    assert 1 <= cut <= 2
    left = [client for client in slow if not client.readable(0)]
    assert len(left) == 4 - cut
    for client in left:
        client.send(b"x" * (2 * MIB - 66_000))
        assert client.read_response().status == 200
