"""A TCP connection as bytes, with just enough HTTP/1.1 to take messages apart.

Reading is strict on purpose: what the router sends has one spelling (sizes in lower-case hexadecimal, no
chunk extensions, no trailers), so anything else fails the test that reads it.

    wire = Wire(socket.create_connection(("127.0.0.1", port)))
    wire.send(b"GET / HTTP/1.1\r\n", b"Host: a\r\n\r\n")      # two pieces, each read by the peer on its own
    response = wire.read_response()
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PATIENCE = 30.0  # seconds after which something that should happen at once is taken never to happen


class EndedEarlyError(Exception):
    """The peer closed properly, but in the middle of what was being read."""


def wait_until_logged(capfd: Any, text: str) -> None:
    """Reads stderr beside the fixture: what is written while its readouterr() empties the file is lost."""
    written = capfd._capture.err.tmpfile.fileno()
    eventually(lambda: text in os.pread(written, 1 << 20, 0).decode(errors="replace"), f"no log line {text}")


def free_port() -> int:
    """A port that nothing listens on, for a program that takes no 0; one that is started again keeps it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def eventually(condition: Callable[[], bool], what: str = "", patience: float = PATIENCE) -> None:
    """Waits until `condition()` holds; for conditions that nobody announces."""
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, what or "it never happened"
        time.sleep(0.001)


@dataclass
class Message:
    """A request or response, taken apart and as it was on the wire."""

    head: bytes
    start_line: str
    fields: list[tuple[str, str]]
    framing: str = "none"  # none, length, chunked, close
    body: bytes = b""  # decoded
    raw_body: bytes = b""
    chunks: list[bytes] = field(default_factory=list)
    informational: list[Message] = field(default_factory=list)

    @property
    def raw(self) -> bytes:
        return self.head + self.raw_body

    @property
    def method(self) -> str:
        return self.start_line.split(" ")[0]

    @property
    def target(self) -> str:
        return self.start_line.split(" ")[1]

    @property
    def status(self) -> int:
        return int(self.start_line.split(" ")[1])

    @property
    def names(self) -> list[str]:
        return [name.lower() for name, _ in self.fields]

    def all(self, name: str) -> list[str]:
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def get(self, name: str) -> str | None:
        values = self.all(name)
        assert len(values) <= 1, f"{name} came {len(values)} times: {self.head!r}"
        return values[0] if values else None


def parse_head(head: bytes) -> Message:
    """A message without its body."""
    assert head.endswith(b"\r\n\r\n"), head
    lines = head[:-4].decode("latin-1").split("\r\n")
    fields = []
    for line in lines[1:]:
        name, colon, value = line.partition(": ")
        assert colon, head
        assert re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name), head
        fields.append((name, value))
    return Message(head, lines[0], fields)


class Wire:
    """A connected socket with the bytes that were received but not read yet."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self.sent = 0
        self.ahead = bytearray()
        self.received = bytearray()  # every byte that ever arrived
        self.local, self.remote = sock.getsockname(), sock.getpeername()
        sock.settimeout(PATIENCE)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    # ---- sending

    def send(self, *pieces: bytes) -> None:
        """Sends the pieces; with more than one, each only when the peer has read the one before."""
        for number, piece in enumerate(pieces):
            if number > 0:
                self.wait_until_read()
            rest = memoryview(piece)
            while rest:
                count = self.socket.send(rest)
                self.sent += count
                rest = rest[count:]

    def send_in_pieces(self, data: bytes, size: int) -> None:
        self.send(*(data[at : at + size] for at in range(0, len(data), size)))

    def send_what_fits(self, data: bytes) -> int:
        """How many of these bytes the socket took without waiting; none once the peer is gone."""
        try:
            return self.socket.send(data, socket.MSG_DONTWAIT)
        except (BlockingIOError, ConnectionError):
            return 0

    def writable(self, patience: float) -> bool:
        """Whether the socket has room for some bytes within so many seconds."""
        return bool(select.select([], [self.socket], [], patience)[1])

    def wait_until_read(self) -> None:
        """Until the peer's process (on this machine) has taken every byte out of its socket, or closed it."""
        eventually(lambda: not unread_bytes(self.remote, self.local), "the peer does not read")

    def wait_until_received_by_peer(self, count: int) -> None:
        """Until `count` of our bytes wait in the peer's socket, unread."""
        eventually(lambda: (unread_bytes(self.remote, self.local) or 0) >= count, "they never arrived")

    def wait_until_received(self, count: int) -> None:
        """Until `count` bytes from the peer wait in our socket, unread."""
        eventually(
            lambda: (unread_bytes(self.local, self.remote) or 0) >= count, f"{count} bytes never arrived"
        )

    def half_close(self) -> None:
        self.socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        """RST instead of FIN."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()

    # ---- reading

    def readable(self, patience: float) -> bool:
        """Whether something has arrived (or the end) within so many seconds."""
        return bool(self.ahead) or bool(select.select([self.socket], [], [], patience)[0])

    def read_some(self) -> bytes:
        """What has arrived, at least a byte; b"" at the end. ConnectionResetError for a reset."""
        if self.ahead:
            taken = bytes(self.ahead)
            self.ahead.clear()
            return taken
        arrived = self.socket.recv(1 << 18)
        self.received += arrived
        return arrived

    def _more(self) -> None:
        arrived = self.socket.recv(1 << 18)
        self.received += arrived
        if not arrived:
            raise EndedEarlyError(f"closed after {bytes(self.ahead[:200])!r}, {len(self.ahead)} bytes")
        self.ahead += arrived

    def read_exactly(self, count: int) -> bytes:
        while len(self.ahead) < count:
            self._more()
        taken = bytes(self.ahead[:count])
        del self.ahead[:count]
        return taken

    def read_until(self, mark: bytes) -> bytes:
        at = -1
        searched = 0
        while at < 0:
            at = self.ahead.find(mark, searched)
            if at < 0:
                searched = max(0, len(self.ahead) - len(mark) + 1)
                self._more()
        return self.read_exactly(at + len(mark))

    def read_head(self) -> Message:
        return parse_head(self.read_until(b"\r\n\r\n"))

    def read_chunk(self) -> bytes:
        """One chunk's data; b"" for the last chunk, which has to stand alone."""
        line = self.read_until(b"\r\n")
        assert re.fullmatch(rb"0|[1-9a-f][0-9a-f]{0,15}", line[:-2]), line
        size = int(line, 16)
        data = self.read_exactly(size)
        assert self.read_exactly(2) == b"\r\n", "a chunk, or the body, does not end where it said"
        return data

    def read_to_last_chunk(self) -> bytes:
        """The data of all chunks that are still to come."""
        everything = b""
        while data := self.read_chunk():
            everything += data
        return everything

    def _read_body(self, message: Message, until_close: bool) -> Message:
        start = len(self.received) - len(self.ahead)
        length, coding = message.get("content-length"), message.get("transfer-encoding")
        assert length is None or coding is None, message.head
        if coding is not None:
            assert coding == "chunked", message.head
            message.framing = "chunked"
            while chunk := self.read_chunk():
                message.chunks.append(chunk)
            message.body = b"".join(message.chunks)
        elif length is not None:
            message.framing = "length"
            message.body = self.read_exactly(int(length))
        elif until_close:
            message.framing = "close"
            message.body = self.read_to_end()
        message.raw_body = bytes(self.received[start : len(self.received) - len(self.ahead)])
        return message

    def read_request(self) -> Message:
        return self._read_body(self.read_head(), until_close=False)

    def read_response(self, to: str = "GET") -> Message:
        """The final response to a request with method `to`, with the 1xx that came before it."""
        informational = []
        while (message := self.read_head()).status < 200:
            informational.append(message)
        message.informational = informational
        if to == "HEAD" or message.status in (204, 304):
            return message
        return self._read_body(message, until_close=True)

    def read_to_end(self) -> bytes:
        """All that comes until the peer closes. ConnectionResetError if it resets instead."""
        everything = bytearray()
        while piece := self.read_some():
            everything += piece
        return bytes(everything)

    def ending(self) -> str:
        """Waits for the end, dropping what still comes: "eof" or "reset"."""
        try:
            self.read_to_end()
        except ConnectionError:
            return "reset"
        return "eof"


