"""Policies in pytest: no server, no clock, no network; the same seed gives the same decisions.

pytest examples/test_policy.py
"""

from __future__ import annotations

import heapq
import random
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from vllm_router import Router, Ticket

if TYPE_CHECKING:
    from vllm_router.option_types import PolicyName

WORKERS = [f"http://gpu-{number}:8000" for number in range(4)]


def replay(policy: PolicyName, requests: int = 2000, seed: int = 7, **options: Any) -> int:
    """Sends requests of very different lengths through a policy; returns the longest queue that it built.

    One request comes per tick, and each stays from 1 to some 100 ticks: a discrete simulation in eight lines.
    """
    router = Router(policy, WORKERS, seed=seed, **options)
    rng = random.Random(seed)
    running: list[tuple[int, int, Ticket]] = []  # (its end, a tie-breaker, its ticket)
    longest = 0
    for now in range(requests):
        while running and running[0][0] <= now:
            heapq.heappop(running)[2].finish()
        ticket = router.select(prompt="x", headers={"X-Session-ID": f"session-{rng.randrange(200)}"})
        heapq.heappush(running, (now + 1 + int(rng.paretovariate(0.9)) % 100, now, ticket))
        longest = max(longest, *(worker.load for worker in router.workers))
    return longest


def test_a_session_stays_on_its_worker() -> None:
    router = Router("consistent_hash", WORKERS)
    homes = {
        router.select(prompt=f"turn {turn}", headers={"X-Session-ID": "s"}).worker_url for turn in range(50)
    }
    assert len(homes) == 1


def test_a_worker_that_is_ill_gets_nothing_and_its_sessions_come_home() -> None:
    router = Router("consistent_hash", WORKERS)

    def home(session: int) -> str:
        return router.select(prompt="x", headers={"X-Session-ID": f"session-{session}"}).worker_url

    before = [home(session) for session in range(100)]
    router.set_healthy(WORKERS[0], False)
    during = [home(session) for session in range(100)]
    assert WORKERS[0] not in during
    assert all(old == new for old, new in zip(before, during, strict=True) if old != WORKERS[0])
    router.set_healthy(WORKERS[0], True)
    assert [home(session) for session in range(100)] == before


def test_looking_at_load_keeps_queues_short() -> None:
    assert replay("least_load") <= replay("power_of_two") < replay("random")


def test_a_bound_on_loads_keeps_busy_sessions_from_a_long_queue() -> None:
    assert replay("consistent_hash", hash_load_factor=1.25) < replay("consistent_hash")


@pytest.mark.parametrize("policy", ["random", "power_of_two", "least_load"])
def test_a_seed_makes_a_run_repeat(policy: PolicyName) -> None:
    def run() -> list[str]:
        router = Router(policy, WORKERS, seed=3)
        return [router.select(prompt="x").worker_url for _ in range(100)]

    assert run() == run()


def test_every_worker_is_used() -> None:
    router = Router("random", WORKERS, seed=1)
    counts = Counter(router.select(prompt="x").worker_url for _ in range(1000))
    assert sorted(counts) == WORKERS
