"""Workers that say which engine they are, and hand blocks over as vLLM with NIXL does."""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.harness import Harness, RunningRouter
from tests.fakes.pd import WHOLE
from tests.fakes.wire import Message, Wire, response


class EngineWorker:
    def __init__(self, harness: Harness, engine: str) -> None:
        self.engine = engine
        self.raw: bytes | None = None  # the list, if not one model of the engine
        self.fails = False
        self.lists = 0
        self.worker = harness.worker(self._answer)
        self.url, self.port = self.worker.url, self.worker.port

    @property
    def posts(self) -> list[dict[str, Any]]:
        return [json.loads(one.body) for one in self.worker.requests if one.method == "POST"]

    def _answer(self, connection: Wire, message: Message) -> None:
        if message.target == "/v1/models":
            self.lists += 1
            data = [{"id": "m", "object": "model", "owned_by": self.engine}]
            body = json.dumps({"object": "list", "data": data}).encode() if self.raw is None else self.raw
            connection.send(response(500 if self.fails else 200, body))
        elif message.method != "POST":
            connection.send(response(200, b"hello"))
        else:
            connection.send(response(200, WHOLE))


def auto_router(harness: Harness, prefill: Any, decode: Any, **options: Any) -> RunningRouter:
    routing = {
        "prefill_urls": [(worker.url, 8998) for worker in prefill],
        "decode_urls": [worker.url for worker in decode],
    }
    return harness.router(routing=routing, **{"kv_connector": "auto", **options})


def ready(harness: Harness, router: RunningRouter) -> bool:
    client = harness.client(router)
    status = client.ask("GET", "/readiness").status
    client.close()
    return status == 200
