"""cpp/proxy/receipts/receipts_feature.cc: the two paths, their parameters and errors."""

import json

from tests.fakes.harness import error_of


def test_the_list_of_a_router_without_requests_is_empty(harness):
    got = harness.client(harness.router()).ask("GET", "/admin/receipts?last=5&model=m%20n")
    assert (got.status, json.loads(got.body)) == (
        200,
        {"receipts": [], "kept": 0, "dropped": 0, "reported_share": None},
    )


def test_a_request_id_is_percent_encoded_in_the_path(harness):
    got = harness.client(harness.router()).ask("GET", "/admin/receipts/%2")
    assert got.status == 400
    assert error_of(got)["message"].startswith(
        "the request id in the path is \"%2\"; a '%' in it must precede"
    )


def test_only_reading_is_allowed(harness):
    client = harness.client(harness.router())
    assert client.ask("POST", "/admin/receipts", body=b"{}").status == 405
    assert client.ask("DELETE", "/admin/receipts/r").status == 405
