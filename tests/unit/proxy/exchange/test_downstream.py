"""cpp/proxy/exchange/downstream.h: the client's side of an exchange."""

from tests.fakes.harness import error_of
from tests.fakes.wire import request


def test_a_response_to_head_has_no_body_and_the_connection_goes_on(harness):
    client = harness.client(harness.router())
    client.send(request("HEAD", "/health"))
    head = client.read_response(to="HEAD")
    assert head.body == b""
    client.send(request("POST", "/x"))
    assert error_of(client.read_response())["code"] == "no_workers"
