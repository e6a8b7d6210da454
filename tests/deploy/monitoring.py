"""What tests of monitoring share: the board, the rules, and a router whose metrics they read."""

import contextlib
import json
import re
import shutil
import socket
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.grafana_board import ROUTER, WORKER
from tests.fakes.harness import Client, Harness, RunningRouter
from tests.fakes.wire import eventually
from vllm_router.testing import SimulatedWorker

ROOT = Path(__file__).parents[2]
BOARD = ROOT / "deploy" / "grafana" / "vllm-router.json"
RULES = ROOT / "deploy" / "prometheus"
CHAT = "/v1/chat/completions"
PATIENCE = 40.0


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


def tool(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        pytest.fail(f"there is no {name}; install the Debian package prometheus")
    return program


class Prometheus:
    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/-/ready", timeout=5):
                return True
        except OSError:
            return False

    def series(self, expression: str) -> list[Any]:
        query = urllib.parse.urlencode({"query": expression})
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=10) as response:
                return json.load(response)["data"]["result"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{expression}: {error.read().decode()}") from None

    def firing(self, port: int) -> set[str]:
        """Of the target at that port."""
        wanted = {"alertstate": "firing", "instance": f"127.0.0.1:{port}"}
        return {
            each["metric"]["alertname"]
            for each in self.series("ALERTS")
            if wanted.items() <= each["metric"].items()
        }


def quickened(rules: str, minute: int) -> str:
    """The rules with so many seconds instead of each minute, and an hour of 60 of these."""
    factors = {"m": minute, "h": 60 * minute}
    return re.sub(
        r"(\[|: |offset )(\d+)([mh])(?=\]|$)",
        lambda found: f"{found[1]}{int(found[2]) * factors[found[3]]}s",
        rules,
        flags=re.MULTILINE,
    )


@contextlib.contextmanager
def prometheus(ports: list[int], directory: Path, minute: int = 60) -> Iterator[Prometheus]:
    """One that scrapes these ports every second, until the block ends. `minute`: of the rules, in seconds."""
    config = directory / "prometheus.yml"
    made = yaml.safe_load((RULES / "scrape.yml").read_text())
    made["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    for name in made["rule_files"]:
        (directory / name).write_text(quickened((RULES / name).read_text(), minute))
    made["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{port}" for port in ports]
    config.write_text(yaml.safe_dump(made))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    log = directory / "prometheus.log"
    command = [
        tool("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={directory / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with log.open("w") as output, subprocess.Popen(command, stdout=output, stderr=output) as process:
        try:
            made_one = Prometheus(port)
            eventually(
                lambda: process.poll() is not None or made_one.ready(), "Prometheus is not ready", PATIENCE
            )
            assert process.poll() is None, log.read_text()
            yield made_one
        finally:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
