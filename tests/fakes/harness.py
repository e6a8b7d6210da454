"""A router between fake workers and raw clients, and the proof that it left nothing behind.

    def test_something(harness):
        worker = harness.worker()
        client = harness.client(harness.router(worker))
        client.send(request("POST", "/v1/completions", body=b"{}"))
        assert client.read_response().status == 200

When the test is over, every client has left; then every load has to be 0, no exchange in flight, the server
ends by itself, and the process has exactly the descriptors that it had before.
"""

from __future__ import annotations

import contextlib
import gc
import json
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Any

from tests.fakes.relay import Relay
from tests.fakes.wire import (
    PATIENCE,
    Message,
    Wire,
    chunk,
    chunked,
    descriptors,
    eventually,
    request,
    response,
)
from tests.fakes.worker import FakeWorker, RefusingPort, SilentPort, SlowPort
from vllm_router import Router, _core

# Far from what any test waits for; each test sets the limits it is about.
QUIET = {
    "health_check_interval_secs": 0,
    "disable_retries": True,
    "disable_circuit_breaker": True,
    "slow_start_secs": 0,
    "kv_events": "off",
    "model_refresh_secs": 0,
    "access_log": False,
    "threads": 1,
    "port": 0,
}


class Client(Wire):
    """A client's end of a connection."""

    def ask(self, method: str = "GET", target: str = "/x", *fields: tuple[str, str], **more: Any) -> Message:
        """Sends a request and reads its response."""
        self.send(request(method, target, *fields, **more))
        return self.read_response(to=method)

    def must_be_open(self) -> None:
        """Another request is answered."""
        assert self.ask("GET", "/liveness").status == 200

    def must_be_closed(self) -> None:
        """The router has closed, properly, without another byte."""
        assert self.read_to_end() == b""


class RunningRouter:
    """A server over a router of its own."""

    def __init__(
        self, workers: list[str], policy: str, routing: dict[str, Any], options: dict[str, Any]
    ) -> None:
        self.core = Router(policy=policy, worker_urls=workers, **routing)
        self.server = _core.Server(self.core, **{**QUIET, **options})
        self.port = self.server.port
        self.may_cut = False

    def connect(
        self, receive_buffer: int | None = None, tls: ssl.SSLContext | None = None, name: str = "localhost"
    ) -> Client:
        sock = socket.socket()
        if receive_buffer is not None:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        try:
            sock.connect(("127.0.0.1", self.port))
            if tls is not None:
                sock.settimeout(PATIENCE)
                sock = tls.wrap_socket(sock, server_hostname=name)
        except OSError:
            sock.close()
            raise
        return Client(sock)

    def loads(self) -> list[int]:
        return [worker.load for worker in self.core.workers]

    def all_loads(self) -> list[int]:
        """Every counter of every worker."""
        return [
            number
            for worker in self.core.workers
            for number in (
                worker.load,
                worker.queued_prefill_tokens,
                worker.expected_output_tokens,
                worker.context_tokens,
            )
        ]

    def wait_for_load(self, load: int) -> None:
        eventually(lambda: sum(self.loads()) == load, f"the load never became {load}: {self.loads()}")

    def wait_until_unhealthy(self, worker: FakeWorker) -> None:
        def healthy() -> bool:
            return any(one.healthy for one in self.core.workers if one.url == worker.url)

        eventually(lambda: not healthy(), "the worker never became unhealthy")

    def in_flight(self) -> int:
        """Exchanges in flight, as the metrics say."""
        found = re.findall(
            r"^vllm_router_in_flight(?:\{[^}]*\})? (\S+)$", self.server.metrics_text(), re.MULTILINE
        )
        return sum(int(float(value)) for value in found)

    def must_rest(self) -> None:
        eventually(lambda: not any(self.all_loads()), "load that nobody returned")
        eventually(lambda: self.in_flight() == 0, "an exchange that never ended")

    def shutdown(self) -> None:
        self.server.shutdown()

    def must_end(self, within: float = 10.0) -> None:
        assert self.server.wait(within), "the server did not end"

    def close(self) -> None:
        if self.server is None:  # the test has dropped it
            return
        self.must_rest()
        self.shutdown()
        self.must_end()
        cut = self.server.exchanges_cut
        del self.server  # its destructor joins the threads
        assert self.may_cut or cut == 0, f"the shutdown cut {cut} exchanges"


