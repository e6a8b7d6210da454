"""cpp/proxy/exchange/upstream_request.h: one attempt, from the lease to the response's head."""

from tests.fakes.wire import request, response


def test_an_attempt_is_lease_send_await(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    assert client.ask("POST", "/x", body=b"hello").status == 200
    assert worker.requests[0].body == b"hello"


def test_a_response_may_come_before_the_request_was_sent_to_its_end(harness):
    def early(connection):
        connection.read_request_head()
        connection.send(response(413, b"too much"))
        connection.ending()

    worker = harness.worker(script=early, receive_buffer=8192)
    client = harness.client(harness.router(worker, policy="consistent_hash"))
    rejected = client.ask("POST", "/x", body=bytes(8_000_000))
    assert (rejected.status, rejected.body) == (413, b"too much")


def test_the_connection_serves_the_next_request_if_both_sides_stopped_at_the_end(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    for _ in range(3):
        client.ask()
    assert len(worker.connections) == 1


def test_a_client_that_disconnects_ends_the_attempt(harness):
    worker = harness.worker(lambda connection, _: connection.ending())
    router = harness.router(worker)
    client = harness.client(router)
    client.send(request("POST", "/x", body=b"{}"))
    worker.wait_for_requests(1)
    client.close()
    assert worker.connections[0].wait_ended() in ("eof", "reset")
    router.wait_for_load(0)
