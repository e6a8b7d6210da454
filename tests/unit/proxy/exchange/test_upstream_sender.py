"""cpp/proxy/exchange/upstream_sender.h: a request that its worker does not take at once."""

from tests.fakes.wire import chunk, chunked, request, response


def test_a_response_may_come_before_the_request_was_sent_to_its_end(harness):
    def early(connection):
        connection.read_request_head()
        connection.send(response(413, b"too much"))
        connection.ending()

    worker = harness.worker(script=early, receive_buffer=8192)
    client = harness.client(harness.router(worker, policy="consistent_hash"))
    rejected = client.ask("POST", "/x", body=bytes(8_000_000))
    assert (rejected.status, rejected.body) == (413, b"too much")


def test_a_chunked_body_is_sent_on_while_it_arrives(harness):
    pieces = [b"a" * 100_000, b"b" * 1_000_000, b"c"]
    worker = harness.worker(receive_buffer=8192)
    client = harness.client(harness.router(worker))
    client.send(
        request("POST", "/x", ("Transfer-Encoding", "chunked")), chunk(pieces[0]), chunked(*pieces[1:])
    )
    assert client.read_response().status == 200
    assert worker.requests[0].body == b"".join(pieces)
