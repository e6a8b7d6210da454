"""cpp/proxy/events/prefix_index_endpoints.h: without an index each endpoint says so."""

import json


def test_an_index_that_is_off_has_no_figures_and_cannot_be_cleared(harness):
    client = harness.client(harness.router(harness.worker()))
    for page in ("stats", "backends"):
        assert json.loads(client.ask("GET", f"/admin/kv-index/{page}").body) == {"enabled": False}
    assert client.ask("POST", "/admin/kv-index/clear").status == 409
