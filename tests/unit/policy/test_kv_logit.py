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
        testing.logit_cost("uncached", queued=3200, prompt=640, gpu=480, decode=500),
        testing.logit_cost("uncached", prompt=640, decode=100),
    ]
    assert costs == [710, 140]


def test_the_cheapest_of_the_example_is_chosen():
    policy = fleet()
    policy.report_blocks(A, PROMPT[:30], 0)
    policy.set_load(A, 5, prefill=3200)
    assert policy.choose_blocks([*range(1000, 1460)], [1], prompt_tokens=16)[0] == 0  # and these 40
    assert policy.choose_blocks([*range(2000, 2060)], [0], prompt_tokens=16)[0] == 1
    assert policy.choose_blocks(PROMPT, prompt_tokens=640) == (1, "lowest_cost", 0, 40)


@pytest.mark.parametrize(("decode", "chosen"), [("potential", 0), ("active", 1)])
def test_who_decodes_with_the_same_prefix_adds_fewer_blocks(decode, chosen):
    """10 blocks that nobody has cached; the first worker decodes with 8 of them, the other with 7 others."""
    policy = fleet(max_blocks_per_worker=1, logit_decode_blocks=decode)
    policy.choose_blocks(PROMPT[:8], [1], prompt_tokens=16)
    policy.choose_blocks([*range(500, 507)], [0], prompt_tokens=16)
    assert policy.choose_blocks(PROMPT[:10], prompt_tokens=160)[0] == chosen


@pytest.mark.parametrize("end", ["finished", "client_gone", "worker_failed", "not_sent"])
def test_a_request_that_has_ended_is_not_decoded_for(end):
    policy = fleet(logit_decode_blocks="active", overlap_weight=0)
    policy.choose_blocks(PROMPT[:10], [1], prompt_tokens=160)
    policy.choose_blocks([1000], [0], prompt_tokens=16)
    assert policy.choose_blocks([2000], prompt_tokens=16)[0] == 1  # one block against ten
    policy.end_request(0, end, 200)
    assert policy.choose_blocks([3000], prompt_tokens=16)[0] == 0  # two against none


def test_each_tier_saves_its_share():
    terms = {"queued": 160, "prompt": 640}
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
    policy.set_load(A, 1, prefill=1600)
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
        # The holder has 320 tokens of prefill in its queue and as many to compute; both decode 40 blocks.
        assert explained.pop(ticket.worker_url) == 80
        assert [*explained.values()] == [80]


# Dynamo's guide: four blocks of one token, all of them in the pool; W0 holds two on its GPU, W1 none.
def test_the_example_of_dynamos_guide():
    terms = {"block": 1, "shared_credit": 0.5}
    assert testing.logit_cost("uncached", prompt=4, shared=2, **terms) == 3.0
    assert testing.logit_cost("uncached", prompt=4, shared=4, **terms) == 2.0


@pytest.mark.parametrize(
    ("prefill", "multiplier", "costs"),
    [
        ("uncached", 0.5, (1.0, 2.0)),
        ("prompt", 0.5, (3.0, 2.0)),
        ("uncached", 1.0, (0.0, 0.0)),
        ("prompt", 1.0, (2.0, 0.0)),
        ("uncached", 0.0, (2.0, 4.0)),
    ],
)
def test_a_shared_pool_saves_what_a_worker_does_not_hold(prefill, multiplier, costs):
    policy = fleet(
        block_size=1,
        shared_cache_multiplier=multiplier,
        logit_prefill_tokens=prefill,
        logit_decode_blocks="active",
    )
    policy.report_blocks(A, [1, 2], 0)
    pool = [(0, 4)]
    held = (2, 0)
    assert costs == tuple(
        testing.logit_cost(
            prefill, block=1, shared_credit=multiplier, prompt=4, gpu=held[i], shared=4 - held[i]
        )
        for i in range(2)
    )
    position, *_ = policy.choose_blocks([1, 2, 3, 4], prompt_tokens=4, shared=pool)
    if costs[0] != costs[1]:
        assert position == costs.index(min(costs))
    assert policy.shared_beyond(0) == (2, 4)[position]


def test_the_pool_counts_beyond_every_tier_and_within_the_prompt():
    policy = fleet(shared_cache_multiplier=1, logit_decode_blocks="active")
    policy.report_blocks(A, PROMPT[:20], 1)  # 20 of 40 blocks on the host save 15 of them
    # The pool has what A has, and blocks behind the prompt: it saves nothing at A, 20 blocks at B.
    assert policy.choose_blocks(PROMPT, prompt_tokens=640, shared=[(0, 20), (40, 99)])[0] == 1
    assert policy.shared_beyond(0) == 20


def test_a_pool_that_was_not_asked_counts_nothing():
    policy = fleet(shared_cache_multiplier=1)
    policy.choose_blocks(PROMPT, prompt_tokens=640)
    assert policy.shared_beyond(0) == 0
