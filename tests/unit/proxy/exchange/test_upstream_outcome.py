"""cpp/proxy/exchange/upstream_outcome.h: what an attempt reports; tests/proxy/ has what follows from it."""

from tests.fakes.wire import response


def test_an_attempt_counts_once_at_its_workers_breaker(harness):
    failing = harness.worker(lambda connection, _: connection.send(response(500, b"")))
    router = harness.router(failing, harness.worker(), disable_circuit_breaker=False, cb_failure_threshold=3)
    client = harness.client(router)
    statuses = [client.ask("POST", "/x").status for _ in range(12)]
    assert (len(failing.requests), statuses.count(500)) == (3, 3)


def test_a_worker_that_says_when_to_retry_is_in_back_off(harness):
    def busy(connection, _message):
        connection.send(response(429, b"", ("Retry-After", "60")))

    workers = [harness.worker(busy), harness.worker()]
    client = harness.client(harness.router(*workers))
    while client.ask("POST", "/x").status != 429:
        pass
    before = len(workers[0].requests)
    for _ in range(4):
        assert client.ask("POST", "/x").status == 200
    assert len(workers[0].requests) == before
