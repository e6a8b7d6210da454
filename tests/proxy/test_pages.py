"""The router's own pages are rendered on a thread of their own, so that no client's requests for them keep
others from being served. Row 58."""

import json

import pytest

from tests.fakes.pages import fleet, renders
from tests.fakes.wire import request, response

PAGES = [
    "/health", "/readiness", "/list_workers", "/workers", "/admin/drain/status", "/admin/discovery",
    "/ha/status", "/ha/workers", "/scale", "/admin/config", "/admin/prefix-routing/stats",
    "/admin/index/stats", "/admin/kv-events", "/admin/kv-index/stats", "/admin/kv-index/backends",
    "/admin/response-cache/stats", "/metrics",
]  # fmt: skip


@pytest.mark.parametrize("path", PAGES)
def test_each_page_is_rendered_once_for_one_reader(harness, path):
    router = harness.router(harness.worker())
    client = harness.client(router)
    for count in (1, 2, 3):
        body = client.ask("GET", path).body
        assert body.endswith((b"}", b"\n", b"healthy"))
        assert renders(router, path) == count
    head = client.ask("HEAD", path)
    assert int(head.get("content-length")) > 0
    assert renders(router, path) == 4


def test_requests_are_served_while_others_flood_a_page_and_read_nothing(harness):
    """At 2 ms a render with 3 workers, and fifty times that with 512, nothing else came to its turn."""
    router = harness.router(*fleet(harness, 512))
    for _ in range(200):
        flooder = harness.client(router, receive_buffer=4096)
        flooder.send(request("GET", "/metrics") * 3)
    honest = harness.client(router)
    for _ in range(20):
        assert honest.ask("POST", "/v1/completions", body=b"{}").status == 200
    assert renders(router, "/metrics") < 100
    router.may_cut = True


@pytest.mark.parametrize("path", ["/health", "/metrics"])
def test_a_probe_that_has_closed_its_sending_side_gets_its_page(harness, path):
    client = harness.client(harness.router(harness.worker()))
    client.send(request("GET", path))
    client.half_close()
    assert client.read_response().status == 200


def test_a_request_to_many_workers_is_merged_to_the_last_row(harness):
    router = harness.router(*fleet(harness, 40))
    answer = harness.client(router).ask("POST", "/flush_cache")
    assert answer.status == 200
    assert len(json.loads(answer.body)["workers"]) == 40


def test_a_model_is_found_in_a_list_that_nobody_keeps(harness):
    """Each look parses the whole list, also on that thread."""

    def models(connection, _message):
        data = [{"id": f"m{number}", "object": "model"} for number in range(100)]
        connection.send(response(200, json.dumps({"data": data}).encode()))

    client = harness.client(harness.router(harness.worker(models)))
    assert json.loads(client.ask("GET", "/v1/models/m7").body)["id"] == "m7"
    assert client.ask("GET", "/v1/models/none").status == 404
    assert len(json.loads(client.ask("GET", "/v1/models").body)["data"]) == 100
