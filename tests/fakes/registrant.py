"""Workers that register with the router, and fleets that consist of them.

fleet = Fleet(harness, context, connector="p2p_nccl")
prefill = fleet.join("P", harness.worker(), zmq="10.0.0.1:21001")
fleet.wait_for(prefill=1)
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from typing import Any

import msgpack
import zmq

from tests.fakes.harness import Client, Harness, RunningRouter
from tests.fakes.pd import prefill_response
from tests.fakes.wire import eventually, response

P_ZMQ, D_ZMQ = "10.0.0.1:21001", "10.0.0.2:21002"
BODY = {"model": "m", "prompt": "hi", "max_tokens": 7}
SERVED = b'{"choices":[{"text":"of decode"}]}'
PING_SECS = 0.5  # below the 5 s after which a worker is silent


def packed(role: str, http: str, zmq_address: str, **more: Any) -> bytes:
    told = {"type": role, "http_address": http, "zmq_address": zmq_address, **more}
    return bytes(msgpack.packb(told))


class Peer:
    """A DEALER that sends what it is given."""

    def __init__(
        self, context: zmq.Context[Any], endpoint: str, source: str = "", identity: bytes = b""
    ) -> None:
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 0
        self.socket.sndtimeo = 30_000
        if identity:
            self.socket.identity = identity
        # tcp://<own address>:0;<the other end>
        self.socket.connect(endpoint.replace("tcp://", f"tcp://{source}:0;") if source else endpoint)

    def send(self, *frames: bytes) -> None:
        self.socket.send_multipart(frames)

    def close(self) -> None:
        self.socket.close()


class Registrant:
    """One worker: it registers again and again, until it is stopped."""

    def __init__(self, peer: Peer, message: bytes, with_empty_frame: bool = False) -> None:
        self.peer = peer
        self.message = message
        self._before = [b""] if with_empty_frame else []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self.peer.close()

    def _run(self) -> None:
        while True:
            self.peer.send(*self._before, self.message)
            if self._stopping.wait(PING_SECS):
                return


class Fleet:
    """A router in discovery, and the workers that register with it."""

    def __init__(
        self,
        harness: Harness,
        context: zmq.Context[Any],
        connector: str = "p2p_nccl",
        routing: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.context = context
        self.router: RunningRouter = harness.router(
            routing={"vllm_pd_disaggregation": True, **(routing or {})},
            kv_connector=connector,
            **{"vllm_discovery_address": "127.0.0.1:0", **options},
        )
        self.admin: Client = harness.client(self.router)
        self.endpoint = str(self.report()["endpoint"])
        self._registrants: list[Registrant] = []
        self._peers: list[Peer] = []

    def peer(self, source: str = "", identity: bytes = b"") -> Peer:
        self._peers.append(Peer(self.context, self.endpoint, source, identity))
        return self._peers[-1]

    def join(
        self, role: str, worker: Any, zmq_address: str, empty_frame: bool = False, **more: Any
    ) -> Registrant:
        message = packed(role, worker.authority, zmq_address, **more)
        self._registrants.append(Registrant(Peer(self.context, self.endpoint), message, empty_frame))
        return self._registrants[-1]

    def report(self) -> dict[str, Any]:
        found = json.loads(self.admin.ask("GET", "/admin/discovery").body)["registrations"]
        assert isinstance(found, dict)
        return found

    def messages(self, result: str) -> int:
        return int(self.report()["messages"][result])

    def workers(self) -> dict[str, str]:
        """Type by URL, of those that may be chosen."""
        rows = json.loads(self.admin.ask("GET", "/workers").body)["workers"]
        serving = {
            row["url"]
            for row in json.loads(self.admin.ask("GET", "/admin/discovery").body)["workers"]
            if row["state"] == "serving"
        }
        return {row["url"]: row["worker_type"] for row in rows if row["url"] in serving}

    def states(self) -> dict[str, str]:
        rows = json.loads(self.admin.ask("GET", "/admin/discovery").body)["workers"]
        return {row["url"]: row["state"] for row in rows}

    def wait_for(self, prefill: int = 0, decode: int = 0) -> None:
        def has() -> bool:
            types = list(self.workers().values())
            return (types.count("prefill"), types.count("decode")) == (prefill, decode)

        eventually(has, f"not {prefill} prefill and {decode} decode workers: {self.report()}")

    def close(self) -> None:
        for registrant in self._registrants:
            registrant.stop()
        for peer in self._peers:
            peer.close()


class Engine:
    """One worker of a pair, which keeps what it is sent."""

    def __init__(self, harness: Harness, body: bytes, gated: bool = False) -> None:
        self.body = body
        self.bodies: list[dict[str, Any]] = []
        self.ids: list[str | None] = []
        self.worker = harness.worker(self)
        self.gate = self.worker.gate() if gated else None
        self.authority, self.url = self.worker.authority, self.worker.url

    def __call__(self, connection: Any, message: Any) -> None:
        if message.method == "POST":
            self.bodies.append(json.loads(message.body))
            self.ids.append(message.get("x-request-id"))
            if self.gate is not None:
                self.gate.wait()
        connection.send(response(200, self.body, ("Content-Type", "application/json")))


@contextlib.contextmanager
def starting(harness: Harness) -> Iterator[Callable[..., Fleet]]:
    """Starts routers in discovery. Their workers fall silent before they end."""
    with zmq.Context() as context, contextlib.ExitStack() as stack:

        def start(**options: Any) -> Fleet:
            fleet = Fleet(harness, context, **options)
            stack.callback(fleet.close)
            return fleet

        yield start


def pair(
    harness: Harness,
    start: Callable[..., Fleet],
    *,
    connector: str = "p2p_nccl",
    parameters: Any = None,
    prefill: dict[str, Any] | None = None,
    decode: dict[str, Any] | None = None,
    gated: bool = False,
    **options: Any,
) -> tuple[Fleet, Engine, Engine]:
    """A fleet of one worker of each stage. `prefill`, `decode`: what these tell besides their addresses."""
    fleet = start(connector=connector, **options)
    p = Engine(harness, prefill_response(parameters), gated)
    d = Engine(harness, SERVED)
    fleet.join("P", p, P_ZMQ, **(prefill or {}))
    fleet.join("D", d, D_ZMQ, **(decode or {}))
    fleet.wait_for((prefill or {}).get("dp_size", 1), (decode or {}).get("dp_size", 1))
    return fleet, p, d
