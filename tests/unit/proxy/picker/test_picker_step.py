"""cpp/proxy/picker/picker_step.cc: a router that picks alone proxies nothing; its own endpoints go on."""

import json

from tests.fakes.data_plane import head


def test_requests_for_workers_are_rejected_and_the_routers_own_go_on(harness, data_plane):
    worker = harness.worker()
    router = harness.router(worker, epp_port=0, epp_only=True)
    client = harness.client(router)
    rejected = client.ask("POST", "/v1/completions", body=b"{}")
    assert (rejected.status, json.loads(rejected.body)["error"]["code"]) == (404, "path_not_passed")
    assert client.ask("GET", "/health").status == 200
    assert data_plane(router).pick(head()) == worker.authority
    assert worker.posts == []


def test_requests_for_workers_take_nothing_of_the_rate_limit(harness):
    router = harness.router(harness.worker(), epp_port=0, epp_only=True, rate_limit_tokens_per_second=1)
    client = harness.client(router)
    assert [client.ask("POST", "/v1/completions", body=b"{}").status for _ in range(9)] == [404] * 9
    assert client.ask("GET", "/v1/models").status != 429


def test_beside_a_picker_requests_are_proxied(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker, epp_port=0))
    assert client.ask("POST", "/v1/completions", body=b"{}").status == 200
