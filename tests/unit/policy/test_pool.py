"""cpp/policy/pool.h, through Router, which has one."""

import numpy as np
import pytest

from vllm_router import Router
from vllm_router import _core_testing as testing

A, B, C = (f"http://{name}:8000" for name in "abc")
IDS = np.arange(65, dtype=np.uint32)


def test_a_policy_that_matches_blocks_reports_itself_and_its_index():
    for policy in ("auto", "vllm_cache_aware"):
        assert set(Router(policy=policy, worker_urls=[A]).stats()) == {
            "policy",
            "tickets_expired",
            "block_index",
            "cache_prediction",
        }


@pytest.mark.parametrize(
    ("policy", "groups"),
    [("cache_aware", {"cache_routing", "cache_prediction"}), ("prefix_aware", {"prefix_routing"})],
)
def test_any_other_reports_itself_alone(policy, groups):
    assert set(Router(policy=policy, worker_urls=[A]).stats()) == {"policy", "tickets_expired"} | groups
    assert set(Router(policy="random", worker_urls=[A]).stats()) == {"policy", "tickets_expired"}


@pytest.mark.parametrize("policy", ["auto", "vllm_cache_aware"])
def test_a_capacity_reaches_the_index(policy):
    router = Router(policy=policy, worker_urls=[A, B], block_size=16, seed=1)
    router.set_cache(A, block_size=16, blocks=3)
    limits = router.stats()["block_index"]["max_blocks"]
    assert limits[A] == 3
    assert limits[B] == 100_000


def test_a_capacity_reaches_a_policy_with_a_memory_of_its_own():
    router = Router(policy="cache_aware", worker_urls=[A], seed=1)
    with router.select(prompt="x" * 4000):
        pass
    assert router.stats()["cache_routing"]["workers"] == {A: 4000}
    router.set_cache(A, block_size=16, blocks=10)
    with router.select(prompt="y" * 4000):
        pass
    assert router.stats()["cache_routing"]["workers"][A] <= 4 * 16 * 10


def test_tickets_outlive_the_router_and_its_index():
    router = Router(policy="auto", worker_urls=[A, B], seed=1)
    tickets = [router.select(token_ids=IDS) for _ in range(3)]
    del router
    for ticket in tickets:
        ticket.finish()


def test_the_plan_of_the_policy_and_that_of_the_index_share_a_view():
    """Round robin, the fallback here, plans its schedule; the index plans who is in which slot."""
    policy = testing.PolicyHarness("vllm_cache_aware", seed=1, fallback_policy="round_robin")
    for url in (A, B, C):
        policy.add(url)
    policy.choose_blocks([1, 2], [0, 1], prompt_tokens=1000)
    policy.remove(A)
    assert policy.choose_blocks([1, 2], prompt_tokens=1000)[:3] == (1, "prefix_hit", 2)
    assert sorted(policy.choose()[0] for _ in range(4)) == [0, 0, 1, 1]
