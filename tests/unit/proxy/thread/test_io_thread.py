"""cpp/proxy/thread/io_thread.h: what belongs to one thread is used by that thread only."""

from tests.fakes.wire import request, response


def test_each_thread_has_connections_of_its_own_to_a_worker(harness):
    worker = harness.worker()
    router = harness.router(worker, threads=3)
    clients = [harness.client(router) for _ in range(60)]
    for _ in range(3):
        for client in clients:
            client.ask()
    assert 2 <= len(worker.connections) <= 3


def test_more_exchanges_at_once_than_parsers_are_spared(harness):
    count = 200  # 64 parsers are kept

    def answer(connection, message):
        if len(worker.requests) <= count:
            gate.wait()
        connection.send(response(200, message.target.encode()))

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker)
    clients = [harness.client(router) for _ in range(count)]
    for number, client in enumerate(clients):
        client.send(request("GET", f"/{number}"))
    worker.wait_for_requests(count)
    gate.open()
    for number, client in enumerate(clients):
        assert client.read_response().body == b"/%d" % number
    for client in clients:
        assert client.ask("GET", "/again").body == b"/again"
