"""kv_logit, kv_aware and kv_overlap against their twins, and what their costs and scores promise."""

from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.fleet import Fleet
from tests.models.kv_policies import KvLogit, KvOverlap
from tests.models.policies import LeastLoad, PrefixAware
from tests.property.test_auto import LOADS, PROMPTS, URLS, WHICH, chain, set_load
from vllm_router import _core_testing as testing

TIER = st.integers(0, 2)
DIGESTS = st.sampled_from([None, b"a" * 32, b"b" * 32, b"c" * 32])
TRIED = st.lists(WHICH, max_size=2, unique=True)
RANGES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 8)), max_size=3)
OVERRIDES = st.fixed_dictionaries(
    {},
    optional={
        "overlap_weight": st.sampled_from([0.0, 3.0]),
        "router_temperature": st.sampled_from([0.0, 0.5]),
        "shared_cache_multiplier": st.sampled_from([0.0, 0.5, 1.0]),
    },
)
STEPS = st.one_of(
    st.tuples(st.just("pool"), RANGES, OVERRIDES),
    st.tuples(st.just("choose"), PROMPTS, st.integers(0, 40), TRIED, DIGESTS),
    st.tuples(st.just("choose"), PROMPTS, st.integers(0, 40), st.just([]), DIGESTS),
    st.tuples(st.just("report"), WHICH, PROMPTS, TIER),
    st.tuples(st.just("report"), WHICH, PROMPTS, TIER),
    st.tuples(st.just("load"), WHICH, LOADS),
    st.tuples(st.just("add"), st.integers(1, 5), st.sampled_from([1000, 1000, 2000, 500])),
    st.tuples(st.sampled_from(["remove", "heal", "hurt"]), WHICH),
    st.tuples(
        st.just("end"),
        st.integers(0, 50),
        st.sampled_from(["finished", "client_gone", "worker_failed", "not_sent"]),
        st.sampled_from([200, 404, 500]),
    ),
)
STORIES = st.lists(STEPS, min_size=10, max_size=60)
CAPACITY = st.integers(1, 12)
BLOCK_SIZE = st.sampled_from([1, 16])
SEEDS = st.integers(0, 2**64 - 1)
SHARES = st.sampled_from([0.0, 0.25, 0.3, 0.6, 0.8, 1.0])


def live(policy: testing.PolicyHarness, twin: Any, story: list[Any], block_size: int) -> None:
    """Both live through the story and must choose alike."""
    fleet, open_requests = Fleet(), []
    for url in URLS:
        policy.add(url)
        fleet.add(url)
    requests = 0
    ranges, override = [], {}  # of the requests that follow
    for what, which, *rest in story:
        if what == "pool":
            ranges, override = which, rest[0]
        elif what == "choose":
            tokens, tried, digest = rest
            tried = [position for position in tried if position < len(fleet.members)]
            blocks, tokens = chain(which), len(which) * block_size + tokens
            if isinstance(twin, KvLogit):
                shared = {block for begin, end in ranges for block in range(begin, end)}
                expected = twin.choose(blocks, tokens, fleet, tried, shared, override)
            else:
                expected = twin.choose(blocks, tokens, digest, fleet, tried)
            assert expected == policy.choose_blocks(
                blocks, tried, prompt_tokens=tokens, digest=digest, shared=ranges, override=override
            )
            if expected:
                open_requests.append(requests)
                requests += 1
        elif what == "end":
            if open_requests:
                request = open_requests.pop(which % len(open_requests))
                twin.end(request, *rest)
                policy.end_request(request, *rest)
        elif what == "add":
            url = f"http://w{which}:8000"
            if fleet.add(url, rest[0]):
                policy.add(url, rest[0] / 1000)
        elif fleet.members:
            position = which % len(fleet.members)
            worker = fleet.members[position]
            if what == "load":
                worker.requests, worker.waiting, worker.prefill, worker.context = rest[0]
                set_load(policy, worker.url, rest[0])
            elif what == "report":
                twin.known.report(worker, chain(rest[0]), rest[1])
                policy.report_blocks(worker.url, chain(rest[0]), rest[1])
            elif what == "remove":
                policy.remove(worker.url)
                fleet.remove(worker.url)
            else:
                policy.set_healthy(worker.url, what == "heal")
                fleet.set_healthy(worker.url, what == "heal")


@given(
    story=STORIES,
    capacity=CAPACITY,
    block_size=BLOCK_SIZE,
    overlap_weight=st.sampled_from([0.0, 1.0, 2.5]),
    temperature=st.sampled_from([0.0, 0.0, 0.1, 1.0, 100.0]),
    shares=st.tuples(SHARES, SHARES),
    prefill=st.sampled_from(["uncached", "prompt"]),
    decode=st.sampled_from(["potential", "active"]),
    multiplier=SHARES,
    seed=SEEDS,
)
def test_kv_logit_chooses_as_its_twin_does(
    story, capacity, block_size, overlap_weight, temperature, shares, prefill, decode, multiplier, seed
):
    policy = testing.PolicyHarness(
        "kv_logit",
        seed=seed,
        max_blocks_per_worker=capacity,
        block_size=block_size,
        overlap_weight=overlap_weight,
        router_temperature=temperature,
        host_cache_hit_weight=shares[0],
        disk_cache_hit_weight=shares[1],
        shared_cache_multiplier=multiplier,
        logit_prefill_tokens=prefill,
        logit_decode_blocks=decode,
    )
    twin = KvLogit(
        seed, capacity, block_size, overlap_weight, temperature, shares, prefill, decode, multiplier
    )
    live(policy, twin, story, block_size)


