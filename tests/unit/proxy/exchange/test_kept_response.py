"""cpp/proxy/exchange/kept_response.h: a response of a failed attempt that turns out to be the best."""

import pytest

from tests.fakes.wire import response


@pytest.mark.parametrize("body", [b"", b"no", b"x" * 10_000])
def test_it_arrives_as_it_came(harness, body):
    def busy(connection, _message):
        connection.send(response(503, body, ("X-Worker", "busy")))

    def reset(connection, _message):
        connection.reset()

    router = harness.router(
        harness.worker(busy), harness.worker(reset), disable_retries=False, retry_initial_backoff_ms=1
    )
    client = harness.client(router)
    messages = [client.ask("POST", "/v1/completions", body=b"{}") for _ in range(2)]
    assert [(one.status, one.body, one.get("x-worker")) for one in messages] == [(503, body, "busy")] * 2
