"""A process with few file descriptors turns away what it cannot serve, serves what it took, and recovers."""

import contextlib
import subprocess
import sys

import pytest

from tests.fakes.harness import Client
from tests.fakes.wire import EndedEarlyError, eventually, request, response

FILES = 128
PROGRAM = """
import resource, sys
resource.setrlimit(resource.RLIMIT_NOFILE, (%d, %d))
from vllm_router import Router, _core
router = Router("round_robin", [sys.argv[1]])
server = _core.Server(router, port=0, threads=1, access_log=False, queue_size=1000)
print(server.port, flush=True)
sys.stdin.read()
server.shutdown()
server.wait(60)
"""


@pytest.fixture
def poor_router(harness):
    """(the worker, its gate, where the router listens)"""
    gate = None

    def answer(connection, _message):
        gate.wait()
        connection.send(response(200, b"hello"))

    worker = harness.worker(answer)
    gate = worker.gate()
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM % (FILES, FILES), worker.url],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        port = int(process.stdout.readline())
        yield worker, gate, port
        process.stdin.close()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_what_is_too_much_is_turned_away_and_the_rest_is_served(harness, poor_router):
    worker, gate, port = poor_router
    clients = []
    for _ in range(2 * FILES):
        clients.append(harness.client_at(port))
        with contextlib.suppress(ConnectionError):
            clients[-1].send(request("POST", "/v1/completions", body=b"{}"))
    gate.wait_for_someone()
    assert len(worker.connections) <= FILES // 4 + 2, "a quarter for workers, and two polls"
    gate.open()

    def served(client: Client) -> bool:
        try:
            return client.read_response().status == 200
        except (ConnectionError, EndedEarlyError):
            return False

    # Half of the files are for clients, a quarter for workers; clients that were served make room for others.
    assert sum(served(client) for client in clients) >= FILES // 4
    for client in clients:
        client.close()

    def fresh_client_is_served():
        client = harness.client_at(port)
        try:
            return client.ask("POST", "/v1/completions", body=b"{}").status == 200
        except (ConnectionError, EndedEarlyError):
            return False
        finally:
            client.close()

    eventually(fresh_client_is_served)
