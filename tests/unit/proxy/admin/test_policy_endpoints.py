"""cpp/proxy/admin/policy_endpoints.h: figures have the same members whatever the policy is."""

import json

from tests.fakes.harness import error_of


def test_without_prefix_routing_nothing_is_enabled_and_nothing_counted(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    stats = json.loads(client.ask("GET", "/admin/prefix-routing/stats").body)
    assert (stats["enabled"], stats["routing_decisions"]["total"]) == (False, 0)
    assert stats["backend_distribution"] == [{"backend": worker.url, "in_flight_requests": 0}]


def test_a_session_without_its_id_is_rejected(harness):
    answer = harness.client(harness.router()).ask("POST", "/finish_session", body=b"{}")
    assert "'session_id' is missing" in error_of(answer)["message"]
