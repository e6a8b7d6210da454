"""cpp/proxy/exchange/relay.h. Framings, pieces and broken streams are in tests/proxy/test_responses.py."""

from tests.fakes.wire import chunk, chunked, request

HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_an_answer_that_is_there_at_once_is_one_write(harness):
    worker = harness.worker(lambda connection, _: connection.send(HEAD + chunked(b"hello", b" ", b"world")))
    client = harness.client(harness.router(worker))
    client.send(request())
    client.wait_until_received(1)
    first = client.read_some()
    assert first.endswith(b"\r\n\r\nb\r\nhello world\r\n0\r\n\r\n")


def test_small_events_are_passed_on_singly_and_floods_in_chunks_of_up_to_64_kib(harness):
    def stream(connection, _message):
        connection.send(HEAD)
        gate.wait()
        connection.send(chunk(b"small"))
        gate2.wait()
        connection.send(chunked(b"x" * 5_000_000))

    worker = harness.worker(stream)
    gate, gate2 = worker.gate(), worker.gate()
    client = harness.client(harness.router(worker))
    client.send(request())
    client.read_head()
    gate.open()
    assert client.read_chunk() == b"small"
    gate2.open()
    sizes = []
    while data := client.read_chunk():
        sizes.append(len(data))
    assert sum(sizes) == 5_000_000
    assert sizes[0] <= 4096
    assert 16_384 < max(sizes) <= 65_536


def test_an_empty_chunked_answer_is_an_empty_chunked_answer(harness):
    worker = harness.worker(lambda connection, _: connection.send(HEAD, chunked()))
    client = harness.client(harness.router(worker))
    for _ in range(3):
        answer = client.ask()
        assert (answer.framing, answer.raw_body) == ("chunked", b"0\r\n\r\n")
