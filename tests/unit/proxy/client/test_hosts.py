"""cpp/proxy/client/hosts.h: each host is asked once, and so many at a time."""

from tests.fakes.wire import request, response


def test_no_more_than_64_are_asked_at_a_time_and_each_once(harness):
    def late(connection, _message):
        gate.wait()
        connection.send(response(200, b"{}"))

    worker = harness.worker(late)
    gate = worker.gate()
    router = harness.router(*[f"{worker.url}/{number}" for number in range(70)])  # hosts by path
    client = harness.client(router)
    client.send(request("POST", "/flush_cache", body=b""))
    worker.wait_for_requests(64)
    gate.open()
    assert client.read_response().status == 200
    assert len({message.target for message in worker.requests}) == 70
    assert len(worker.requests) == 70
