"""How the tests of simulated workers speak to them: raw bytes, http.client, and patience."""

import contextlib
import http.client
import json
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from vllm_router.testing import SimulatedWorker

FAST = {"engine": "instant"}
CHAT = {"messages": [{"role": "user", "content": "Hello " * 40}]}


def ask(
    worker: SimulatedWorker,
    path: str = "/v1/chat/completions",
    body: Any = None,
    method: str = "POST",
    headers: dict[str, str] | None = None,
) -> tuple[int, dict[str, str], bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", worker.port, timeout=30)
    with contextlib.closing(connection):
        data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
        connection.request(method, path, data, headers or {})
        response = connection.getresponse()
        return response.status, {k.lower(): v for k, v in response.getheaders()}, response.read()


def get(worker: SimulatedWorker, path: str) -> Any:
    status, _, body = ask(worker, path, method="GET")
    assert status == 200
    return json.loads(body)


def connect(worker: SimulatedWorker) -> socket.socket:
    return socket.create_connection(("127.0.0.1", worker.port), timeout=30)


def request_bytes(body: Any, path: str = "/v1/chat/completions", **headers: str) -> bytes:
    data = json.dumps(body).encode()
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()]
    return (
        f"POST {path} HTTP/1.1\r\nHost: w\r\nContent-Length: {len(data)}\r\n{''.join(lines)}\r\n".encode()
        + data
    )


def read_until(stream: socket.socket, mark: bytes) -> bytes:
    data = b""
    while mark not in data:
        piece = stream.recv(65536)
        assert piece, f"closed before {mark!r}: {data!r}"
        data += piece
    return data


def read_to_end(stream: socket.socket) -> bytes:
    return b"".join(iter(lambda: stream.recv(65536), b""))


def eventually(check: Callable[[], bool]) -> None:
    """Another thread will make it true; how soon is not what is tested."""
    deadline = time.monotonic() + 30
    while not check():
        assert time.monotonic() < deadline
        threading.Event().wait(0.002)
