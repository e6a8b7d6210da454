"""cpp/proxy/exchange/client_watch.h: what a client does while its request is under way."""

from tests.fakes.harness import Streaming
from tests.fakes.wire import request, response


def whole(connection, message):
    connection.send(response(200, message.target.encode()))


def test_what_a_client_sends_meanwhile_is_its_next_request(harness):
    worker = harness.worker(lambda connection, message: (gate.wait(), whole(connection, message)))
    gate = worker.gate()
    client = harness.client(harness.router(worker))
    client.send(request("GET", "/first"))
    worker.wait_for_requests(1)
    client.send(request("GET", "/second"), request("GET", "/health"))
    gate.open()
    assert [client.read_response().body for _ in range(2)] == [b"/first", b"/second"]
    assert client.read_response().status == 200


def test_a_client_that_leaves_ends_what_is_awaited_for_it(harness):
    worker = Streaming(harness)
    router = harness.router(worker.worker)
    client = harness.client(router)
    client.send(request("POST", "/v1/completions", body=b'{"stream": true}'))
    client.read_head()
    client.close()
    router.wait_for_load(0)
