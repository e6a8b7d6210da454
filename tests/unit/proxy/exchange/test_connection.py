"""cpp/proxy/exchange/connection.h: the life of one client's connection around its exchanges."""

from tests.fakes.wire import anonymous_memory, descriptors, eventually, request

LINGER = 256 * 1024


def test_requests_follow_each_other_until_somebody_wants_to_close(harness):
    client = harness.client(harness.router(harness.worker()))
    for _ in range(10):
        assert client.ask().get("connection") is None
    assert client.ask("GET", "/x", ("Connection", "close")).get("connection") == "close"
    client.must_be_closed()


def test_after_an_early_answer_some_of_what_still_comes_is_discarded(harness):
    client = harness.client(harness.router())
    client.send(b"rubbish\r\n\r\n")
    assert client.read_response().status == 400
    assert client.read_some() == b""  # it has said all it had to say
    client.send(bytes(LINGER // 2))
    client.wait_until_read()


def test_a_client_that_never_stops_sending_is_cut_off(harness):
    client = harness.client(harness.router())
    client.send(b"rubbish\r\n\r\n")
    assert client.read_response().status == 400

    def cut_off():
        try:
            client.send(bytes(LINGER))
        except ConnectionError:
            return True
        return False

    eventually(cut_off)


def test_a_lingering_connection_ends_by_itself(harness):
    router = harness.router()
    before = len(descriptors())
    client = harness.client(router)
    client.send(b"rubbish\r\n\r\n")
    assert client.read_response().status == 400
    eventually(lambda: len(descriptors()) == before + 1)  # our end; the router's is gone within two seconds


def test_resting_connections_are_small(harness):
    count = 1000
    router = harness.router(harness.worker())
    clients = [harness.client(router) for _ in range(count)]
    for client in clients:
        client.ask()
    harness.client(router).ask()
    before = anonymous_memory()
    more = [harness.client(router) for _ in range(count)]
    for client in more:
        client.ask()
        client.received.clear()
    # Of which most is what Python keeps of each client.
    assert anonymous_memory() - before < count * 12 * 1024


def test_a_request_that_ends_exactly_at_the_buffer_is_no_trouble(harness):
    client = harness.client(harness.router(harness.worker()))
    plain = len(request("GET", "/x", ("X-Fill", "")))
    for size in (4095, 4096, 4097, 8191, 8192, 8193):
        whole = request("GET", "/x", ("X-Fill", "x" * (size - plain)))
        assert len(whole) == size
        client.send(whole + request("GET", "/liveness"))
        assert client.read_response().body == b"hello"
        assert client.read_response().body == b"OK"
