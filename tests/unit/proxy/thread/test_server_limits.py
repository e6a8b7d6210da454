"""cpp/proxy/thread/server_limits.h: one set of gates for all threads of a server."""

from tests.fakes.wire import eventually, response
from tests.proxy.test_admission import COMPLETIONS, seats


def test_the_cap_is_of_the_server_and_not_of_each_thread(harness):
    gate = None

    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b"hello"))

    worker = harness.worker(answer)
    gate = worker.gate()
    router = harness.router(worker, threads=3, max_concurrent_requests=2, queue_size=50)
    clients = [harness.client(router) for _ in range(12)]  # over several threads, by the kernel's hash
    for client in clients:
        client.send(COMPLETIONS)
    eventually(lambda: seats(router) == (2, 10))
    assert len(worker.requests) <= 2
    gate.open()
    for client in clients:
        assert client.read_response().status == 200
    eventually(lambda: seats(router) == (0, 0))
