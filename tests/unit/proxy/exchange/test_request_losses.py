"""cpp/proxy/exchange/request_losses.h: what the quarantine is told. Attacks: tests/proxy/test_poison.py."""

import json

import pytest


@pytest.mark.parametrize("stages", [False, True])
def test_a_request_that_was_in_flight_at_two_lost_workers_reaches_no_third(harness, stages):
    def reset(connection, _message):
        connection.reset()

    workers = [harness.worker(reset) for _ in range(4)]
    routing = {"prefill_urls": [one.url for one in workers], "decode_urls": [harness.worker().url]}
    options = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 5}
    router = harness.router(*([] if stages else workers), routing=routing if stages else {}, **options)
    body = json.dumps({"prompt": "poison"}).encode()
    client = harness.client(router)
    assert client.ask("POST", "/v1/completions", body=body).status == 502
    assert sum(len(worker.requests) for worker in workers) == 2
