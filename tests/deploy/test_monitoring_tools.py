"""The rules through promtool, and the board's expressions through a Prometheus that scrapes a router."""

import contextlib
import json
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

from tests.deploy.monitoring import RULES, expressions, rules, running, talk
from tests.fakes.harness import Harness
from tests.fakes.wire import eventually

pytestmark = pytest.mark.release

# Panels whose expressions need more than traffic.
EMPTY = {
    "KV events received": "a worker that publishes KV events",
    "KV event sources by state": "the same",
    "Rejected requests": "a request that is not admitted",
}
PATIENCE = 40.0


def tool(name: str) -> str:
    program = shutil.which(name)
    if program is None:
        pytest.fail(f"there is no {name}; install the Debian package prometheus")
    return program


@pytest.mark.parametrize(
    "arguments",
    [
        ("check", "rules", RULES / "alerts.yml", RULES / "recording.yml"),
        ("check", "config", RULES / "scrape.yml"),
        ("test", "rules", Path(__file__).with_name("alerts_test.yml")),
    ],
    ids=["rules", "config", "alerts"],
)
def test_promtool_is_content(arguments: tuple[str | Path, ...]) -> None:
    done = subprocess.run(
        [tool("promtool"), *arguments], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


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
            with urllib.request.urlopen(f"{self.url}/api/v1/query?{query}", timeout=10) as answer:
                return json.load(answer)["data"]["result"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(f"{expression}: {error.read().decode()}") from None


@contextlib.contextmanager
def prometheus(target: int, directory: Path) -> Iterator[Prometheus]:
    """One that scrapes a port every second, until the block ends."""
    config = directory / "prometheus.yml"
    made = yaml.safe_load((RULES / "scrape.yml").read_text())
    made["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
    made["rule_files"] = [str(RULES / name) for name in made["rule_files"]]
    made["scrape_configs"][0]["static_configs"][0]["targets"] = [f"127.0.0.1:{target}"]
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


def test_a_prometheus_that_scrapes_a_router_fills_the_board(harness: Harness, tmp_path: Path) -> None:
    wanted = [(title, each) for title, all_of in expressions().items() for each in all_of]
    with running(harness) as (router, client), prometheus(router.server.metrics_port, tmp_path) as server:

        def empty() -> set[str]:
            talk(client)
            return {title for title, expression in wanted if not server.series(expression)}

        eventually(lambda: empty() <= set(EMPTY), "panels stay empty", PATIENCE)
        assert empty() == set(EMPTY)
        # A third of all asks for a model that there is not, at one worker: in some minutes that is a ticket.
        asked_in_vain = {"VllmRouterWorkerFindsNothing"}
        pending = {rule["alert"] for rule in rules("alerts.yml") if server.series(rule["expr"])}
        assert pending <= asked_in_vain
        states = server.series("vllm_router_worker_health")
        assert [series["metric"]["job"] for series in states] == ["vllm-router"] * 2
