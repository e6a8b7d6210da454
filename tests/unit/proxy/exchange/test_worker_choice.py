"""cpp/proxy/exchange/worker_choice.h: who gets the next attempt. Breakers and panic are in tests/proxy/."""

import json

import pytest

from tests.fakes.wire import response

ON = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 5}


def test_attempted_workers_are_left_out_while_there_are_others(harness):
    def busy(connection, _message):
        connection.send(response(503, b"busy"))

    workers = [harness.worker(busy) for _ in range(3)]
    router = harness.router(*workers, policy="consistent_hash", retry_max_retries=3, **ON)
    harness.client(router).ask("POST", "/v1/completions", body=b"{}")
    assert [len(worker.requests) for worker in workers] == [1, 1, 1]


@pytest.mark.parametrize(("path", "stage"), [("/v1/embeddings", 0), ("/v1/completions", 1)])
def test_a_stage_has_only_its_workers(harness, path, stage):
    stages = [[harness.worker() for _ in range(2)] for _ in range(2)]
    routing = dict(
        zip(("prefill_urls", "decode_urls"), ([one.url for one in of] for of in stages), strict=True)
    )
    client = harness.client(harness.router(routing=routing))
    body = json.dumps({"prompt": ["one", "two"]}).encode()  # local, where the path generates
    for _ in range(4):
        assert client.ask("POST", path, body=body).body == b"hello"
    assert [len(worker.requests) for worker in stages[stage]] == [2, 2]
    assert [len(worker.requests) for worker in stages[1 - stage]] == [0, 0]
