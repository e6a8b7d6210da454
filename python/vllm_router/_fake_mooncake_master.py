"""FakeMooncakeMaster: the HTTP port of a Mooncake master, so that a test decides what a shared pool holds."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import json
import struct
import threading
from collections.abc import Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any
from urllib.parse import parse_qs, urlsplit

_MHA = ("_0_k", "_0_v")  # of one tensor-parallel rank


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 1024  # the base class loses connections that come at once


class FakeMooncakeMaster:
    """Responds to `GET /batch_query_keys?keys=K1,K2` on a free port of 127.0.0.1, as a Mooncake master does.

        with FakeMooncakeMaster() as master:
            master.store(range(128), page_size=64)      # two pages, as SGLang's HiCache names them
            ...                                         # --shared-cache-url master.url
            master.queries                              # the keys of each query

    All methods may be called from any thread.

    Args:
        keys: of the objects that are there from the start.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()  # guards what follows
        self._keys = set(keys)
        self._being_written: set[str] = set()
        self._queries: list[list[str]] = []
        self._faults: dict[str, Any] = {}
        self._stopping = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.05},
            name="fake-mooncake-master",
            daemon=True,
        )
        self._thread.start()

    @property
    def port(self) -> int:
        """The port it listens on."""
        return int(self._server.server_address[1])

    @property
    def url(self) -> str:
        """`http://127.0.0.1:PORT`, for `--shared-cache-url`."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def queries(self) -> list[list[str]]:
        """The keys of each query so far."""
        with self._lock:
            return [list(keys) for keys in self._queries]

    @staticmethod
    def keys_of(
        token_ids: Iterable[int],
        page_size: int,
        suffixes: Sequence[str] = _MHA,
        prefix: str = "",
        eagle: bool = False,
    ) -> list[list[str]]:
        """The keys of each full page of a prompt, as SGLang's HiCache names its objects.

        Args:
            token_ids: the prompt's.
            page_size: tokens of a page.
            suffixes: of the objects of a page; `("__k",)` for MLA.
            prefix: of every key, such as `model_`.
            eagle: pages of pairs of tokens.
        """
        ids = list(token_ids)
        units = [struct.pack("<I", token) for token in ids]
        if eagle:
            units = [first + second for first, second in itertools.pairwise(units)]
        pages, digest = [], b""
        for begin in range(0, len(units) - page_size + 1, page_size):
            digest = hashlib.sha256(digest + b"".join(units[begin : begin + page_size])).digest()
            pages.append([f"{prefix}{digest.hex()}{suffix}" for suffix in suffixes])
        return pages

    def store(self, token_ids: Iterable[int], page_size: int, **layout: Any) -> list[list[str]]:
        """Add all pages of a prompt; returns their keys. `layout`: as of `keys_of()`."""
        pages = self.keys_of(token_ids, page_size, **layout)
        self.add(key for page in pages for key in page)
        return pages

    def add(self, keys: Iterable[str], being_written: bool = False) -> None:
        """These objects are there from now on; `being_written`: without a complete replica."""
        with self._lock:
            (self._being_written if being_written else self._keys).update(keys)

    def remove(self, keys: Iterable[str]) -> None:
        """These objects are not there any more."""
        with self._lock:
            gone = set(keys)
            self._keys -= gone
            self._being_written -= gone

    def set_faults(
        self, *, delay_ms: float = 0, status: int = 0, body: bytes | None = None, after: int = 0
    ) -> None:
        """Replace all faults, from the next query on; without arguments it is well again.

        Args:
            delay_ms: time before each response.
            status: respond with this one; 0 is none. 503 is that of a standby.
            body: respond with these bytes.
            after: the faults begin behind so many queries.
        """
        with self._lock:
            begin = len(self._queries) + after
            self._faults = {"delay_ms": delay_ms, "status": status, "body": body, "begin": begin}

    def stop(self) -> None:
        """Close the port. Again: nothing."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> FakeMooncakeMaster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def __repr__(self) -> str:
        return f"<FakeMooncakeMaster {self.url}>"

    def _respond(self, keys: list[str]) -> tuple[int, bytes]:
        with self._lock:
            faults = self._faults if len(self._queries) >= self._faults.get("begin", 0) else {}
            self._queries.append(keys)
            data = {key: self._object(key) for key in keys}
        if faults.get("delay_ms"):
            self._stopping.wait(faults["delay_ms"] / 1000)
        status = faults.get("status") or 200
        if faults.get("body") is not None:
            return status, faults["body"]
        if status == 503:
            return status, b'{"success":false,"error":"master service is unavailable: not active"}'
        if status != 200:
            return status, b'{"success":false,"error":"failed"}'
        return status, json.dumps({"success": True, "data": data}).encode()

    def _object(self, key: str) -> dict[str, Any]:
        if key in self._keys:
            return {"ok": True, "values": [{"size": 4096}], "disk_values": None, "local_disk_values": None}
        if key in self._being_written:
            return {"ok": True, "values": [], "disk_values": None, "local_disk_values": None}
        return {"ok": False, "error": "OBJECT_NOT_FOUND"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        master = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                target = urlsplit(self.path)
                keys = [key for text in parse_qs(target.query).get("keys", []) for key in text.split(",")]
                if target.path != "/batch_query_keys":
                    status, body = 404, b'{"success":false}'
                elif not keys:
                    status, body = (
                        400,
                        b'{"success":false,"error":"No keys provided. Use ?keys=key1,key2,..."}',
                    )
                else:
                    status, body = master._respond(keys)
                with contextlib.suppress(OSError):  # the client has left
                    self.send_response(status)
                    self.send_header("Content-Type", "application/json")
                    self.send_header("Content-Length", str(len(body)))
                    self.end_headers()
                    self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
