"""Fleets whose pages cost the router something, and how often it made such a page."""

from __future__ import annotations

import re

from tests.fakes.harness import Harness, RunningRouter


def fleet(harness: Harness, count: int) -> list[str]:
    """So many workers, all of them one: whatever begins with 127 is this machine."""
    worker = harness.worker(host="0.0.0.0")
    return [f"http://127.1.{number // 250}.{number % 250 + 1}:{worker.port}" for number in range(count)]


def renders(router: RunningRouter, path: str) -> int:
    found = re.search(
        rf'^vllm_router_page_renders_total{{route="{re.escape(path)}"}} (\S+)$',
        router.server.metrics_text(),
        re.MULTILINE,
    )
    return int(float(found[1])) if found else 0