class Harness:
    def __init__(self) -> None:
        self._before = descriptors()
        self._workers: list[FakeWorker | RefusingPort | SilentPort | SlowPort] = []
        self._relays: list[Relay] = []
        self._routers: list[RunningRouter] = []
        self._clients: list[Client] = []

    def worker(self, *args: Any, **kwargs: Any) -> FakeWorker:
        self._workers.append(FakeWorker(*args, **kwargs))
        return self._workers[-1]

    def refusing_port(self) -> RefusingPort:
        self._workers.append(RefusingPort())
        return self._workers[-1]

    def silent_port(self) -> SilentPort:
        self._workers.append(SilentPort())
        return self._workers[-1]

    def relay(self, worker: FakeWorker) -> Relay:
        self._relays.append(Relay(worker))
        return self._relays[-1]

    def slow_port(self) -> SlowPort:
        self._workers.append(SlowPort())
        return self._workers[-1]

    def router(
        self,
        *workers: Any,
        policy: str = "round_robin",
        routing: dict[str, Any] | None = None,
        **options: Any,
    ) -> RunningRouter:
        """`workers`: fakes or URLs. `routing`: options of Router; `options`: those of the server."""
        urls = [worker if isinstance(worker, str) else worker.url for worker in workers]
        self._routers.append(RunningRouter(urls, policy, routing or {}, options))
        return self._routers[-1]

    def client(self, router: RunningRouter, **kwargs: Any) -> Client:
        self._clients.append(router.connect(**kwargs))
        return self._clients[-1]

    def client_at(self, port: int) -> Client:
        self._clients.append(Client(socket.create_connection(("127.0.0.1", port))))
        return self._clients[-1]

    @contextlib.contextmanager
    def keeping_descriptors(self) -> Iterator[None]:
        """Descriptors that are opened within may stay open."""
        before = descriptors()
        yield
        self._before |= dict(descriptors().items() - before.items())

    def close(self) -> None:
        for client in self._clients:
            client.close()
        with contextlib.ExitStack() as stack:  # each of them, whatever another one raises; routers first
            for part in (*reversed(self._workers), *reversed(self._relays)):
                stack.callback(part.stop)
            for router in reversed(self._routers):
                stack.callback(router.close)
        if descriptors() != self._before:
            gc.collect()  # somebody else's garbage may have held one
        leaked = dict(descriptors().items() - self._before.items())
        assert not leaked, f"descriptors leaked: {leaked}"


class Streaming:
    """A worker of which every response to a POST goes on until its gate opens."""

    def __init__(self, harness: Harness) -> None:
        self.worker = harness.worker(self.answer)
        self.gate = self.worker.gate()
        self.url = self.worker.url

    def answer(self, connection: Wire, message: Message) -> None:
        if message.method != "POST":
            connection.send(response(200, b"hello"))
            return
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        connection.send(head + chunk(b"data: 1\n\n"))
        self.gate.wait()
        connection.send(chunked(b"data: [DONE]\n\n"))


def error_of(message: Message) -> dict[str, Any]:
    """The error in an OpenAI-style error body, whose form is checked."""
    assert message.get("content-type") == "application/json", message.head
    parsed = json.loads(message.body)
    assert list(parsed) == ["error"]
    error = parsed["error"]
    assert sorted(error) == ["code", "message", "param", "type"]
    assert error["message"]
    ours = message.status in (500, 502, 503, 504, 508)  # 501 and 505 are about what the client said
    assert error["type"] == ("server_error" if ours else "invalid_request_error")
    return error
