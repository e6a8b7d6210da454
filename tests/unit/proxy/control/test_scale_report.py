"""cpp/proxy/control/scale_report.h: one value, which the metrics and GET /scale both show."""

from tests.fakes.harness import Streaming
from tests.fakes.wire import request
from tests.unit.proxy.control.test_scale_service import metric, wait_for


def test_the_metrics_and_the_endpoint_say_the_same(harness):
    streaming = Streaming(harness)
    router = harness.router(streaming, routing={"max_worker_requests": 2})
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=b"{}"))
    said = wait_for(harness, router, stale=False, ready=1)
    assert metric(router, "desired_replicas") == said["desired_replicas"] == 1
    assert metric(router, "stale") == said["stale"] == 0
    assert metric(router, "queued_fleet") == said["queued"]
    streaming.gate.open()
    assert client.read_response().status == 200
