"""What tests of monitoring share: the board, the rules, and a router whose metrics they read."""

import contextlib
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from scripts.grafana_board import ROUTER, WORKER
from tests.fakes.harness import Client, Harness, RunningRouter
from vllm_router.testing import SimulatedWorker

ROOT = Path(__file__).parents[2]
BOARD = ROOT / "deploy" / "grafana" / "vllm-router.json"
RULES = ROOT / "deploy" / "prometheus"
CHAT = "/v1/chat/completions"


def panels() -> list[dict[str, Any]]:
    return json.loads(BOARD.read_text())["panels"]


def rules(name: str) -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((RULES / name).read_text())["groups"]
    return group["rules"]


def expressions() -> dict[str, list[str]]:
    """Those of each panel, as Grafana sends them where all jobs, instances and workers are chosen."""
    return {
        panel["title"]: [
            re.sub(r"\$(job|instance|worker)\b", ".*", target["expr"]) for target in panel["targets"]
        ]
        for panel in panels()
        if panel["type"] != "row"
    }


def selects(expression: str) -> bool:
    """Whether each of its selectors has the router's, or those of a worker too."""
    braces = re.findall(r"\{(.*?)\}", expression)
    return bool(braces) and all(inside.startswith((ROUTER, WORKER)) for inside in braces)


@contextlib.contextmanager
def running(harness: Harness) -> Iterator[tuple[RunningRouter, Client]]:
    """A router in front of two simulated workers."""
    with contextlib.ExitStack() as stack:
        workers = [stack.enter_context(SimulatedWorker(engine="instant")) for _ in range(2)]
        router = harness.router(*(worker.url for worker in workers), policy="auto", prometheus_port=0)
        yield router, harness.client(router)


def talk(client: Client) -> None:
    """A stream and a whole response that fill caches, and a response that is an error."""
    messages = [{"role": "user", "content": "again and again " * 100}]
    for model, stream, status in (
        ("simulated-model", True, 200),
        ("simulated-model", False, 200),
        ("none", False, 404),
    ):
        body = {"model": model, "stream": stream, "max_tokens": 4, "messages": messages}
        if stream:
            body["stream_options"] = {"include_usage": True}
        answer = client.ask("POST", CHAT, body=json.dumps(body).encode())
        assert answer.status == status, answer.body
