"""Priority classes before a real engine that orders its own queue."""

import concurrent.futures
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.conftest import Fleet, skip_without_engines
from tests.engines.processes import MODEL, Engine, Router, call
from tests.fakes.wire import eventually

pytestmark = [pytest.mark.engines, pytest.mark.timeout(900)]

CLASSES = "classes: [{name: batch}]\nengine_priority: {engine: vllm, client: clamp}\n"


@pytest.fixture
def priority_engine(pytestconfig) -> Iterator[Fleet]:
    """One that serves one request at a time."""
    skip_without_engines(pytestconfig)
    flags = ["--scheduling-policy", "priority", "--max-num-seqs", "1"]
    fleet = Fleet([Engine("engine-priority", flags=flags)])
    try:
        yield fleet
    finally:
        fleet.stop()


def ask(router: Router, of_class: str, tokens: int, **members: object) -> float:
    """When it ended."""
    body = {
        "model": MODEL,
        "prompt": f"Of class {of_class}.",
        "max_tokens": tokens,
        "ignore_eos": True,
        **members,
    }
    response = call(router.url, "POST", "/v1/completions", body, {"x-smg-priority": of_class})
    assert response.status == 200, response.body
    return time.monotonic()


def test_what_the_engine_has_waiting_is_served_by_class(priority_engine, tmp_path: Path):
    file = tmp_path / "classes.yaml"
    file.write_text(CLASSES)
    flags = ["--admission-config", str(file), "--trusted-addresses", "127.0.0.1"]
    with (
        priority_engine.router("least_load", *flags) as router,
        concurrent.futures.ThreadPoolExecutor() as pool,
    ):
        engine = priority_engine.engines[0]
        running = pool.submit(ask, router, "interactive", 400)
        eventually(lambda: engine.requests() == 1, "the engine has no request", 60)
        # It waits in the engine before the other one comes, and claims what its class has not.
        first = pool.submit(ask, router, "default", 8, priority=-50)
        eventually(lambda: engine.requests() == 2, "the second request is not in the engine", 60)
        second = pool.submit(ask, router, "interactive", 8)
        eventually(lambda: engine.requests() == 3, "the third request is not in the engine", 60)
        assert running.result() < second.result() < first.result()
