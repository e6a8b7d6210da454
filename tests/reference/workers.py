"""Workers that answer as vLLM servers do, and keep what arrived."""

from __future__ import annotations

import contextlib
import http.server
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, NamedTuple


class Worker(http.server.ThreadingHTTPServer):
    """Answers as a vLLM server does, and keeps what arrived."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, name: str, port: int = 0) -> None:
        self.name = name
        self.seen: list[Seen] = []
        self.statuses: list[int] = []  # of the next requests
        self.always = 200
        self.delay = 0.0
        self.says: Any = None  # instead of its usual response
        super().__init__(("127.0.0.1", port), _Handler)
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()

    def reset(self) -> None:
        self.seen.clear()
        self.statuses.clear()
        self.always, self.delay, self.says = 200, 0.0, None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A router that leaves is no error."""


class Seen(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes


_CHECKS = {
    "/health",
    "/load",
    "/get_load",
    "/metrics",
    "/get_server_info",
    "/v1/models",
    "/version",
    "/server_info",
}


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Worker
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_: Any) -> None:
        pass

    def _serve(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.split("?")[0]
        if path in _CHECKS and self.command == "GET":
            self._check(path)
            return
        names = {name.lower(): value for name, value in self.headers.items()}
        self.server.seen.append(Seen(self.command, self.path, names, body))
        time.sleep(self.server.delay)
        status = self.server.statuses.pop(0) if self.server.statuses else self.server.always
        if status == 0:  # the process dies
            self.connection.shutdown(socket.SHUT_RDWR)
            return
        asked = {}
        if body[:1] == b"{":
            try:
                asked = json.loads(body)
            except ValueError:
                status = 400
        if asked.get("stream") and status == 200:
            self._stream()
        elif self.server.says is not None:
            self._json(status, self.server.says)
        elif path.endswith("rerank"):
            self._json(
                status,
                [{"index": 0, "score": 0.1, "document": "a"}, {"index": 1, "score": 0.9, "document": "b"}],
            )
        elif path == "/flush_cache":
            self._json(status, None)
        else:
            self._json(status, {"id": f"from-{self.server.name}", "object": "answer", "choices": []})

    do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do_HEAD = _serve  # noqa: N815

    def _check(self, path: str) -> None:
        if path == "/health":
            self._json(self.server.always if self.server.always >= 500 else 200, None)
        elif path == "/v1/models":
            self._json(200, {"object": "list", "data": [{"id": "m", "object": "model"}]})
        elif path == "/load":
            self._json(200, {"server_load": 3})
        elif path == "/get_load":
            self._json(200, {"load": 3})
        elif path == "/get_server_info":
            self._json(200, {"model_id": "m", "dp_size": 2})
        else:
            self._json(404, {})

    def _json(self, status: int, value: Any) -> None:
        body = b"" if value is None else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("X-Worker", self.server.name)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _stream(self) -> None:
        self.send_response(200)
        self.send_header("X-Worker", self.server.name)
        self.send_header("Content-Type", "text/event-stream; charset=utf-8")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for data in (
            '{"choices":[{"delta":{"content":"a"}}]}',
            '{"choices":[{"delta":{"content":"b"}}]}',
            "[DONE]",
        ):
            event = f"data: {data}\n\n".encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(event), event))
        self.wfile.write(b"0\r\n\r\n")


def spare() -> Worker:
    return Worker("new")


@contextlib.contextmanager
def closed(worker: Worker) -> Iterator[None]:
    """Its port refuses connections meanwhile."""
    worker.shutdown()
    worker.server_close()
    try:
        yield
    finally:
        worker.__init__(worker.name, worker.server_address[1])  # type: ignore[misc]
