"""cpp/proxy/admin/health_endpoints.h: probes of a router that has no worker yet."""

import json


def test_a_router_without_workers_is_alive_and_not_ready(harness):
    client = harness.client(harness.router())
    assert (client.ask("GET", "/").status, client.ask("GET", "/liveness").body) == (200, b"OK")
    ready = client.ask("GET", "/readiness")
    assert (ready.status, json.loads(ready.body)["total_workers"]) == (503, 0)


def test_options_of_the_server_has_an_empty_response(harness):
    answer = harness.client(harness.router()).ask("OPTIONS", "*")
    assert (answer.status, answer.body) == (200, b"")
