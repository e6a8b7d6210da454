"""What tests of the response cache share: an engine whose responses differ each time, and how it is asked."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from tests.fakes.harness import Client, Harness, RunningRouter
from tests.fakes.redis_server import FakeRedis, RedisServer
from tests.fakes.wire import Message, chunk, chunked, eventually, request, response
from tests.fakes.worker import Connection, Gate

JSON = ("Content-Type", "application/json")
CHAT = "/v1/chat/completions"
MESSAGES = [{"role": "user", "content": "Hello!"}]
EVENTS = (
    b'data: {"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}\n\n',
    b'data: {"choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"stop"}]}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,"total_tokens":9}}\n\n',
    b"data: [DONE]\n\n",
)
FALLBACK = "continuum_cache_fallback_active"
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"

Send = Callable[[Connection, Message, int], None]


def body_of(**members: Any) -> bytes:
    return json.dumps({"model": "m", "messages": MESSAGES, "temperature": 0, **members}).encode()


def answer_of(number: int, reason: str | None = "stop") -> bytes:
    """What an engine says, with something that tells one time from the other."""
    choice = {"index": 0, "message": {"role": "assistant", "content": "hi"}, "finish_reason": reason}
    usage = {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
    return json.dumps({"id": f"chatcmpl-{number}", "choices": [choice], "usage": usage}).encode()


def send_answer(connection: Connection, message: Message, number: int) -> None:
    if b'"stream": true' in message.body:
        connection.send(STREAM, *(chunk(event) for event in EVENTS), chunked())
    else:
        connection.send(response(200, answer_of(number), JSON))


class Engine:
    """A worker that gives another response to each POST, of which it counts."""

    def __init__(self, harness: Harness, *, send: Send = send_answer) -> None:
        self._lock = threading.Lock()
        self.count = 0
        self._send = send
        self.worker = harness.worker(self._answer)
        self.url = self.worker.url

    def _answer(self, connection: Connection, message: Message) -> None:
        if message.method != "POST":
            connection.send(response(200, b"hello"))
            return
        with self._lock:
            self.count += 1
            number = self.count
        self._send(connection, message, number)


class GatedEngine(Engine):
    """Each of its responses waits for a gate of its own."""

    def __init__(self, harness: Harness, what: Callable[[int], bytes] | None = None) -> None:
        self._what = what or (lambda number: response(200, answer_of(number), JSON))
        self.gates: list[Gate] = []
        self._came = threading.Semaphore(0)
        super().__init__(harness, send=self._send_later)

    def _send_later(self, connection: Connection, _message: Message, number: int) -> None:
        gate = self.worker.gate()
        self.gates.append(gate)
        self._came.release()
        gate.wait()
        connection.send(self._what(number))

    def wait_for_request(self) -> None:
        assert self._came.acquire(timeout=10), "no request came"


def cached(harness: Harness, *workers: Any, **options: Any) -> RunningRouter:
    return harness.router(*workers, response_cache=True, **options)


def ask(client: Client, body: bytes | None = None, *fields: tuple[str, str], path: str = CHAT) -> Message:
    return client.ask("POST", path, JSON, *fields, body=body_of() if body is None else body)


def cache_of(message: Message) -> str | None:
    return message.get("x-cache")


def metric(router: RunningRouter, name: str) -> float:
    found = re.search(rf"^{re.escape(name)} (\S+)$", router.server.metrics_text(), re.MULTILINE)
    assert found, name
    return float(found[1])


def counted(router: RunningRouter, name: str) -> float:
    """Of all requests that were responded to."""
    router.must_rest()
    return metric(router, name)


def followers(router: RunningRouter) -> float:
    return metric(router, "vllm_router_response_cache_followers")


def led_and_followed(
    harness: Harness, router: RunningRouter, engine: GatedEngine, count: int
) -> tuple[Client, list[Client]]:
    """A client whose request is at the worker, and some that wait for its response."""
    leader = harness.client(router)
    leader.send(request("POST", CHAT, JSON, body=body_of()))
    engine.wait_for_request()
    others = []
    for number in range(1, count + 1):
        others.append(harness.client(router))
        others[-1].send(request("POST", CHAT, JSON, body=body_of()))
        eventually(lambda number=number: followers(router) == number)  # type: ignore[misc]
    return leader, others


# ---- in a Redis


def shared(harness: Harness, redis: Any, *workers: Any, **options: Any) -> RunningRouter:
    """A router whose cache is in Redis, once that may be used. `redis`: what has its URL."""
    router = harness.router(
        *workers, response_cache=True, response_cache_backend="redis", redis_url=redis.url, **options
    )
    if not isinstance(redis, FakeRedis):
        wait_until_used(harness, router)
    return router


def wait_until_used(harness: Harness, router: RunningRouter) -> None:
    """A response that is in no memory is found again only where Redis is used."""
    client = harness.client(router)
    probe = body_of(user=f"probe {time.monotonic_ns()}")

    def used() -> bool:
        if metric(router, FALLBACK):
            return False
        ask(client, probe)
        return entries_in_memory(client) == 0 and cache_of(ask(client, probe)) == "HIT"

    eventually(used, "Redis was never used")
    client.close()


def stats_of(client: Client) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(client.ask("GET", "/admin/response-cache/stats?detail=1").body)
    return found


def entries_in_memory(client: Client) -> int:
    return int(stats_of(client)["detail"]["memory"]["entries"])


def keys_of(redis: RedisServer) -> list[bytes]:
    return [key for key in redis.call("KEYS", "cr:resp:*") if b"~" not in key]


def kept(redis: RedisServer, count: int) -> None:
    eventually(lambda: len(keys_of(redis)) == count, f"{count} responses never came to Redis")
