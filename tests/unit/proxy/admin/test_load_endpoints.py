"""cpp/proxy/admin/load_endpoints.h: loads are those that workers report."""

import json


def test_a_worker_that_reports_no_load_has_minus_one(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    assert json.loads(client.ask("GET", "/get_loads").body) == {
        "workers": [{"worker": worker.url, "load": -1}]
    }
