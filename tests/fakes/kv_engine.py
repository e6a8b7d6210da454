"""A fake engine that names a publisher of KV events, and what tests ask a router about it.

publisher = KvEventPublisher()
router = open_router(harness, harness.worker(Engine(publisher)))
publisher.stored(TOKENS)
wait_for(harness, router, gpu_blocks=4, trust="exact")
assert claim(harness, router) == (4, worker.url)
"""

from __future__ import annotations

import json
from typing import Any

from tests.fakes.wire import eventually, response
from vllm_router.testing import KvEventPublisher

COMPLETIONS = "/v1/completions"
MODEL = "m"
TOKENS = list(range(1000, 1064))  # four blocks of 16


class Engine:
    """A worker that names its publisher, and what else the router reads of it."""

    def __init__(
        self, publisher: KvEventPublisher | None = None, rank: int = 0, gpu_blocks: int | None = None
    ) -> None:
        self.publisher = publisher
        self.rank = rank
        self.gpu_blocks = gpu_blocks  # of its cache, as its metrics say
        self.tokenized = 0

    def report(self) -> dict[str, Any]:
        if self.publisher is None:
            return {}
        return {
            str(self.rank): {
                "enable_kv_cache_events": True,
                "publisher": "zmq",
                "endpoint": self.publisher.endpoint.replace("127.0.0.1", "*"),
                "replay_endpoint": (self.publisher.replay_endpoint or "").replace("127.0.0.1", "*"),
                "buffer_steps": 10_000,
                "topic": "",
            }
        }

    def __call__(self, connection: Any, message: Any) -> None:
        content: Any = {"usage": {"prompt_tokens": 64, "completion_tokens": 1}}
        status = 200
        if message.target == "/kv_event_sources":
            content = self.report()
        elif message.target == "/v1/models":
            content = {"data": [{"id": MODEL}, {"id": "other-name"}, {"id": "adapter", "parent": MODEL}]}
        elif message.target == "/tokenize":
            self.tokenized += 1
            content = {"tokens": TOKENS, "count": len(TOKENS)}
        elif message.target == "/reset_prefix_cache":
            content = {}
        elif message.target == "/metrics" and self.gpu_blocks is not None:
            labels = f'engine="{self.rank}",num_gpu_blocks="{self.gpu_blocks}",block_size="16"'
            connection.send(response(200, f"vllm:cache_config_info{{{labels}}} 1.0\n".encode()))
            return
        elif message.method == "GET":
            status = 404
        connection.send(response(status, json.dumps(content).encode()))


def open_router(harness, *workers, policy="auto", routing=None, **options):
    settings = {"kv_events": "on", "decision_headers": True, **options}
    return harness.router(*workers, policy=policy, routing={"seed": 1, **(routing or {})}, **settings)


def client_of(harness, router):
    """The same for all that a test asks."""
    if not hasattr(router, "kv_client"):
        router.kv_client = harness.client(router)
    return router.kv_client


def sources(harness, router):
    return json.loads(client_of(harness, router).ask("GET", "/admin/kv-events").body)["sources"]


def wait_for(harness, router, **expected):
    """The first source has these values."""
    found = []

    def reached():
        found[:] = sources(harness, router)
        return bool(found) and all(found[0][name] == value for name, value in expected.items())

    eventually(reached, f"never {expected}")
    return found[0]


def claim(harness, router, tokens=TOKENS, model=MODEL, **body):
    """Blocks that the chosen worker is said to hold, and its URL."""
    body = {"model": model, "prompt": [*tokens, 7], "max_tokens": 1, **body}
    found = client_of(harness, router).ask("POST", COMPLETIONS, body=json.dumps(body).encode())
    assert found.status == 200
    status = found.get("x-vllm-router-cache-status")
    return int(status.split("/")[0]), found.get("x-vllm-router-worker")
