"""A fake worker that streams events about prefixes (SSE), and what a router knows of them.

worker = harness.worker(server := SseKvServer())
router = open_router(harness, worker)
server.wait_connected()
server.send(event("created", PREFIX, 2048))
wait_for_index(harness, router, entry_count=1)
"""

from __future__ import annotations

import json
import threading
from typing import Any

from tests.fakes.wire import PATIENCE, Message, eventually, response
from tests.fakes.worker import Connection

PATH = "/v1/kv_events"
PREFIX = "542e8d8551bb38da2f00b1ff6716b42cfc811b892fafb8d353ba167bc6ce4784"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-cache\r\n\r\n"


def event(kind: str, prefix: str | None = None, tokens: int | None = None) -> bytes:
    data: dict[str, Any] = {"event": f"cache_{kind}"}
    if prefix is not None:
        data["prefix_hash"] = prefix
    if tokens is not None:
        data["token_count"] = tokens
    return f"event: cache_{kind}\ndata: {json.dumps(data)}\n\n".encode()


def prefix(number: int) -> str:
    """A digest of its own for each number."""
    return f"{number:064x}"


class SseKvServer:
    """Answers like a worker; a request for PATH is held and gets what send() is given.

    `refusal`: the response to such a request instead, until it is None.
    """

    def __init__(self, refusal: bytes | None = None) -> None:
        self.refusal = refusal
        self.requests: list[Message] = []
        self._streams: list[Connection] = []
        self._changed = threading.Condition()

    def __call__(self, connection: Connection, message: Message) -> None:
        if message.target != PATH:
            connection.send(response(200, b"{}"))
            return
        with self._changed:
            self.requests.append(message)
            refusal = self.refusal
            if refusal is None:
                connection.send(HEAD)
                self._streams.append(connection)
            self._changed.notify_all()
        if refusal is not None:
            connection.send(refusal)
        connection.ending()

    def wait_connected(self, count: int = 1) -> Connection:
        """The stream of that number, from 1."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._streams) >= count, PATIENCE), "no such stream"
            return self._streams[count - 1]

    def send(self, *pieces: bytes) -> None:
        """To the last stream; each piece when the one before has been read."""
        with self._changed:
            stream = self._streams[-1]
        stream.send(*pieces)

    def drop(self) -> None:
        """Ends the last stream, properly."""
        with self._changed:
            stream = self._streams[-1]
        stream.half_close()


def source_of(worker: Any, name: str = "vllm-1", **more: Any) -> str:
    extra = "".join(f",{key}={value}" for key, value in {"reconnect_interval_ms": 1, **more}.items())
    return f"{name}={worker.url}{PATH}{extra}"


def open_router(
    harness: Any, *workers: Any, policy: str = "auto", routing: dict[str, Any] | None = None, **options: Any
) -> Any:
    """Each worker is a source, vllm-1 and so on."""
    sources = [source_of(worker, f"vllm-{number}") for number, worker in enumerate(workers, 1)]
    return harness.router(
        *workers,
        policy=policy,
        routing={"seed": 1, "kv_index_max_entries": 1000, **(routing or {})},
        **{"kv_prefix_source": sources, **options},
    )


def ask(harness: Any, router: Any, method: str, path: str) -> Message:
    if not hasattr(router, "admin_client"):
        router.admin_client = harness.client(router)
    return router.admin_client.ask(method, f"/admin/kv-index/{path}")


def stats(harness: Any, router: Any) -> dict[str, Any]:
    return json.loads(ask(harness, router, "GET", "stats").body)


def backends(harness: Any, router: Any) -> list[dict[str, Any]]:
    return json.loads(ask(harness, router, "GET", "backends").body)["backends"]


def wait_for_index(harness: Any, router: Any, **expected: int) -> None:
    """The counts of the index, or of the first source, have these values."""
    found: dict[str, Any] = {}

    def reached() -> bool:
        first = backends(harness, router)[0]
        found.update(stats(harness, router)["index"], **first["events"], **first["connection"])
        return all(found[name] == value for name, value in expected.items())

    try:
        eventually(reached)
    except AssertionError:
        raise AssertionError(f"{found} never had {expected}") from None
