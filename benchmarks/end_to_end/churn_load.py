"""Clients that check every byte of what they get, for churn.py: one process, one line of JSON per failure.

    python benchmarks/end_to_end/churn_load.py --port 30000 --requests 1000 --clients 32

Each client is a connection that sends its next request as soon as it has its response. Three of ten responses
are streams. The last line has the counts. Times are seconds of the monotonic clock, which churn.py shares.
"""

from __future__ import annotations

import argparse
import asyncio
import collections
import json
import random
import time
from typing import Any

STREAMS = 0.3
HUNG_SECS = 60.0  # far beyond what any response takes here
LONGEST_TEXT = 300


def body_of(stream: bool, tokens: int) -> bytes:
    """One without its number, which stands in the prompt instead of %08d."""
    prompt = "Conversation %08d: " + "tell me more " * 8
    return json.dumps({"model": "sim", "stream": stream, "max_tokens": tokens, "prompt": prompt}).encode()


def request_of(body: bytes, number: int) -> bytes:
    body = body % number
    return (
        b"POST /v1/completions HTTP/1.1\r\nHost: churn\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )


def dechunked(body: bytes) -> bytes | None:
    """What the chunks hold; None if they are not well formed, or something is behind the last one."""
    parts, at = [], 0
    while True:
        end = body.find(b"\r\n", at)
        if end < 0:
            return None
        size = int(body[at:end], 16)
        at = end + 2
        if body[at + size : at + size + 2] != b"\r\n":
            return None
        if size == 0:
            return b"".join(parts) if at + 2 == len(body) else None
        parts.append(body[at : at + size])
        at += size + 2


def mistake_of(stream: bool, tokens: int, body: bytes) -> str:
    """What is wrong with a whole response; empty: nothing."""
    if stream:
        events = body.split(b"\n\n")
        if events[-2:] != [b"data: [DONE]", b""]:
            return "a stream that ends without [DONE]"
        texts = sum(b'"text"' in event for event in events)
        return "" if texts >= tokens else f"a stream of {texts} events instead of {tokens}"
    try:
        made = json.loads(body)["usage"]["completion_tokens"]
    except (ValueError, KeyError, TypeError):
        return "a body that is no completion"
    return "" if made == tokens else f"{made} tokens instead of {tokens}"


class Client(asyncio.Protocol):
    """One connection, and the request it waits for."""

    def __init__(self, load: Load) -> None:
        self.load = load
        self.transport: asyncio.Transport | None = None
        self.waiting = False
        self.begun = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.load.clients.add(self)
        self._next()

    def _next(self) -> None:
        assert self.transport is not None
        if not self.load.take():
            self.transport.close()
            return
        self.stream, self.tokens, request = self.load.draw()
        self.parts: list[bytes] = []
        self.head = b""
        self.status = 0
        self.length: int | None = None
        self.got = 0
        self.waiting = True
        self.begun = time.monotonic()
        self.transport.write(request)

    def data_received(self, data: bytes) -> None:
        if not self.waiting:
            self._failed("bytes behind a response", data)
            return
        if self.status == 0:
            self.head += data
            end = self.head.find(b"\r\n\r\n")
            if end < 0:
                return
            data = self.head[end + 4 :]
            self.head = self.head[: end + 4].lower()
            self.status = int(self.head[9:12])
            length = self._field(b"content-length")
            self.length = int(length) if length else None
        self.parts.append(data)
        self.got += len(data)
        if self.length is not None:
            if self.got >= self.length:
                self._ended(b"".join(self.parts))
        elif data.endswith(b"0\r\n\r\n") or len(data) < 5:
            body = b"".join(self.parts)
            if body.endswith(b"\r\n0\r\n\r\n"):
                self._ended(dechunked(body))

    def _field(self, name: bytes) -> bytes:
        at = self.head.find(b"\r\n" + name + b": ")
        return self.head[at + len(name) + 4 : self.head.find(b"\r\n", at + 2)] if at >= 0 else b""

    def _ended(self, body: bytes | None) -> None:
        self.waiting = False
        counts = self.load.counts
        if self.status != 200:
            self._failed(f"status {self.status}", body or b"")
            return
        mistake = "chunks that are not well formed" if body is None else ""
        if body is not None:
            mistake = mistake_of(self.stream, self.tokens, body)
        if mistake:
            self._failed(mistake, body or b"")
            return
        counts["streams" if self.stream else "whole"] += 1
        counts["attempts"] += int(self._field(b"x-vllm-router-attempts") or b"1")
        self._next()

    def _failed(self, what: str, body: bytes) -> None:
        self.waiting = False
        self.load.failed(self, what, body)
        assert self.transport is not None
        self.transport.abort()

    def hung(self) -> None:
        self._failed("no response", b"".join(self.parts))

    def connection_lost(self, _error: Exception | None) -> None:
        if self.waiting:
            self.waiting = False
            what = "cut" if self.status == 200 else "closed before a response"
            self.load.failed(self, what, b"".join(self.parts))
        self.load.lost(self)

    def facts(self) -> dict[str, Any]:
        return {
            "begun": self.begun,
            "ended": time.monotonic(),
            "stream": self.stream,
            "worker": self._field(b"x-vllm-router-worker").decode(),
            "attempts": self._field(b"x-vllm-router-attempts").decode(),
        }


class Load:
    """All clients."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.left = args.requests
        self.counts: collections.Counter[str] = collections.Counter()
        self.deadline = time.monotonic() + args.seconds
        self.clients: set[Client] = set()
        self.done = asyncio.Event()
        self.tasks: set[asyncio.Task[None]] = set()
        self.generator = random.Random(args.seed)
        self.streams = [(True, tokens, body_of(True, tokens)) for tokens in range(5, 31)]
        self.wholes = [(False, tokens, body_of(False, tokens)) for tokens in range(1, 9)]

    def take(self) -> bool:
        if self.left <= 0 or time.monotonic() > self.deadline:
            return False
        self.left -= 1
        self.counts["sent"] += 1
        return True

    def draw(self) -> tuple[bool, int, bytes]:
        """A request, and what its response must be."""
        # The kind follows from the number, so that there are as many bodies as there are numbers.
        number = self.counts["sent"] if self.args.bodies == 0 else self.generator.randrange(self.args.bodies)
        streams = number * 7 % 10 < STREAMS * 10
        kinds = self.streams if streams else self.wholes
        stream, tokens, body = kinds[number % len(kinds)]
        return stream, tokens, request_of(body, number)

    def failed(self, client: Client, what: str, body: bytes) -> None:
        self.counts["failed"] += 1
        text = body[-LONGEST_TEXT:].decode("utf-8", "replace")
        print(json.dumps({"what": what, "text": text} | client.facts()), flush=True)

    def lost(self, client: Client) -> None:
        self.clients.discard(client)
        if self.left > 0 and time.monotonic() <= self.deadline:
            self._open()
        elif not self.clients and not self.tasks:
            self.done.set()

    def _open(self) -> None:
        task = asyncio.get_running_loop().create_task(self._connect())
        self.tasks.add(task)

    async def _connect(self) -> None:
        try:
            loop = asyncio.get_running_loop()
            await loop.create_connection(lambda: Client(self), "127.0.0.1", self.args.port)
        except OSError as error:
            self.counts["sent"] += 1
            self.counts["failed"] += 1
            now = time.monotonic()
            print(json.dumps({"what": "no connection", "text": str(error), "begun": now, "ended": now}))
            await asyncio.sleep(0.1)
            self._open()
        finally:
            task = asyncio.current_task()
            assert task is not None
            self.tasks.discard(task)

    async def run(self) -> None:
        begun = time.monotonic()
        for _ in range(self.args.clients):
            self._open()
        while not self.done.is_set():
            try:
                await asyncio.wait_for(self.done.wait(), 1.0)
            except asyncio.TimeoutError:
                now = time.monotonic()
                for client in list(self.clients):
                    if client.waiting and now - client.begun > HUNG_SECS:
                        client.hung()
                if not self.clients and not self.tasks:
                    break
        print(json.dumps({"counts": self.counts, "seconds": time.monotonic() - begun}), flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=3600, help="the longest it may take")
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--bodies", type=int, default=0, help="how many different ones; 0: all are")
    parser.add_argument("--seed", type=int, default=1)
    await Load(parser.parse_args()).run()


if __name__ == "__main__":
    asyncio.run(main())
