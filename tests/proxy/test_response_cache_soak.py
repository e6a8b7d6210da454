"""Many requests, half of them repeats, while Redis dies again and again: no wrong body, and nothing is left.

VLLM_ROUTER_TEST_CACHED=5000000 makes it a soak; with -s it says how it goes.
"""

import contextlib
import itertools
import os
import time
from collections import Counter
from collections.abc import Callable
from multiprocessing import connection, resource_tracker

import pytest

from tests.fakes.cached import followers, metric
from tests.fakes.cached_traffic import CLIENTS, CONNECTIONS, PROCESSES, Progress, run_client, worker
from tests.fakes.wire import anonymous_memory, eventually

REQUESTS = int(os.environ.get("VLLM_ROUTER_TEST_CACHED", "2000"))
CYCLES = 2  # at least
USED = min(max(500, REQUESTS // 8), 80_000)  # requests from when Redis is used until it dies
DEAD = min(max(500, REQUESTS // 16), 20_000)  # requests from when it is seen to be dead until it is started
GROWTH = 16 << 20  # bytes, after the first cycle
FALLBACK = "continuum_cache_fallback_active"
INVALIDATIONS = itertools.cycle([b'{"clear_all": true}', b'{"model": "m"}'])


def counts(router) -> dict[str, int]:
    """Requests by what the cache did."""
    results = {"HIT": "hit", "MISS": "miss", "BYPASS": "skip"}
    return {
        said: int(metric(router, f'continuum_response_cache_requests_total{{result="{result}"}}'))
        for said, result in results.items()
    }


def stored_hits(router) -> float:
    """Without the requests that waited for an equal one."""
    return counts(router)["HIT"] - metric(router, "vllm_router_response_cache_coalesced_total")


@pytest.mark.slow
@pytest.mark.timeout(120 + REQUESTS // 200)
def test_no_body_is_wrong_and_nothing_is_left_while_redis_dies_again_and_again(harness, redis, seed):
    with harness.keeping_descriptors():  # of the memory that processes share
        resource_tracker.ensure_running()
        progress = Progress()
    with contextlib.ExitStack() as stack:
        router = harness.router(
            stack.enter_context(worker(progress)),
            threads=2,
            response_cache=True,
            response_cache_backend="redis",
            redis_url=redis.url,
            response_cache_health_interval_secs=1,  # else it waits longer each time
        )
        admin = harness.client(router)
        results = []
        for index in range(CLIENTS):
            here, there = PROCESSES.Pipe(duplex=False)
            arguments = (router.port, index, seed, progress, there)
            client = PROCESSES.Process(target=run_client, args=arguments, daemon=True)
            client.start()
            there.close()
            stack.callback(client.close)
            stack.callback(client.join)
            stack.callback(progress.stop)
            results.append(stack.enter_context(here))

        def wait_for(requests: int) -> None:
            goal = progress.sent() + requests
            while progress.sent() < goal:
                assert not connection.wait(results, timeout=0.005), "a client has failed"

        def wait_until(condition: Callable[[], bool]) -> None:
            while not condition():
                wait_for(100)

        def invalidate() -> None:
            progress.begin_round()
            body = next(INVALIDATIONS)
            assert admin.ask("POST", "/admin/response-cache/invalidate", body=body).status == 200
            progress.end_older_rounds()
            admin.received.clear()

        def hits_of(requests: int) -> float:
            wait_for(CLIENTS * CONNECTIONS * 2)  # those that were looked up elsewhere have ended
            before = stored_hits(router)
            wait_for(requests // 2)
            invalidate()
            wait_for(requests // 2)
            return stored_hits(router) - before

        from_redis = from_memory = memory = 0.0
        cycles = 0
        wait_until(lambda: metric(router, FALLBACK) == 0)
        began, at_first = time.monotonic(), progress.sent()
        while progress.sent() < REQUESTS or cycles < CYCLES:
            from_redis += hits_of(USED)
            redis.kill()
            invalidate()
            wait_until(lambda: metric(router, FALLBACK) == 1)
            from_memory += hits_of(DEAD)
            eventually(redis.start)
            invalidate()
            wait_until(lambda: metric(router, FALLBACK) == 0)
            cycles += 1
            memory = memory or anonymous_memory()
            print(f"{progress.sent()} requests, {anonymous_memory() >> 10} KiB", flush=True)
        rate = (progress.sent() - at_first) / (time.monotonic() - began)
        growth = anonymous_memory() - memory
        progress.stop()
        seen = [result.recv() for result in results]

    outcomes = sum((one.outcomes for one in seen), Counter())
    left = outcomes.pop("left")
    print(f"{cycles} cycles, {rate:.0f} requests/s, growth {growth >> 10} KiB, {outcomes}, {left} left")
    print(f"hits of what was stored: {from_redis:.0f} in Redis, {from_memory:.0f} in memory")
    for name in ("coalesced", "promotions", "late", "store_dropped"):
        print(f"{name}: {metric(router, f'vllm_router_response_cache_{name}_total'):.0f}")
    assert [one.wrong for one in seen] == [[]] * CLIENTS
    assert set(outcomes) == {"HIT", "MISS", "BYPASS"}
    assert outcomes.total() + left == progress.sent()
    router.must_rest()
    counted = counts(router)
    assert all(counted[name] >= count for name, count in outcomes.items()), (counted, outcomes)
    assert sum(counted.values()) <= progress.sent()
    assert from_redis > 0
    assert from_memory > 0
    assert metric(router, "vllm_router_response_cache_coalesced_total") > 0
    assert metric(router, "vllm_router_response_cache_corrupt_total") == 0
    assert followers(router) == 0  # a flight that has not ended stops the process when the router ends
    eventually(lambda: metric(router, "vllm_router_response_cache_capture_bytes") == 0)
    eventually(lambda: metric(router, "vllm_router_body_memory_bytes") == 0)
    if REQUESTS >= 100_000:
        assert growth < GROWTH
