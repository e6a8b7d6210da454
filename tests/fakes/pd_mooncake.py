"""Scripted workers of a pair with vLLM's MooncakeConnector.

    fabric = Fabric()
    prefill, decode = MooncakePrefill(harness, fabric), MooncakeDecode(harness, fabric)
    router = mooncake_pair(harness, prefill, decode=[decode])

A prefill worker is its own bootstrap server (GET /query), and its engine id changes with `restart()`. It
sends the blocks of a request, under the transfer's id, only if the request ends by its length. A decode
worker waits for them: it fails if the engine is not the one that runs there, or if none come in time; and
what it says is the prompt of the blocks that came, or GARBAGE if that is not the prompt of its own request.
"""

from __future__ import annotations

import json
import threading
from typing import Any

from tests.fakes.harness import Client, Harness, RunningRouter
from tests.fakes.wire import Message, chunk, chunked, eventually, request, response
from tests.fakes.worker import Connection, Gate

ON = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 20}
STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


class Fabric:
    """What has been sent, by engine and transfer."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._sent: dict[tuple[str, str], str] = {}
        self._engines: set[str] = set()

    def start(self, engine: str) -> None:
        with self._changed:
            self._engines.add(engine)

    def end(self, engine: str) -> None:
        with self._changed:
            self._engines.discard(engine)

    def send(self, engine: str, transfer: str, prompt: str) -> None:
        with self._changed:
            self._sent[engine, transfer] = prompt
            self._changed.notify_all()

    def wait(self, engine: str, transfer: str, seconds: float) -> str | None:
        """The prompt whose blocks came; None: no such engine, or none in time."""
        with self._changed:
            if engine not in self._engines:
                return None
            self._changed.wait_for(lambda: (engine, transfer) in self._sent, seconds)
            return self._sent.get((engine, transfer))


class MooncakePrefill:
    def __init__(self, harness: Harness, fabric: Fabric, ranks: int = 1) -> None:
        self.fabric = fabric
        self.generation = 0
        self.ranks = list(range(ranks))
        self.query: Any = None  # another response to GET /query: bytes, or a function of the connection
        self.queries: list[Message] = []
        self.status = 200
        self.respond: Gate | None = None  # shut: the blocks have been sent, the response has not
        self.worker = harness.worker(self._answer)
        self.url, self.port = self.worker.url, self.worker.port
        self.engines = self._start()

    def _start(self) -> dict[int, str]:
        engines = {rank: f"engine-{self.port}-{rank}-{self.generation}" for rank in self.ranks}
        for engine in engines.values():
            self.fabric.start(engine)
        return engines

    def restart(self) -> None:
        for engine in self.engines.values():
            self.fabric.end(engine)
        self.generation += 1
        self.engines = self._start()

    def shut(self) -> Gate:
        self.respond = self.worker.gate()
        return self.respond

    @property
    def posts(self) -> list[dict[str, Any]]:
        return [json.loads(one.body) for one in self.worker.requests if one.method == "POST"]

    def _answer(self, connection: Connection, message: Message) -> None:
        if message.target == "/query":
            self.queries.append(message)
            if callable(self.query):
                self.query(connection)
            else:
                ids = {str(rank): {"engine_id": engine} for rank, engine in self.engines.items()}
                connection.send(response(200, json.dumps(ids).encode() if self.query is None else self.query))
            return
        if message.method != "POST":
            connection.send(response(200, b"hello"))
            return
        body = json.loads(message.body)
        if self.status == 200:
            self._send_blocks(body, int(message.get("x-data-parallel-rank") or 0))
        if self.respond is not None:
            self.respond.wait()
        text = {"choices": [{"finish_reason": "length", "text": "x"}], "kv_transfer_params": None}
        connection.send(response(self.status, json.dumps(text).encode()))

    def _send_blocks(self, body: dict[str, Any], rank: int) -> None:
        parameters = body.get("kv_transfer_params") or {}
        by_length = body.get("max_tokens") == 1 and body.get("ignore_eos") is True and "stop" not in body
        if parameters.get("do_remote_decode") and by_length:
            self.fabric.send(self.engines[rank], parameters["transfer_id"], body["prompt"])


class MooncakeDecode:
    def __init__(self, harness: Harness, fabric: Fabric, patience: float = 10.0) -> None:
        self.fabric = fabric
        self.patience = patience
        self.failing = False
        self.go_on: Gate | None = None  # shut: of a stream, only the first event has been sent
        self.worker = harness.worker(self._answer)
        self.url, self.port = self.worker.url, self.worker.port

    def shut(self) -> Gate:
        self.go_on = self.worker.gate()
        return self.go_on

    @property
    def posts(self) -> list[dict[str, Any]]:
        return [json.loads(one.body) for one in self.worker.requests if one.method == "POST"]

    def _answer(self, connection: Connection, message: Message) -> None:
        if message.method != "POST":
            connection.send(response(200, b"hello"))
            return
        body = json.loads(message.body)
        parameters = body.get("kv_transfer_params")
        text = f"local {body['prompt']}"
        if parameters is not None:
            came = None
            if not self.failing:
                came = self.fabric.wait(
                    parameters["remote_engine_id"], parameters["transfer_id"], self.patience
                )
            if came is None:
                connection.send(response(500, b'{"error":{"message":"transfer failed","code":500}}'))
                return
            text = f"transferred {came}" if came == body["prompt"] else "GARBAGE"
        if not body.get("stream"):
            connection.send(response(200, json.dumps({"choices": [{"text": text}]}).encode()))
            return
        connection.send(STREAM + chunk(f"data: {text}\n\n".encode()))
        if self.go_on is not None:
            self.go_on.wait()
        connection.send(chunked(b"data: [DONE]\n\n"))


def mooncake_router(harness: Harness, prefill: Any, decode: Any, **options: Any) -> RunningRouter:
    """`prefill`, `decode`: lists of workers. Nothing is known of them yet."""
    routing = {
        "prefill_urls": [(worker.url, worker.port) for worker in prefill],
        "decode_urls": [worker.url for worker in decode],
    }
    return harness.router(routing=routing, **{**ON, "kv_connector": "mooncake", **options})


def wait_until_chosen(router: RunningRouter, harness: Harness, count: int = 1) -> None:
    """So many prefill workers may be chosen."""
    client = harness.client(router)

    def chosen() -> bool:
        return bool(json.loads(client.ask("GET", "/readiness").body)["prefill"]["healthy"] == count)

    eventually(chosen, f"never {count} prefill workers")
    client.close()


def mooncake_pair(harness: Harness, *prefill: MooncakePrefill, decode: Any, **options: Any) -> RunningRouter:
    router = mooncake_router(harness, prefill, decode, **options)
    wait_until_chosen(router, harness, len(prefill))
    return router


BODY = {"model": "m", "prompt": "hello", "max_tokens": 7, "stop": ["x"], "stop_token_ids": [3]}


def send(client: Client, **more: Any) -> None:
    client.send(request("POST", "/v1/completions", body=json.dumps(BODY | more).encode()))


def ask(client: Client, **more: Any) -> Message:
    send(client, **more)
    return client.read_response()


def text(message: Message) -> str:
    assert message.status == 200, message.body
    return str(json.loads(message.body)["choices"][0]["text"])
