"""cpp/proxy/exchange/step.h: a body is read as far as the neediest step wants it."""

from tests.fakes.wire import request, response

LONG = b'{"model": "m", "prompt": "' + b"x" * 200_000 + b'"}'


def whole(connection, _message):
    connection.send(response(200, b"{}"))


def test_the_neediest_step_decides_how_much_of_a_body_is_read(harness):
    """round_robin needs none of it; consistent_hash needs all, and then sends it on."""
    for policy in ("round_robin", "consistent_hash"):
        worker = harness.worker(whole)
        client = harness.client(harness.router(worker, policy=policy))
        half = len(LONG) // 2
        head = request("POST", "/v1/completions", ("Content-Length", str(len(LONG))))
        client.send(head, LONG[:half])
        if policy == "round_robin":
            worker.wait_for_connections(1)
        else:
            client.wait_until_read()
            assert not worker.connections
        client.send(LONG[half:])
        assert client.read_response().status == 200
        assert worker.requests[0].body == LONG
