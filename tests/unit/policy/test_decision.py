"""cpp/policy/decision.h: names that metrics, headers and tickets show; what an end means."""

import pytest

from tests.rows import for_each_row
from vllm_router import Router, Ticket
from vllm_router import _core_testing as testing


def test_reasons_have_their_stable_names():
    assert testing.reason_names() == [
        "random",
        "round_robin",
        "least_loaded",
        "power_of_two",
        "session_hash",
        "body_hash",
        "failover",
        "overflow",
        "prefix_hash",
        "prefix_hit",
        "prefix_miss",
        "prefix_spread",
        "load_balance",
        "lowest_cost",
        "sampled",
        "kv_aware",
        "sticky",
        "sticky_new",
        "fallback",
        "pinned",
        "holdout",
    ]


def test_match_units_have_names():
    assert testing.match_unit_names() == ["none", "bytes", "tokens", "blocks"]


def test_ends_are_found_by_name():
    for name in ("finished", "client_gone", "worker_failed", "not_sent"):
        assert testing.end_by_name(name) == name
    assert testing.end_by_name("failed") is None


# ---- what a failed request leaves


REMEMBERING = ["cache_aware", "vllm_cache_aware", "auto"]


def believed(router: Router) -> int:
    stats = router.stats()
    (held,) = stats.get("cache_routing", stats.get("block_index"))["workers"].values()
    return held


@for_each_row("policy", REMEMBERING)
@for_each_row("end", ["not_sent", "worker_failed"])
@for_each_row("kind", ["text", "tokens"])
def test_a_request_that_no_worker_worked_on_is_taken_back(policy: str, end: str, kind: str) -> None:
    """mending row 38: what such a request was about was believed to be in the worker's cache."""
    router = Router(policy, ["http://a:8000"])

    def select(length: int) -> Ticket:
        if kind == "tokens":
            return router.select(token_ids=[7] * length)
        return router.select(prompt="abcdefgh" * (length // 2))

    select(160).finish(end=end)
    assert believed(router) == 0
    select(160).finish()
    had = believed(router)
    assert had > 0
    longer = select(320)
    assert believed(router) > had
    longer.finish(end=end)
    assert believed(router) == had
    again = select(160)
    again.finish(end=end)
    assert (believed(router), again.matched > 0) == (had, True)
    select(320).finish(end="client_gone")
    assert believed(router) > had


@pytest.mark.parametrize("policy", REMEMBERING)
def test_a_failed_request_takes_nothing_from_others_that_share_its_prefix(policy: str) -> None:
    """mending row 38: of two requests with one beginning, whichever ends first."""
    for first_fails in (True, False):
        router = Router(policy, ["http://a:8000"])
        shared = list(range(160))
        first = router.select(token_ids=[*shared, *range(1000, 1160)])
        second = router.select(token_ids=[*shared, *range(2000, 2160)])
        failed, good = (first, second) if first_fails else (second, first)
        failed.finish(end="worker_failed")
        good.finish()
        tail = 2000 if first_fails else 1000
        router_of_one = Router(policy, ["http://a:8000"])
        router_of_one.select(token_ids=[*shared, *range(tail, tail + 160)]).finish()
        assert believed(router) == believed(router_of_one)


@pytest.mark.parametrize("policy", REMEMBERING)
def test_a_dropped_ticket_and_a_dropped_batch_are_taken_back(policy: str) -> None:
    router = Router(policy, ["http://a:8000"])
    ticket = router.select(prompt="x" * 4096)
    assert believed(router) > 0
    del ticket
    assert believed(router) == 0
    batch = router.select_batch(prompts=["y" * 4096, "z" * 4096])
    batch.finish(end="not_sent")
    assert believed(router) == 0
