"""A browser for the whole run, and routers in front of simulated workers."""

from __future__ import annotations

import contextlib
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.dashboard.browser import Browser, missing
from tests.fakes.wire import free_port
from vllm_router import Router, _core
from vllm_router.testing import SimulatedWorker

PICTURES = Path(__file__).parents[2] / "build" / "browser"


@pytest.fixture(scope="session")
def chromium(pytestconfig: pytest.Config) -> Iterator[Browser]:
    if "browser" not in pytestconfig.option.markexpr:
        pytest.skip("starts Chromium; run `make test-browser`, or pytest with `-m browser`")
    if (reason := missing()) is not None:
        pytest.skip(reason)
    with Browser() as browser:
        browser.open("about:blank")
        yield browser


@pytest.fixture
def browser(chromium: Browser) -> Iterator[Browser]:
    """Wide, and with nothing of the test before; what it asks for is of this test alone."""
    chromium.size(1280, 900)
    chromium.messages()
    chromium.requested()
    yield chromium
    chromium.driver.get("about:blank")


class Fleet:
    """Simulated workers, and a router that can be stopped and started on the same port."""

    def __init__(self, count: int = 3, **options: Any) -> None:
        self.workers = [SimulatedWorker(speed=20, model="simulated") for _ in range(count)]
        self.port = free_port()
        self.options = {
            "threads": 1,
            "health_check_interval_secs": 1,
            "access_log": False,
            "kv_events": "off",
            **options,
        }
        self.server: _core.Server | None = None
        self.start_router()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/dashboard"

    def start_router(self) -> None:
        router = Router(policy="auto", worker_urls=[worker.url for worker in self.workers])
        self.server = _core.Server(router, port=self.port, **self.options)

    def stop_router(self) -> None:
        assert self.server is not None
        self.server.shutdown()
        assert self.server.wait(10)
        self.server = None

    def chat(self, text: str, model: str = "simulated") -> int:
        """One chat; its status."""
        body = {"model": model, "max_tokens": 2, "messages": [{"role": "user", "content": text}]}
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                response.read()
                return int(response.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/admin/status", timeout=30) as response:
            return dict(json.load(response))

    def close(self) -> None:
        if self.server is not None:
            self.stop_router()
        for worker in self.workers:
            worker.stop()


@pytest.fixture
def fleet(chromium: Browser) -> Iterator[Fleet]:
    assert chromium  # without it nothing is started
    made = Fleet()
    try:
        yield made
    finally:
        made.close()


class Traffic:
    """Chats, one after the other, until the block ends."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        turn = 0
        while not self._over.wait(0.05):
            turn += 1
            with contextlib.suppress(OSError):  # the router is away
                self._fleet.chat(f"conversation {turn % 4}: " + "hello " * 50)

    def __enter__(self) -> Traffic:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
