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