@given(story=STORIES, temperature=st.sampled_from([0.0, 0.5]), seed=SEEDS)
def test_kv_aware_is_kv_logit_with_credits_of_its_own(story, temperature, seed):
    policy = testing.PolicyHarness("kv_aware", seed=seed, router_temperature=temperature)
    live(policy, KvLogit(seed, temperature=temperature, shares=(0.8, 0.3)), story, 16)


@given(
    story=STORIES,
    capacity=CAPACITY,
    block_size=BLOCK_SIZE,
    threshold=SHARES,
    basis=st.sampled_from(["prompt", "fleet_max"]),
    load_factor=st.sampled_from([0, 1000, 2000]),
    tiers=st.tuples(SHARES, SHARES),
    seed=SEEDS,
)
def test_kv_overlap_chooses_as_its_twin_does(
    story, capacity, block_size, threshold, basis, load_factor, tiers, seed
):
    policy = testing.PolicyHarness(
        "kv_overlap",
        seed=seed,
        max_blocks_per_worker=capacity,
        block_size=block_size,
        virtual_nodes=10,
        kv_min_overlap_threshold=threshold,
        kv_overlap_basis=basis,
        kv_load_factor=load_factor,
        kv_gpu_tier_weight=tiers[0],
        kv_storage_tier_weight=tiers[1],
    )
    ring = PrefixAware(LeastLoad(seed), 10)
    twin = KvOverlap(ring, seed, capacity, block_size, threshold, basis, Fraction(load_factor, 1000), tiers)
    live(policy, twin, story, block_size)


SIZES = st.integers(0, 2**31)
TERMS = st.fixed_dictionaries(
    {
        "queued": SIZES,
        "prompt": st.integers(1, 2**31),
        "gpu": SIZES,
        "host": SIZES,
        "disk": SIZES,
        "shared": SIZES,
        "decode": SIZES,
        "weight": st.sampled_from([0.01, 1.0, 100.0]),
        "overlap_weight": st.sampled_from([0.0, 1.0, 1000.0]),
        "host_credit": SHARES,
        "disk_credit": SHARES,
        "shared_credit": SHARES,
    }
)
PREFILLS = st.sampled_from(["uncached", "prompt"])


@given(terms=TERMS, prefill=PREFILLS, more=st.integers(1, 10**6))
def test_more_cached_never_costs_more_and_more_load_never_less(terms, prefill, more):
    cost = testing.logit_cost(prefill, **terms)
    assert 0 <= cost < float("inf")
    for name in ("gpu", "host", "disk", "shared"):
        assert testing.logit_cost(prefill, **{**terms, name: terms[name] + more}) <= cost
    for name in ("queued", "prompt", "decode"):
        assert testing.logit_cost(prefill, **{**terms, name: terms[name] + more}) >= cost


@given(terms=TERMS, other=TERMS, prefill=PREFILLS)
def test_without_an_overlap_weight_decoding_alone_counts(terms, other, prefill):
    alone = {**other, "overlap_weight": 0, "decode": terms["decode"], "weight": terms["weight"]}
    assert testing.logit_cost(prefill, **{**terms, "overlap_weight": 0}) == testing.logit_cost(
        prefill, **alone
    )


@given(
    costs=st.lists(st.floats(0, 1e12), min_size=1, max_size=8),
    temperature=st.floats(1e-6, 100),
)
def test_a_draw_has_finite_weights_that_fall_with_the_cost(costs, temperature):
    weights = testing.softmax_of_costs(costs, temperature)
    assert max(weights) == 1
    assert all(0 <= weight <= 1 for weight in weights)
    for cost, weight in zip(costs, weights, strict=True):
        assert all(weight >= other for c, other in zip(costs, weights, strict=True) if c > cost)


@given(
    credit=st.floats(0, 1),
    most=st.floats(1, 1e9),
    load=st.floats(0, 1),
    most_load=st.floats(0, 1e6),
    health=st.floats(0, 1),
    more=st.floats(0, 1),
)
def test_scores_are_shares_and_more_tokens_never_lose(credit, most, load, most_load, health, more):
    def score(share: float) -> float:
        return testing.overlap_score(share * most, most, load * most_load, most_load, health)

    assert 0 <= score(credit) <= 1 + 1e-9
    assert score(min(1, credit + more)) >= score(credit) - 1e-12


@pytest.mark.parametrize("policy", ["kv_logit", "kv_aware"])
def test_frequencies_are_those_of_the_softmax(policy):
    harness = testing.PolicyHarness(policy, seed=5, router_temperature=0.5)
    for url, prefill in zip(URLS, (16 * 710, 16 * 140, 16 * 300), strict=True):
        harness.add(url)
        harness.set_load(url, 1, prefill=prefill)
    count = 100_000
    chosen = [0, 0, 0]
    for _ in range(count):
        chosen[harness.choose_blocks([], prompt_tokens=1)[0]] += 1
    weights = testing.softmax_of_costs([710, 140, 300], 0.5)
    for times, weight in zip(chosen, weights, strict=True):
        share = weight / sum(weights)
        assert abs(times - count * share) < 5 * (count * share * (1 - share)) ** 0.5
