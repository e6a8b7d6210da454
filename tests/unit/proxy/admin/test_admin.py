"""cpp/proxy/admin/admin.h: what all endpoints share; tests/proxy/test_own_endpoints.py has what each says."""

import json

import pytest


@pytest.mark.parametrize(
    "path", ["/workers", "/list_workers", "/liveness", "/health", "/readiness", "/v1/models"]
)
def test_head_says_what_get_would(harness, path):
    client = harness.client(harness.router())
    get, head = client.ask("GET", path), client.ask("HEAD", path)
    assert head.status == get.status
    assert head.get("content-length") == get.get("content-length")
    assert head.get("content-type") == get.get("content-type")


def test_a_body_is_ignored_where_none_is_needed(harness):
    client = harness.client(harness.router())
    assert client.ask("GET", "/liveness", body=b"x" * 1000).body == b"OK"
    assert client.ask("GET", "/liveness").body == b"OK"


def test_errors_name_no_more_than_they_were_given(harness):
    worker = harness.worker()
    router = harness.router(worker)
    message = json.loads(harness.client(router).ask("GET", "/workers/http%3A%2F%2Fnobody").body)["error"]
    assert worker.url not in message
