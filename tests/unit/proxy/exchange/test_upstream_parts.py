"""cpp/proxy/exchange/upstream_parts.h:
what workers are told of the client, whichever way a request goes to them.
"""

import pytest

from tests.fakes.wire import response


@pytest.mark.parametrize("target", ["/v1/completions", "/flush_cache", "/v1/responses/resp_1"])
def test_all_requests_say_the_same_of_their_client(harness, target):
    """To one worker, to all of them, and in search of a stored response."""
    workers = [harness.worker(lambda connection, _: connection.send(response(200, b"{}"))) for _ in range(2)]
    router = harness.router(*workers)
    fields = [("X-Request-ID", "mine"), ("X-Forwarded-For", "192.0.2.1"), ("Authorization", "Bearer own")]
    assert harness.client(router).ask("POST", target, *fields, body=b"").status == 200
    (message, *_) = [message for worker in workers for message in worker.requests]
    assert message.get("x-request-id") == "mine"
    assert message.get("x-forwarded-for") == "192.0.2.1, 127.0.0.1"
    assert message.get("x-forwarded-proto") == "http"
    assert message.get("authorization") == "Bearer own"
    assert message.get("via").startswith("1.1 vllm-router-")
