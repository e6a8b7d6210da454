"""cpp/proxy/exchange/body_upload.h: how long the router waits for a client that sends a body."""

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import request

STREAMED = 3_000_000  # bytes: more than is held for round_robin


@pytest.mark.parametrize("size", [100, STREAMED], ids=["held", "streamed"])
def test_a_client_that_sends_nothing_more_is_waited_for_no_longer_than_it_may(harness, size):
    worker = harness.worker()
    client = harness.client(harness.router(worker, client_body_timeout_secs=0.1))
    client.send(request("POST", "/x", ("Content-Length", str(size))) + bytes(size - 1))
    got = client.read_response()
    assert (got.status, error_of(got)["code"]) == (408, "body_timeout")
    client.must_be_closed()
    assert worker.requests == []


def test_a_client_that_leaves_amid_its_upload_ends_the_wait_and_the_attempt(harness):
    worker = harness.worker()
    router = harness.router(worker)
    client = harness.client(router)
    client.send(request("POST", "/x", ("Content-Length", str(STREAMED))) + bytes(STREAMED - 1))
    (connection,) = worker.wait_for_connections(1)
    client.close()
    assert connection.wait_ended() in ("eof", "reset")
    router.wait_for_load(0)
