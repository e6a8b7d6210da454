"""An engine stops generating within a second when the client of a request has left."""

import contextlib
import json
import socket
import time
import urllib.parse
from collections.abc import Callable, Iterator

import pytest

from tests.engines.processes import CONTEXT, MODEL, SLOTS, Router
from tests.fakes.wire import eventually

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

SOON = 1.0  # seconds
TRIES = 3
LONG = CONTEXT - 100  # tokens, which take the engine much longer than the test
MANY = 2 * SLOTS + 8  # more than both engines run at once, so that some wait in their queues


@pytest.fixture(scope="module")
def router(fleet) -> Iterator[Router]:
    with fleet.router("least_load") as router:
        yield router


def requests(fleet) -> float:
    return sum(engine.requests() for engine in fleet.engines)


@pytest.fixture
def idle(fleet):
    eventually(lambda: requests(fleet) == 0, "an earlier request did not end")


def send(url: str, number: int, stream: bool) -> socket.socket:
    """A request for a long response, sent whole."""
    prompt = f"Request {number} asks for a long text."
    body = json.dumps(
        {"model": MODEL, "prompt": prompt, "max_tokens": LONG, "ignore_eos": True, "stream": stream}
    ).encode()
    address = urllib.parse.urlsplit(url)
    client = socket.create_connection((address.hostname, address.port), timeout=60)
    head = f"POST /v1/completions HTTP/1.1\r\nHost: engines\r\nContent-Length: {len(body)}\r\n"
    client.sendall(head.encode() + b"Content-Type: application/json\r\n\r\n" + body)
    return client


def leave(fleet, router: Router, clients: list[socket.socket]) -> float:
    """Closes all connections, and says how long engines and router went on with their requests."""
    begun = time.monotonic()
    for client in clients:
        client.close()
    eventually(lambda: requests(fleet) == 0, "the engines go on for clients that have left")
    eventually(lambda: router.load() == 0, "the router counts requests whose clients have left")
    return time.monotonic() - begun


def must_be_seen_soon(leave_once: Callable[[], float]) -> None:
    # On a busy machine a process that polls may itself wait for a processor for a second: so more tries.
    seconds = []
    for _ in range(TRIES):
        seconds.append(leave_once())
        if seconds[-1] <= SOON:
            print(f"engines and router were idle after {seconds[-1]:.3f} s")
            return
    raise AssertionError(f"engines or router were idle only after {seconds} s")


def read_events(client: socket.socket, count: int) -> None:
    seen = b""
    while seen.count(b"data: ") < count:
        more = client.recv(65536)
        assert more, seen
        seen += more


@pytest.mark.usefixtures("idle")
def test_a_client_that_leaves_in_the_middle_of_a_stream(fleet, router):
    def leave_once():
        with contextlib.closing(send(router.url, 0, stream=True)) as client:
            read_events(client, 5)
            assert requests(fleet) == 1
            return leave(fleet, router, [client])

    must_be_seen_soon(leave_once)


@pytest.mark.usefixtures("idle")
def test_a_client_that_leaves_before_its_response(fleet, router):
    def leave_once():
        with contextlib.closing(send(router.url, 0, stream=False)) as client:
            eventually(lambda: requests(fleet) == 1, "the request never reached an engine")
            return leave(fleet, router, [client])

    must_be_seen_soon(leave_once)


@pytest.mark.usefixtures("idle")
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
def test_many_clients_leave_at_once_running_and_waiting(fleet, router, stream):
    def leave_once():
        with contextlib.ExitStack() as stack:
            clients = [
                stack.enter_context(contextlib.closing(send(router.url, number, stream)))
                for number in range(MANY)
            ]
            eventually(lambda: requests(fleet) == MANY, "not all requests reached an engine")
            assert all(engine.metric("vllm:num_requests_waiting") > 0 for engine in fleet.engines)
            return leave(fleet, router, clients)

    must_be_seen_soon(leave_once)
