"""cpp/proxy/exchange/upstream_request.h: one attempt, from the lease to the response's head."""

from tests.fakes.wire import request


def test_an_attempt_is_lease_send_await(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    assert client.ask("POST", "/x", body=b"hello").status == 200
    assert worker.requests[0].body == b"hello"


def test_a_client_that_disconnects_ends_the_attempt(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(worker)
    client = harness.client(router)
    client.send(request("POST", "/x", body=b"{}"))
    worker.wait_for_requests(1)
    client.close()
    assert worker.connections[0].wait_ended() in ("eof", "reset")
    router.wait_for_load(0)
