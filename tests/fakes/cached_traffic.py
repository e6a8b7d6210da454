"""Clients and a worker for the soak of the response cache: processes, fast enough for millions of requests.

A request is a number, which says who sends what and whether as a stream. What the worker responds is a digest
of the request and of who sent it, so a client that knows both finds any other body. It also has the round of
the time it was made in: rounds end with invalidations, after which no response of an older one may come.
"""

from __future__ import annotations

import contextlib
import ctypes
import hashlib
import multiprocessing
import random
import selectors
import socket
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from typing import Any

CLIENTS = 2  # processes
CONNECTIONS = 32  # of each
PROCESSES = multiprocessing.get_context("spawn")

TENANT = b"Authorization: Bearer "
PATH = b"POST /v1/chat/completions HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
WORDS = b"the permission users offer developers license " * 5
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
EVENT = (
    b'data: {"id":"chatcmpl-%08d","choices":[{"index":0,"delta":{"content":"%s"},"finish_reason":%s}]}\n\n'
)
DONE = b"data: [DONE]\n\n"
RESPONSE = (
    b'{"id":"chatcmpl-%08d","choices":[{"index":0,"message":{"role":"assistant","content":"%s"},'
    b'"finish_reason":"stop"}],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}'
)


class Progress:
    """What the processes tell each other, in memory that they share; each number has one writer."""

    def __init__(self) -> None:
        self._numbers: Any = PROCESSES.RawArray(ctypes.c_uint64, 3 + CLIENTS)

    @property
    def round(self) -> int:
        """What the worker writes into responses."""
        return self._numbers[0]

    @property
    def oldest(self) -> int:
        """The round of the oldest response that a request sent from now on may get."""
        return self._numbers[1]

    @property
    def stopped(self) -> bool:
        return self._numbers[2] != 0

    def begin_round(self) -> None:
        self._numbers[0] += 1

    def end_older_rounds(self) -> None:
        self._numbers[1] = self._numbers[0]

    def stop(self) -> None:
        self._numbers[2] = 1

    def count(self, client: int, requests: int) -> None:
        self._numbers[3 + client] += requests

    def sent(self) -> int:
        return sum(self._numbers[3:])


# ---- what is said


@dataclass(frozen=True)
class Asked:
    """A request and the digest that its response has to have."""

    wire: bytes
    digest: bytes
    stream: bool
    bypass: bool


def digest_of(tenant: bytes, body: bytes) -> bytes:
    return hashlib.sha256(b"%d %s %s" % (len(tenant), tenant, body)).hexdigest().encode()


def asked(number: int, bypass: bool = False) -> Asked:
    """Texts are said twice, by two tenants; one in ten as a stream."""
    tenant, text = b"ab"[number >> 1 & 1 :][:1], (number >> 2) * 2 + (number & 1)
    stream = text % 20 in (2, 13)
    body = b'{"model":"m","temperature":%d,"stream":%s,"messages":[{"role":"user","content":"%d %s"}]}' % (
        bypass,
        b"true" if stream else b"false",
        text,
        WORDS,
    )
    head = b"%s%s%s\r\nContent-Length: %d\r\n\r\n" % (PATH, TENANT, tenant, len(body))
    return Asked(head + body, digest_of(tenant, body), stream, bypass)


def content_of(digest: bytes) -> bytes:
    return digest * (100 if digest[:1] == b"0" else 1)


def events_of(digest: bytes, made: int) -> tuple[bytes, bytes]:
    """The first, and all others."""
    content = content_of(digest)
    first = EVENT % (made, content, b"null")
    return first, first * 3 + EVENT % (made, content, b'"stop"') + DONE


def is_right(body: bytes, request: Asked, oldest: int) -> bool:
    at = body.find(b"chatcmpl-") + 9
    if at < 9 or not body[at : at + 8].isdigit():
        return False
    made = int(body[at : at + 8])
    if request.stream:
        expected = b"".join(events_of(request.digest, made))
    else:
        expected = RESPONSE % (made, content_of(request.digest))
    return body == expected and made >= oldest


# ---- the worker


def respond(client: socket.socket, request: bytes, end: int, made: int) -> None:
    at = request.find(TENANT) + len(TENANT)
    digest = digest_of(request[at : request.find(b"\r\n", at)], request[end:])
    if b'"stream":true' in request:
        first, rest = events_of(digest, made)
        client.sendall(STREAM_HEAD + b"%x\r\n%s\r\n" % (len(first), first))
        client.sendall(b"%x\r\n%s\r\n0\r\n\r\n" % (len(rest), rest))
    else:
        body = RESPONSE % (made, content_of(digest))
        client.sendall(JSON_HEAD % len(body) + body)


