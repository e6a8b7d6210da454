"""Workers that list models and serve only these.

worker = ModelWorker(harness, "a", "b", adapters={"sql": "a"})
router = harness.router(worker, model_refresh_secs=30)
wait_until_known(router, "a", "b", "sql")
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.fakes.harness import Harness, RunningRouter
from tests.fakes.wire import Message, Wire, eventually, response


class ModelWorker:
    """`served`: the names in requests; those of models that it does not list are in `wrong`."""

    def __init__(self, harness: Harness, *models: str, adapters: dict[str, str] | None = None) -> None:
        self.cards: dict[str, str | None] = {**dict.fromkeys(models), **(adapters or {})}
        self.status = 200  # of GET /v1/models
        self.raw: bytes | None = None  # the list, if it is not made of the cards
        self.served: list[Any] = []
        self.wrong: list[Any] = []
        self.keys: set[str] = set()  # if there are any, all but /health needs one of them
        self.loadable: dict[str, str] = {}  # adapters that it loads once a request names them
        self.lists = 0  # requests for the list
        self.worker = harness.worker(self.answer)
        self.url = self.worker.url

    def answer(self, connection: Wire, message: Message) -> None:
        path = message.target.partition("?")[0]
        key = (message.get("authorization") or "").removeprefix("Bearer ")
        if self.keys and path != "/health" and key not in self.keys:
            connection.send(response(401, b'{"error": "Unauthorized"}'))
        elif path == "/v1/models":
            self.lists += 1
            connection.send(response(self.status, self._list()))
        elif message.method != "POST":
            connection.send(response(200, b"ok"))
        elif path.endswith("lora_adapter"):
            connection.send(self._adapter(path, json.loads(message.body)))
        else:
            self._serve(connection, message)

    def _list(self) -> bytes:
        if self.raw is not None:
            return self.raw
        data = [{"id": name, "object": "model", "parent": parent} for name, parent in self.cards.items()]
        return json.dumps({"object": "list", "data": data}).encode()

    def _adapter(self, path: str, body: dict[str, Any]) -> bytes:
        name = body["lora_name"]
        if "unload" in path:
            if name not in self.cards:
                return response(404, b'{"error": {"message": "not loaded"}}')
            del self.cards[name]
        else:
            self.cards[name] = next(iter(self.cards))
        return response(200, b"Success")

    def _serve(self, connection: Wire, message: Message) -> None:
        try:
            name = json.loads(message.body).get("model")
        except ValueError:
            found = re.search(rb'name="model"\r\n\r\n(.*?)\r\n', message.body)
            name = found[1].decode() if found else None
        if name in self.loadable:
            self.cards.setdefault(name, self.loadable[name])
        if name is None or name in self.cards:
            self.served.append(name)
            connection.send(response(200, json.dumps({"model": name, "by": self.url}).encode()))
        else:
            self.wrong.append(name)
            connection.send(response(404, b'{"error": {"message": "no such model here"}}'))


def listed(router: RunningRouter) -> int:
    """How many models the router knows workers of."""
    found = re.search(r"^vllm_router_models (\S+)$", router.server.metrics_text(), re.MULTILINE)
    return int(float(found[1])) if found else 0


def wait_until_all_listed(router: RunningRouter, *workers: ModelWorker) -> None:
    """Until the router knows all that they list."""
    pattern = r"^vllm_router_model_workers\{.*\} (\S+)$"

    def count() -> int:
        return sum(int(float(n)) for n in re.findall(pattern, router.server.metrics_text(), re.MULTILINE))

    eventually(lambda: count() == sum(len(worker.cards) for worker in workers), "some list is unknown")


def wait_until_known(router: RunningRouter, count: int) -> None:
    eventually(lambda: listed(router) == count, f"the router never knew {count} models")
