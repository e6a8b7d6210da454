"""Fake SGLang workers that share a pool, and what tests ask a router about it.

router = open_router(harness, master, harness.worker(HicacheEngine()))
master.store(TOKENS, page_size=16)
assert ask(harness, router).status == 200
assert hit_rate(router) == 1.0
"""

from __future__ import annotations

import json
import re
from typing import Any

from tests.fakes.wire import eventually, response

COMPLETIONS = "/v1/completions"
MODEL = "m"
TOKENS = list(range(1000, 1064))  # four blocks of 16
LAYOUT = {"page_size": 16, "is_mla_model": False}


class HicacheEngine:
    """A worker, and what the router reads of it. `info`: of GET /server_info; None: it has no such path."""

    def __init__(self, info: dict[str, Any] | None = None) -> None:
        self.info = info
        self.tokenized = 0
        self.hold: Any = None  # requests wait for this gate

    def __call__(self, connection: Any, message: Any) -> None:
        content: Any = {"usage": {"prompt_tokens": 64, "completion_tokens": 1}}
        status = 200
        if message.target == "/v1/models":
            content = {"data": [{"id": MODEL}, {"id": "adapter", "parent": MODEL}]}
        elif message.target == "/server_info" and self.info is not None:
            content = self.info
        elif message.target == "/tokenize":
            self.tokenized += 1
            content = {"tokens": TOKENS, "count": len(TOKENS)}
        elif message.method == "GET":
            status = 404
        elif b'"wait"' in message.body:
            self.hold.wait()
        connection.send(response(status, json.dumps(content).encode()))


def server_info(master: Any, **changes: Any) -> dict[str, Any]:
    """As SGLang has it."""
    extra = {"master_server_address": "127.0.0.1:50051", "master_metrics_port": master.port}
    return {
        "model_path": "org/m",
        "page_size": 16,
        "tp_size": 1,
        "pp_size": 1,
        "hicache_storage_backend": "mooncake",
        "hicache_storage_backend_extra_config": json.dumps(extra),
        **changes,
    }


def open_router(harness, master, *workers, layout=LAYOUT, multiplier=1.0, ready=True, **options):
    """A router; unless `ready` is false, it knows the pool when this returns."""
    settings = {
        "shared_cache_type": "hicache",
        "shared_cache_url": [] if master is None else [master.url],
        "shared_cache_layout": json.dumps(layout) if layout else None,
        "shared_cache_timeout_ms": 5_000,
        "decision_headers": True,
        **options,
    }
    settings = {name: value for name, value in settings.items() if value is not None}
    routing = {"seed": 1, "shared_cache_multiplier": multiplier}
    router = harness.router(*workers, policy="kv_logit", routing=routing, **settings)
    if ready:
        eventually(lambda: pool(harness, router)["page_size"] > 0, "the router never knew the pool")
    return router


def client_of(harness, router):
    """The same for all that a test asks."""
    if not hasattr(router, "pool_client"):
        router.pool_client = harness.client(router)
    return router.pool_client


def pool(harness, router) -> dict[str, Any]:
    found = client_of(harness, router).ask("GET", "/admin/kv-events")
    state: dict[str, Any] = json.loads(found.body)["shared_pool"]
    return state


def ask(harness, router, tokens=TOKENS, **body):
    """A request for these tokens; the last one is not in a full block."""
    body = {"model": MODEL, "prompt": [*tokens, 7], "max_tokens": 1, **body}
    return client_of(harness, router).ask("POST", COMPLETIONS, body=json.dumps(body).encode())


def figure(router, name: str, label: str = "") -> float:
    """A counter, or the sum or count of a histogram."""
    found = re.findall(
        rf"^{name}(?:\{{[^}}]*{label}[^}}]*\}})? (\S+)$", router.server.metrics_text(), re.MULTILINE
    )
    return sum(float(value) for value in found)


def hit_rates(router) -> tuple[float, float]:
    """How many, and their sum."""
    name = "router_shared_cache_hit_rate"
    return figure(router, f"{name}_count"), round(figure(router, f"{name}_sum"), 3)


def beyond(router) -> tuple[float, float]:
    name = "router_shared_cache_beyond_blocks"
    return figure(router, f"{name}_count"), figure(router, f"{name}_sum")


def errors(router, reason: str) -> float:
    return figure(router, "vllm_router_shared_cache_errors_total", f'reason="{reason}"')