# ---- what the kernel knows about a connection

_NETLINK_SOCK_DIAG = 4
_SOCK_DIAG_BY_FAMILY = 20


def unread_bytes(local: tuple, remote: tuple) -> int | None:
    """Bytes in the receive queue of the socket whose addresses these are; None if there is no such socket.

    Asks the kernel by sock_diag(7), one socket at a time. Where that is forbidden the answer is 0, and pieces
    may then be read together.
    """
    family = socket.AF_INET6 if ":" in local[0] else socket.AF_INET
    addresses = [socket.inet_pton(family, address[0]).ljust(16, b"\0") for address in (local, remote)]
    identity = (
        struct.pack("!HH", local[1], remote[1]) + b"".join(addresses) + struct.pack("=I", 0) + b"\xff" * 8
    )
    request = struct.pack("=BBBBI", family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF) + identity
    header = struct.pack("=IHHII", 16 + len(request), _SOCK_DIAG_BY_FAMILY, 1, 1, 0)
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _NETLINK_SOCK_DIAG) as diag:
            diag.send(header + request)
            answer = diag.recv(4096)
    except PermissionError:
        return 0
    if struct.unpack_from("=IH", answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    return struct.unpack_from("=II", answer, 16 + 4 + 48)[1]


def descriptors() -> dict[int, str]:
    """Open descriptors of this process and what they are, but for a sanitizer's own."""
    found = {}
    for path in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the directory's own
            found[int(path.name)] = str(path.readlink())
    own = ("/proc/", "/dev/shm/")
    return {n: what for n, what in found.items() if not what.startswith(own) and "/reports/" not in what}


def anonymous_memory() -> int:
    """Bytes of this process that are neither files nor shared; 0 under a sanitizer, whose own they are."""
    return _status("RssAnon")


def reserved_memory() -> int:
    """Bytes of this process's address space, touched or not; 0 under a sanitizer."""
    return _status("VmSize")


def _status(name: str) -> int:
    if "san.so" in os.environ.get("LD_PRELOAD", ""):
        return 0
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{name}:"))


# ---- messages


def response(
    status: int = 200,
    body: bytes = b"",
    *fields: tuple[str, str],
    length: bool = True,
    version: str = "1.1",
    reason: str = "OK",
) -> bytes:
    """A whole response."""
    lines = [f"HTTP/{version} {status} {reason}", *(f"{name}: {value}" for name, value in fields)]
    if length:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + body


def request(
    method: str = "GET",
    target: str = "/x",
    *fields: tuple[str, str],
    body: bytes | None = None,
    host: str | None = "router",
    version: str = "1.1",
) -> bytes:
    """A whole request; Content-Length when there is a body."""
    lines = [f"{method} {target} HTTP/{version}"]
    if host is not None:
        lines.append(f"Host: {host}")
    lines += [f"{name}: {value}" for name, value in fields]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join(lines).encode("latin-1") + b"\r\n\r\n" + (body or b"")


def chunked(*pieces: bytes) -> bytes:
    """A chunked body of these chunks."""
    return b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (*pieces, b""))


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)