def serve(stop: Connection, progress: Progress) -> None:
    """Until the other end of `stop` closes; on one thread, since all there is to do is to write."""
    with contextlib.ExitStack() as stack:
        ready = stack.enter_context(selectors.DefaultSelector())
        listener = stack.enter_context(socket.create_server(("127.0.0.1", 0), backlog=1024))
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # which accepted sockets inherit
        ready.register(stop, selectors.EVENT_READ)
        ready.register(listener, selectors.EVENT_READ)
        stop.send(listener.getsockname()[1])
        unread: dict[socket.socket, bytes] = {}
        stack.callback(lambda: [client.close() for client in unread])
        while True:
            for key, _ in ready.select():
                client: Any = key.fileobj
                if client is stop:
                    return
                if client is listener:
                    accepted = listener.accept()[0]
                    ready.register(accepted, selectors.EVENT_READ)
                    unread[accepted] = b""
                    continue
                try:
                    more = client.recv(1 << 16)
                    unread[client] = data = unread[client] + more
                    end = data.find(b"\r\n\r\n") + 4
                    if end >= 4 and len(data) >= end + int(field_of(data[:end], b"content-length") or 0):
                        unread[client] = b""
                        respond(client, data, end, progress.round)
                except OSError:  # the router's client has left
                    more = b""
                if not more:
                    ready.unregister(client)
                    del unread[client]
                    client.close()


@contextlib.contextmanager
def worker(progress: Progress) -> Iterator[str]:
    """Its URL."""
    here, there = PROCESSES.Pipe()
    process = PROCESSES.Process(target=serve, args=(there, progress), daemon=True)
    process.start()
    there.close()
    try:
        yield f"http://127.0.0.1:{here.recv()}"
    finally:
        here.close()
        process.join()
        process.close()


# ---- clients


@dataclass
class Seen:
    outcomes: Counter[str] = field(default_factory=Counter)  # by X-Cache, and "left"
    wrong: list[tuple[bytes, bytes]] = field(default_factory=list)


def field_of(head: bytes, name: bytes) -> bytes | None:
    at = head.lower().find(b"\r\n%s: " % name)
    if at < 0:
        return None
    at += len(name) + 4
    end = head.find(b"\r\n", at)
    return head[at : end if end >= 0 else len(head)]


def read_response(client: socket.socket) -> tuple[bytes, bytes]:
    """Head and body of the one response that comes."""

    def more() -> bytes:
        arrived = client.recv(1 << 16)
        assert arrived, f"closed after {data!r}"
        return arrived

    data = b""
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += more()
    head, at = data[:end], end + 4
    length = field_of(head, b"content-length")
    if length is not None:
        while len(data) < at + int(length):
            data += more()
        assert len(data) == at + int(length), "bytes behind the response"
        return head, data[at:]
    pieces = []
    while True:
        while (line := data.find(b"\r\n", at)) < 0:
            data += more()
        size, at = int(data[at:line], 16), line + 2
        while len(data) < at + size + 2:
            data += more()
        assert data[at + size : at + size + 2] == b"\r\n"
        if size == 0:
            assert len(data) == at + 2, "bytes behind the response"
            return head, b"".join(pieces)
        pieces.append(data[at : at + size])
        at += size + 2


class Client:
    """Sends a request on each of its connections, then reads the responses."""

    def __init__(self, port: int, index: int, seed: int, progress: Progress) -> None:
        self._port = port
        self._index = index
        self._dice = random.Random(seed * CLIENTS + index)
        self._progress = progress
        self._fresh = 0
        self._last = index
        self.seen = Seen()

    def run(self) -> Seen:
        clients = [self._connect() for _ in range(CONNECTIONS)]
        while not self._progress.stopped:
            oldest = self._progress.oldest
            sent = [self._send(client) for client in clients]
            for place, request in enumerate(sent):
                if request is None:
                    clients[place] = self._connect()
                else:
                    self._read(clients[place], request, oldest)
            self._progress.count(self._index, len(sent))
        for client in clients:
            client.close()
        return self.seen

    def _connect(self) -> socket.socket:
        client = socket.create_connection(("127.0.0.1", self._port), timeout=60)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return client

    def _next(self) -> Asked:
        chosen = self._dice.random()
        if chosen < 0.5:
            self._last = self._fresh * CLIENTS + self._index
            self._fresh += 1
        elif chosen > 0.6:  # else the last one once more, while it is under way
            self._last = max(0, self._last - self._dice.randrange(256 * CLIENTS))
        return asked(self._last, bypass=0.57 < chosen < 0.6)

    def _send(self, client: socket.socket) -> Asked | None:
        """None where the client has left."""
        request = self._next()
        if self._dice.random() > 0.01:
            client.sendall(request.wire)
            return request
        client.sendall(request.wire[: self._dice.choice([200, None])])
        if self._dice.random() < 0.5:  # by then the worker may have begun to respond
            client.settimeout(0.001)
            with contextlib.suppress(TimeoutError):
                client.recv(100)
        client.close()
        self.seen.outcomes["left"] += 1
        return None

    def _read(self, client: socket.socket, request: Asked, oldest: int) -> None:
        head, body = read_response(client)
        cache = (field_of(head, b"x-cache") or b"none").decode()
        self.seen.outcomes[cache] += 1
        good = head.startswith(b"HTTP/1.1 200 ") and (cache == "BYPASS") == request.bypass
        if not (good and is_right(body, request, oldest)) and len(self.seen.wrong) < 10:
            self.seen.wrong.append((request.wire, head + b"\r\n\r\n" + body))


def run_client(port: int, index: int, seed: int, progress: Progress, results: Connection) -> None:
    with results:
        results.send(Client(port, index, seed, progress).run())
