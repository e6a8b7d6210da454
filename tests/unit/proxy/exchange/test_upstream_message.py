"""cpp/proxy/exchange/upstream_message.h: what is sent, and whether it can be sent once more."""

import pytest


@pytest.mark.parametrize(("size", "again"), [(10, True), (3_000_000, False)], ids=["held", "streamed"])
def test_a_body_that_is_gone_is_not_sent_to_a_second_worker(harness, size, again):
    def reset(connection, _message):
        connection.reset()

    failing, serving = harness.worker(reset), harness.worker()
    on = {"disable_retries": False, "retry_initial_backoff_ms": 1}
    client = harness.client(harness.router(failing, serving, **on))
    status = 200
    while not failing.requests:
        status = client.ask("POST", "/v1/completions", body=bytes(size)).status
    assert status == (200 if again else 502)
    assert all(len(message.body) == size for message in serving.requests)
