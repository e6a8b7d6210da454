"""Fleets of two stages: what a prefill worker with NIXL says of its blocks, and routers before both."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from tests.fakes.harness import Client, Harness, RunningRouter
from tests.fakes.wire import Message, response
from tests.fakes.worker import FakeWorker

PARAMETERS = {
    "remote_block_ids": [[1]],
    "remote_engine_id": "e",
    "remote_request_id": "r",
    "remote_host": "h",
    "remote_port": 1,
}


def prefill_response(parameters: Any, **more: Any) -> bytes:
    """The body of a response that hands them over."""
    choices = [{"finish_reason": "length"}]
    return json.dumps({"choices": choices, "kv_transfer_params": parameters, **more}).encode()


WHOLE = prefill_response(PARAMETERS)


def handing_over(harness: Harness, **more: Any) -> FakeWorker:
    """A prefill worker, whose responses have these members, too."""
    body = prefill_response(PARAMETERS, **more)
    return harness.worker(lambda connection, _: connection.send(response(200, body)))


def responding(harness: Harness, status: int = 200, body: bytes = b"{}") -> FakeWorker:
    """A worker that always says the same."""
    return harness.worker(lambda connection, _: connection.send(response(status, body)))


def staged(harness: Harness, prefill: Sequence[Any], decode: Sequence[Any], **options: Any) -> RunningRouter:
    """A router before workers of both stages, without pauses between attempts."""
    routing = {
        "prefill_urls": [worker.url for worker in prefill],
        "decode_urls": [worker.url for worker in decode],
    }
    quick = {"disable_retries": False, "retry_initial_backoff_ms": 1, "retry_max_backoff_ms": 20}
    return harness.router(routing=routing, **(quick | options))


def ask(client: Client, path: str = "/v1/completions", **body: Any) -> Message:
    """The response to this request."""
    prompt = {"messages": [{"role": "user", "content": "hi"}]} if "chat" in path else {"prompt": "hi"}
    data = json.dumps({"model": "m", **prompt, **body}).encode()
    return client.ask("POST", path, ("Content-Type", "application/json"), body=data)


def series(router: RunningRouter, name: str) -> dict[str, float]:
    """Of a metric with one label: the values that are not 0, by the label's."""
    pattern = rf'^vllm_router_{name}{{\w+="([^"]*)"}} (\S+)$'
    found = re.findall(pattern, router.server.metrics_text(), re.MULTILINE)
    return {label: float(value) for label, value in found if float(value)}
