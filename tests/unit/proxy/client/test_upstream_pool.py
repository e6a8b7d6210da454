"""cpp/proxy/client/upstream_pool.h. Reuse and expiry are in tests/proxy/test_workers_in_trouble.py."""

from tests.fakes.wire import request, response


def test_each_worker_has_its_own_connections(harness):
    first, second = harness.worker(), harness.worker()
    client = harness.client(harness.router(first, second))
    for _ in range(6):
        client.ask()
    assert (len(first.connections), len(second.connections)) == (1, 1)
    assert (len(first.requests), len(second.requests)) == (3, 3)


def test_ranks_of_one_host_do_not_share_connections(harness):
    # They are workers of their own; a connection belongs to one.
    worker = harness.worker()
    client = harness.client(harness.router(f"{worker.url}@0", f"{worker.url}@1"))
    for _ in range(4):
        client.ask()
    assert len(worker.connections) == 2


def test_requests_at_the_same_time_take_connections_of_their_own(harness):
    def answer(connection, _message):
        if len(worker.requests) <= 5:
            gate.wait()
        connection.send(response(200, b""))

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker)
    clients = [harness.client(router) for _ in range(5)]
    for client in clients:
        client.send(request())
    worker.wait_for_requests(5)
    assert len(worker.connections) == 5
    gate.open()
    for client in clients:
        client.read_response()
    for client in clients:
        client.ask()
    assert len(worker.connections) == 5


def test_a_worker_that_was_removed_and_added_again_is_met_anew(harness):
    worker = harness.worker()
    router = harness.router(worker)
    client = harness.client(router)
    client.ask()
    router.core.remove_worker(worker.url)
    router.core.add_worker(worker.url)
    client.ask()
    assert len(worker.connections) == 2


def test_a_connection_that_speaks_out_of_turn_leaves_the_pool(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    client.ask()
    worker.connections[0].send(response(200, b"nobody asked"))
    worker.connections[0].wait_ended()
    assert client.ask().body == b"hello"
