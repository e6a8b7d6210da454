"""cpp/proxy/client/cancel_scope.h: a client that leaves ends every wait for it, whatever that is."""

from tests.fakes.wire import request, response


def test_a_request_of_the_router_for_a_client_ends_with_it(harness):
    """The models of two workers, of which one never responds."""
    silent = harness.worker(lambda connection, _: connection.ending())
    other = harness.worker(lambda connection, _: connection.send(response(200, b'{"data": []}')))
    client = harness.client(harness.router(silent, other))
    client.send(request("GET", "/v1/models"))
    silent.wait_for_requests(1)
    client.close()
    assert silent.wait_for_connections(1)[0].wait_ended() == "eof"


def test_a_pause_ends_with_the_client(harness):
    """A worker that is added is looked at again and again until it is healthy."""
    sick = harness.worker(lambda connection, _: connection.send(response(503, b"")))
    router = harness.router(harness.worker())
    client = harness.client(router)
    client.send(request("POST", f"/add_worker?url={sick.url}"))
    sick.wait_for_requests(2)
    client.close()
    router.must_rest()
