"""A GET by the standard library only, for commands that look at a server. Waits and sizes are bounded.

    status, body = get("http://127.0.0.1:30000", "/readiness", timeout=2)

It imports neither the C++ extension nor numpy. Redirects are not followed.
"""

from __future__ import annotations

import contextlib
import http.client
import queue
import re
import socket
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from vllm_router._messages import quoted
from vllm_router._output import printable
from vllm_router._secrets import shown_urls

if TYPE_CHECKING:
    import ssl


class Reply(NamedTuple):
    """The status and the beginning of the body."""

    status: int
    body: bytes


class NoReplyError(Exception):
    """What was seen instead of a response; `timed_out` if nothing came in time."""

    def __init__(self, seen: str, *, timed_out: bool = False) -> None:
        super().__init__(seen)
        self.timed_out = timed_out


def check_url(url: str) -> str:
    """The URL of a server, as it is.

    Raises:
        ValueError: it is not http(s)://host[:port], or holds a user name, a query or a fragment.
    """
    try:
        parts = urlsplit(url)
        usable = bool(parts.hostname) and parts.port != 0 and parts.scheme in ("http", "https")
    except ValueError:
        usable = False
        parts = urlsplit("")
    if (
        not usable
        or "@" in url
        or parts.query
        or parts.fragment
        or re.search(r"[\x00-\x20\x7f-\U0010ffff]", url)
    ):
        raise ValueError(
            f"{quoted(shown_urls(url))} is not a URL like http://127.0.0.1:30000 or https://host:30000"
        )
    return url


def shown_path(path: str) -> str:
    """A path for a message: printable, and without its query, which may hold a key."""
    shown, *query = re.split(r"[?#]", path, maxsplit=1)
    return printable(shown) + ("?..." if query else "")


def tls_context(
    *, ca_file: str | None = None, insecure: bool = False, cert: str | None = None, key: str | None = None
) -> ssl.SSLContext:
    """How to speak TLS. Raises OSError (ssl.SSLError is one) for files that cannot be used."""
    import ssl

    context = ssl.create_default_context(cafile=ca_file)
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if cert is not None:
        context.load_cert_chain(cert, key, password="")  # rather fail than ask for a password
    return context


def get(
    url: str,
    path: str,
    timeout: float,
    *,
    context: ssl.SSLContext | None = None,
    headers: Mapping[str, str] | None = None,
    most_bytes: int = 0,
) -> Reply:
    """GET `path` of the server at `url`, and at most `most_bytes` of the body, all within `timeout` seconds.

    Raises:
        NoReplyError: there was no response.
    """
    parts = urlsplit(url)
    target = parts.path.rstrip("/") + path
    connection: http.client.HTTPConnection
    host = parts.hostname or ""
    # Without a port, http.client would take the end of an IPv6 address for one.
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(
            host, parts.port or 443, timeout=timeout, context=context or tls_context()
        )
    else:
        connection = http.client.HTTPConnection(host, parts.port or 80, timeout=timeout)
    outcome: queue.SimpleQueue[Reply | Exception] = queue.SimpleQueue()
    sockets: list[socket.socket] = []  # the connection forgets its own once it has a response

    def ask() -> None:
        seen: Reply | Exception
        try:
            with contextlib.closing(connection):
                connection.connect()
                sockets.append(connection.sock)
                connection.request("GET", target, headers={"Connection": "close", **(headers or {})})
                with connection.getresponse() as response:
                    body = response.read(most_bytes) if most_bytes else b""
                    seen = Reply(response.status, body)
        except Exception as error:
            seen = error
        outcome.put(seen)

    # In a thread, because neither a name server nor a peer that sends a byte now and then heeds the timeout.
    threading.Thread(target=ask, daemon=True).start()
    seen: Reply | Exception
    try:
        seen = outcome.get(timeout=timeout)
    except queue.Empty:
        seen = TimeoutError()
        for sock in list(sockets):
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)  # ends the thread
    if isinstance(seen, Reply):
        return seen
    raise NoReplyError(_sentence(seen, host, timeout), timed_out=isinstance(seen, TimeoutError)) from None


def _sentence(error: Exception, host: str, timeout: float) -> str:
    if isinstance(error, TimeoutError):
        return f"timed out: no complete response within {timeout:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, http.client.RemoteDisconnected):
        return "connection closed before a response"
    if isinstance(error, ConnectionError):
        return f"connection broken: {error.strerror or type(error).__name__}"
    if isinstance(error, socket.gaierror):
        return f"host {quoted(host)} not found: {error.strerror}"
    if isinstance(error, UnicodeError):
        return f"host {quoted(host)} not found: it is not a valid name"
    if type(error).__module__ == "ssl":
        reason = getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
        return f"TLS failed: {reason}"
    if isinstance(error, OSError):
        return error.strerror or type(error).__name__
    if isinstance(error, http.client.IncompleteRead):
        return "connection closed in the middle of the response"
    if isinstance(error, http.client.BadStatusLine):
        return f"response is not HTTP: it begins with {quoted(error.args[0])}"
    if isinstance(error, http.client.LineTooLong):
        return "response is not valid HTTP: its status or a header is a line of more than 65536 bytes"
    if type(error) is http.client.HTTPException:  # whose text is http.client's own
        return f"response is not valid HTTP: {error}"
    return f"response is not valid HTTP: {type(error).__name__}"
