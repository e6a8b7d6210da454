"""cpp/proxy/exchange/arriving_response.h: what is relayed, from a connection or from what was read before."""

from tests.fakes.wire import response


def reset(connection, _message):
    connection.reset()


def busy(connection, _message):
    connection.send(response(503, b"busy", ("X-Worker", "busy")))


def test_a_response_that_was_read_before_is_relayed_as_one_that_arrives(harness):
    on = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_retries": 2}
    alone = harness.router(harness.worker(busy))
    arrived = harness.client(alone).ask("POST", "/v1/completions", body=b"{}")
    client = harness.client(harness.router(harness.worker(busy), harness.worker(reset), **on))
    kept = [client.ask("POST", "/v1/completions", body=b"{}") for _ in range(2)]
    assert [(one.status, one.body, one.get("x-worker")) for one in [arrived, *kept]] == [
        (503, b"busy", "busy")
    ] * 3


def test_the_connection_returns_to_the_pool_when_its_response_was_relayed(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    assert [client.ask().status for _ in range(3)] == [200] * 3
    assert len(worker.connections) == 1


def test_a_response_of_a_pair_that_was_read_before_is_relayed(harness):
    prefill = harness.worker(busy)
    router = harness.router(routing={"prefill_urls": [prefill.url], "decode_urls": [harness.worker().url]})
    message = harness.client(router).ask("POST", "/v1/completions", body=b'{"prompt":"hi"}')
    assert (message.status, message.body, message.get("x-worker")) == (503, b"busy", "busy")
