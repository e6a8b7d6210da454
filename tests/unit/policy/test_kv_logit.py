"""cpp/policy/kv_logit.h: its examples and those of Dynamo's guide. Random stories: tests/property."""

import pytest

from vllm_router import Router
from vllm_router import _core_testing as testing

A, B = "http://a:8000", "http://b:8000"
PROMPT = list(range(1, 41))  # 40 blocks of 16 tokens: 640


def fleet(policy: str = "kv_logit", **options) -> testing.PolicyHarness:
    harness = testing.PolicyHarness(policy, seed=1, **options)
    for url in (A, B):
        harness.add(url)
    return harness


def test_the_example():
    costs = [
        testing.logit_cost("uncached", queued=3200, prompt=640, gpu=480, context=8000),
        testing.logit_cost("uncached", prompt=640, context=1600),
    ]
    assert costs == [710, 140]


def test_the_cheapest_of_the_example_is_chosen():
    policy = fleet()
    policy.report_blocks(A, PROMPT[:30], 0)
    policy.set_load(A, 5, prefill=3200, context=8000)
    policy.set_load(B, 1, context=1600)
    assert policy.choose_blocks(PROMPT, prompt_tokens=640) == (1, "lowest_cost", 0, 40)


def test_each_tier_saves_its_share():
    terms = {"queued": 160, "prompt": 640, "context": 0}
    assert testing.logit_cost("uncached", **terms) == 50
    assert testing.logit_cost("uncached", **terms, gpu=320) == 30
    assert testing.logit_cost("uncached", **terms, gpu=320, host=160) == 22.5
    assert testing.logit_cost("uncached", **terms, gpu=320, host=160, disk=160) == 20
    assert testing.logit_cost("prompt", **terms, gpu=320, host=160, disk=160) == 40
    assert testing.logit_cost("uncached", **terms, weight=2) == 25


@pytest.mark.parametrize(("tier", "cost"), [(0, 10.0), (1, 17.5), (2, 32.5)])
def test_what_is_on_a_slower_tier_counts_less(tier, cost):
    """30 of 40 blocks are cached; the other worker would compute 40, so the holder wins on any tier."""
    policy = fleet()
    policy.report_blocks(B, PROMPT[:30], tier)
    assert policy.choose_blocks(PROMPT, prompt_tokens=640) == (1, "lowest_cost", 30, 40)
    host, disk = ((480, 0), (0, 480))[tier - 1] if tier else (0, 0)
    held = {"gpu": 0 if tier else 480, "host": host, "disk": disk}
    assert testing.logit_cost("uncached", prompt=640, **held) == cost


def test_the_faster_tier_wins_at_equal_blocks():
    for slower in (1, 2):
        policy = fleet()
        policy.report_blocks(A, PROMPT, slower)
        policy.report_blocks(B, PROMPT, 0)
        assert policy.choose_blocks(PROMPT, prompt_tokens=641)[0] == 1


@pytest.mark.parametrize(("temperature", "share"), [(0.1, 1.0), (0.5, 0.8808), (1, 0.7311), (2, 0.6225)])
def test_the_chance_of_the_lower_of_two_costs(temperature, share):
    weights = testing.softmax_of_costs([3.0, 2.0], temperature)
    assert weights[1] / sum(weights) == pytest.approx(share, abs=5e-5)


def test_the_chances_of_three_costs():
    weights = testing.softmax_of_costs([710, 140, 300], 1)
    assert [weight / sum(weights) for weight in weights] == pytest.approx([0.1733, 0.4710, 0.3557], abs=5e-5)


def test_equal_costs_have_equal_chances_at_any_temperature():
    assert testing.softmax_of_costs([7, 7, 7], 1e-9) == [1, 1, 1]


def test_a_drawn_worker_that_is_not_the_cheapest_is_called_sampled():
    policy = fleet(router_temperature=100)
    policy.set_load(A, 1, context=1600)
    reasons = {policy.choose_blocks([], prompt_tokens=16)[:2] for _ in range(100)}
    assert reasons == {(0, "sampled"), (1, "lowest_cost")}


def test_kv_aware_takes_the_reference_router_s_credits():
    for url, shares in (
        (A, {"kv_penalty_host": 0.0, "kv_penalty_disk": 1.0}),
        (B, {"kv_penalty_host": 1.0, "kv_penalty_disk": 0.0}),
    ):
        policy = fleet("kv_aware", **shares)
        policy.report_blocks(A, PROMPT, 2)
        policy.report_blocks(B, PROMPT, 1)
        assert (A, B)[policy.choose_blocks(PROMPT, prompt_tokens=641)[0]] == url


def test_a_request_without_a_prompt_is_decided_by_load():
    router = Router("kv_logit", [A, B], seed=1)
    with router.select(token_ids=list(range(1000))) as busy:
        assert router.select(body=b"{}").reason == "fallback"
        assert router.select(body=b"{}").worker_url != busy.worker_url


def test_a_dry_run_draws_what_the_next_decision_draws():
    router = Router("kv_logit", [A, B], seed=3, router_temperature=2.0)
    ids = list(range(500))
    tickets = []
    for _ in range(50):
        expected = router.explain(token_ids=ids).worker_url
        tickets.append(router.select(token_ids=ids))
        assert tickets[-1].worker_url == expected


def test_its_costs_are_explained():
    router = Router("kv_logit", [A, B], seed=1)
    with router.select(token_ids=list(range(320))) as ticket:
        explained = {worker.url: worker.cost for worker in router.explain(token_ids=list(range(640))).workers}
        # The holder has 320 tokens of prefill in its queue, as many in its context, and 320 to compute.
        assert explained.pop(ticket.worker_url) == 60
        assert [*explained.values()] == [40]
