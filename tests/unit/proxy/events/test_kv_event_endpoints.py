"""cpp/proxy/events/kv_event_endpoints.h: without sources there is nothing to ask for again."""

import json


def test_a_worker_without_a_source_cannot_be_resynced(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    assert client.ask("POST", f"/admin/kv-events/resync?url={worker.url}").status == 404
    report = json.loads(client.ask("GET", "/admin/kv-events").body)
    assert (report["enabled"], report["sources"], report["pushed"]) == (False, [], [])
