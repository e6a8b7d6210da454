"""cpp/proxy/receipts/receipts_step.cc: which requests have a receipt; tests/proxy has what is in it."""

import json

from tests.fakes.wire import eventually, response


def receipts_of(client):
    return json.loads(client.ask("GET", "/admin/receipts").body)["receipts"]


def test_a_request_that_a_worker_got_has_one_and_the_routers_own_have_none(harness):
    client = harness.client(harness.router(harness.worker()))
    client.ask("GET", "/health")
    client.ask("POST", "/v1/completions", body=b"{}")
    eventually(lambda: len(receipts_of(client)) == 1)
    assert receipts_of(client)[0]["route"] == "/v1/completions"


def test_the_decision_is_that_of_the_worker_that_responded(harness):
    failing = harness.worker(lambda connection, _: connection.send(response(503, b"busy")))
    healthy = harness.worker()
    router = harness.router(
        failing, healthy, policy="round_robin", disable_retries=False, retry_initial_backoff_ms=1
    )
    client = harness.client(router)
    for _ in range(2):
        assert client.ask("POST", "/v1/completions", body=b"{}").status == 200
    eventually(lambda: len(receipts_of(client)) == 2)
    assert {receipt["worker"] for receipt in receipts_of(client)} == {healthy.url}
    # A retry takes a turn, so the next request begins at the same worker.
    assert [receipt["attempts"] for receipt in receipts_of(client)] == [2, 2]


def test_no_request_is_explained_with_a_detail_of_0(harness):
    client = harness.client(harness.router(harness.worker(), receipt_detail_every=0))
    for _ in range(20):
        client.ask("POST", "/v1/completions", body=b"{}")
    eventually(lambda: len(receipts_of(client)) == 20)
    assert not any("candidates" in receipt for receipt in receipts_of(client))
