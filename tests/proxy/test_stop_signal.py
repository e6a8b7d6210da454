"""SIGTERM, in each state of an exchange: what its client gets, and the exit status of the process.

Each state is met three times. What can be finished is finished, and the status is 0. What outlasts the grace
period is cut, and the status is 3 if it was a request. A second signal ends the process at once.
"""

import signal
import socket
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from tests.fakes.harness import Client, error_of
from tests.fakes.wire import chunk, chunked, request, response
from tests.proxy.test_port_handover import running

PATH = "/v1/completions"
WHOLE = request("POST", PATH, body=b"{}")
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Scene:
    """A worker, and clients of a router in a process of its own, with a request that comes to a state."""

    def __init__(self, harness, state):
        self.harness, self.state = harness, state
        self.gate = None
        if state.name == "connecting":
            self.worker = harness.slow_port()
        else:
            self.worker = harness.worker(self.answer)
            self.gate = self.worker.gate()
        self.others = []

    def answer(self, connection, message):
        if self.state.name == "retrying" and len(self.worker.requests) == 1:
            connection.send(response(500, b"no"))
            return
        if self.state.name == "streaming":
            connection.send(HEAD + chunk(b"data: 1\n\n"))
        if self.state.waits:
            self.gate.wait()
        if self.state.name == "streaming":
            connection.send(chunked(b"data: [DONE]\n\n"))
        else:
            connection.send(response(200, message.body))

    def connect(self, port):
        client = Client(socket.create_connection(("127.0.0.1", port)))
        self.others.append(client)
        return client

    def close(self):
        for client in self.others:
            client.close()


@dataclass
class State:
    name: str
    reach: Callable[[Scene, int], Client]
    finish: Callable[[Scene, Client], None]
    cut: str  # what the client sees: "closed", "503", or "cut" amid its answer
    status: int  # of the process
    waits: bool = False  # the worker, with its answer
    flags: tuple[str, ...] = ()


def sends(count: int | None) -> Callable:
    def reach(scene, port):
        client = scene.connect(port)
        client.send(WHOLE[:count])
        client.wait_until_read()
        return client

    return reach


def rests(scene, port):
    client = scene.connect(port)
    assert client.ask("POST", PATH, body=b"{}").status == 200
    return client


def is_asked(scene, port):
    client = sends(None)(scene, port)
    scene.worker.wait_for_requests(1)
    return client


def streams(scene, port):
    client = is_asked(scene, port)
    assert client.read_head().status == 200
    assert client.read_chunk() == b"data: 1\n\n"
    return client


def stands_in_line(scene, port):
    is_asked(scene, port)
    return sends(None)(scene, port)


def goes_on(rest: int) -> Callable:
    def finish(_scene, client):
        client.send(WHOLE[rest:])
        served(client)

    return finish


def is_let_go(scene, client):
    scene.gate.open()
    served(client)


def ends_its_stream(scene, client):
    scene.gate.open()
    assert client.read_to_end().endswith(b"data: [DONE]\n\n\r\n0\r\n\r\n")


def is_let_in(scene, client):
    scene.worker.let_in(1)
    scene.worker.read_request()
    scene.worker._wires[0].send(response(200, b"{}"))
    served(client)


def served(client):
    answer = client.read_response()
    assert (answer.status, answer.body) == (200, b"{}")
    client.must_be_closed()


STATES = [
    State("idle", rests, lambda _scene, client: client.must_be_closed(), "closed", 0),
    State("head half read", sends(20), goes_on(20), "closed", 0),
    State("body half read", sends(-2), goes_on(-2), "503", 3, flags=("--policy", "consistent_hash")),
    State(
        "in line", stands_in_line, is_let_go, "503", 3, waits=True, flags=("--max-concurrent-requests", "1")
    ),
    State("connecting", sends(None), is_let_in, "503", 3, flags=("--connect-timeout-secs", "100")),
    State("awaiting the answer", is_asked, is_let_go, "503", 3, waits=True),
    State("streaming", streams, ends_its_stream, "cut", 3, waits=True),
    State(
        "retrying",
        is_asked,
        lambda _scene, client: served(client),
        "503",
        3,
        flags=("--retry-initial-backoff-ms", "5000", "--retry-max-backoff-ms", "5000"),
    ),
]
in_each_state = pytest.mark.parametrize("state", STATES, ids=lambda state: state.name)


@pytest.fixture
def scene(harness, state):
    scene = Scene(harness, state)
    yield scene
    scene.close()


def stop(router):
    """One signal, and the process has heard it."""
    router.send_signal(signal.SIGTERM)
    assert any("stopping" in line for line in router.stderr)


@in_each_state
def test_what_can_be_finished_is(scene, state):
    with running(0, scene.worker.url, *state.flags) as (router, port):
        client = state.reach(scene, port)
        stop(router)
        state.finish(scene, client)
        for other in scene.others[:-1]:
            other.read_response()
        assert router.wait(60) == 0


@in_each_state
def test_what_outlasts_the_grace_is_cut(scene, state):
    with running(0, scene.worker.url, *state.flags, "--shutdown-grace-period-secs", "0.2") as (router, port):
        client = state.reach(scene, port)
        router.send_signal(signal.SIGTERM)
        if state.cut == "503":
            answer = client.read_response()
            assert (answer.status, error_of(answer)["code"]) == (503, "shutting_down")
            assert (answer.get("connection"), answer.get("retry-after")) == ("close", "1")
            client.must_be_closed()
        elif state.cut == "cut":
            assert not client.read_to_end().endswith(b"0\r\n\r\n")
        else:
            client.must_be_closed()
        assert router.wait(60) == state.status


@in_each_state
def test_a_second_signal_ends_it_at_once(scene, state):
    with running(0, scene.worker.url, *state.flags) as (router, port):
        client = state.reach(scene, port)
        if state.name == "idle":  # which would be over too soon
            asking = scene.connect(port)
            asking.send(WHOLE[:20])
            asking.wait_until_read()
        stop(router)
        router.send_signal(signal.SIGTERM)
        assert router.wait(60) == -signal.SIGTERM
        client.ending()
        if state.name != "idle":
            assert b"503" not in client.received
            assert not client.received.endswith(b"0\r\n\r\n")
