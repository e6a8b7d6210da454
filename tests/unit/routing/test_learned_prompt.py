"""cpp/routing/learned_prompt.h: what decode workers hold is learned beside the memory of their policy."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

P, D, E = (f"http://{host}:8000" for host in "pde")
PROMPT = "A long conversation goes on, and on. " * 100
POLICIES = ["random", "least_load", "cache_aware", "auto", "sticky_least_loaded", "prefix_aware"]


def staged(decode_policy="", policy="round_robin", bypass=(64, 4096), **options):
    options = {"prefill": [(P, None)], "decode": [D, E]} | options
    return testing.StagedRouter(policy, decode_policy, bypass=bypass, **options)


def local(router, url, prompt=PROMPT):
    return router.select("decode", prompt=prompt, pinned=url)[0]


@for_each_row("decode_policy", POLICIES)
@for_each_row("policy", ["round_robin", "auto"])
def test_a_local_request_is_learned_with_any_policy(policy, decode_policy):
    router = staged(decode_policy, policy)
    assert router.select_bypass(PROMPT) is None
    number = local(router, E)
    assert router.policy_of_ticket(number) == decode_policy
    router.finish(number)
    number, url, uncached, saved = router.select_bypass(PROMPT)
    assert url == E
    assert uncached <= 64 < saved
    assert router.policy_of_ticket(number) == decode_policy
    assert router.load_of(E)[0] == 1
    router.finish(number)
    assert [router.load_of(worker) for worker in (D, E)] == [(0, 0), (0, 0)]


@pytest.mark.parametrize("how", ["not_sent", "worker_failed"])
def test_what_did_not_reach_its_worker_is_not_learned(how):
    router = staged()
    router.end(local(router, E), how)
    assert router.select_bypass(PROMPT) is None


@pytest.mark.parametrize("how", ["not_sent", "worker_failed"])
def test_a_bypass_that_failed_takes_back_what_it_added_only(how):
    router = staged()
    router.finish(local(router, E))
    longer = PROMPT + "One more turn. " * 12
    number, url, *_ = router.select_bypass(longer)
    assert url == E
    router.end(number, how)
    again = router.select_bypass(PROMPT)
    assert again is not None
    assert again[1] == E


def test_a_pair_is_learned_once_its_blocks_have_arrived():
    router = staged()
    number = router.select("decode", prompt=PROMPT, transferred=True, pinned=D)[0]
    assert router.select_bypass(PROMPT) is None
    router.finish(number)
    assert router.select_bypass(PROMPT) is None
    router.learn_transferred(PROMPT, D)
    assert router.select_bypass(PROMPT)[1] == D


def test_short_prompts_pass_by_the_same_rule():
    router = staged()
    number, _, uncached, saved = router.select_bypass("Hello!")
    assert (uncached, saved) == (2, 0)
    router.finish(number)


def test_an_emptied_cache_is_forgotten():
    router = staged()
    router.learn_transferred(PROMPT, D)
    router.forget(D)
    assert router.select_bypass(PROMPT) is None


def test_a_worker_that_left_is_forgotten_and_one_of_its_name_begins_anew():
    router = staged()
    router.learn_transferred(PROMPT, D)
    router.remove(D)
    assert router.select_bypass(PROMPT) is None
    router.add(D, "decode")
    assert router.select_bypass(PROMPT) is None
    router.learn_transferred(PROMPT, D)
    assert router.select_bypass(PROMPT)[1] == D


def test_an_unhealthy_holder_is_not_chosen():
    router = staged()
    router.learn_transferred(PROMPT, D)
    router.set_healthy(D, False)
    assert router.select_bypass(PROMPT) is None
    router.set_healthy(D, True)
    assert router.select_bypass(PROMPT, tried=[D]) is None
    assert router.select_bypass(PROMPT)[1] == D


def test_a_holder_with_all_the_requests_that_it_may_have_gets_no_more():
    router = staged(max_worker_requests=1)
    router.learn_transferred(PROMPT, D)
    number = router.select_bypass(PROMPT)[0]
    assert router.select_bypass(PROMPT) is None
    assert router.load_of(D)[0] == 1
    router.finish(number)
    assert router.select_bypass(PROMPT)[1] == D


def test_a_queue_of_short_prompts_ends_the_bypass():
    """One client that repeats them keeps decode busy for no more than the limit at each worker."""
    router = staged(bypass=(64, 128))
    taken = [router.select_bypass(f"{i} " + "word " * 40) for i in range(100)]
    passed = [one for one in taken if one is not None]
    assert 0 < len(passed) < 10
    assert all(router.load_of(worker)[1] <= 128 + 256 * 5 for worker in (D, E))
    for number, *_ in passed:
        router.finish(number)
    assert router.select_bypass("word " * 40) is not None


def test_prefill_workers_hold_nothing_that_counts():
    router = staged(policy="auto")
    number = router.select("prefill", prompt=PROMPT)[0]
    router.finish(number)
    assert router.select_bypass(PROMPT) is None


def test_a_router_without_the_bypass_has_no_index_for_it():
    router = staged(bypass=(0, 4096))
    router.learn_transferred(PROMPT, D)
    router.finish(local(router, D))
    assert router.select_bypass(PROMPT) is None
    assert "block_index" not in router.stats()
