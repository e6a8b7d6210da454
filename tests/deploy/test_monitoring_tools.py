"""The rules through promtool, and the board's expressions through a Prometheus that scrapes a router."""

import subprocess
from pathlib import Path

import pytest

from tests.deploy.monitoring import PATIENCE, RULES, expressions, prometheus, rules, running, talk, tool
from tests.fakes.harness import Harness
from tests.fakes.wire import eventually

pytestmark = pytest.mark.release

# Panels whose expressions need more than traffic.
EMPTY = {
    "KV events received": "a worker that publishes KV events",
    "KV event sources by state": "the same",
    "Rejected requests": "a request that is not admitted",
}


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


def test_a_prometheus_that_scrapes_a_router_fills_the_board(harness: Harness, tmp_path: Path) -> None:
    wanted = [(title, each) for title, all_of in expressions().items() for each in all_of]
    with running(harness) as (router, client), prometheus([router.server.metrics_port], tmp_path) as server:

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
