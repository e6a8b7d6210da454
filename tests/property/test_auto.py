"""The policy auto against its twin, throw for throw, and what its cost promises."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.models.fleet import Fleet
from tests.models.policies import Auto
from vllm_router import _core_testing as testing

PROMPTS = st.lists(st.integers(0, 2), max_size=6)
WHICH = st.integers(0, 5)
LOADS = st.tuples(
    st.integers(0, 5), st.sampled_from([0, 7, 100, 5000]), st.sampled_from([0, 64, 900, 30_000])
)
STEPS = st.one_of(
    st.tuples(st.just("ask"), PROMPTS, st.integers(0, 40), st.lists(WHICH, max_size=2, unique=True)),
    st.tuples(st.just("ask"), PROMPTS, st.integers(0, 40), st.just([])),
    st.tuples(st.just("load"), WHICH, LOADS),
    st.tuples(st.just("add"), st.integers(1, 5), st.sampled_from([1000, 1000, 2000, 500])),
    st.tuples(st.sampled_from(["remove", "heal", "hurt", "drain"]), WHICH),
    st.tuples(st.just("finish"), WHICH, PROMPTS.filter(bool)),
)
STORIES = st.lists(STEPS, min_size=10, max_size=60)
URLS = ("http://w1:8000", "http://w2:8000", "http://w3:8000")


def chain(prompt: list[int]) -> list[int]:
    names = []
    name = 1
    for block in prompt:
        name = name * 4 + block + 1
        names.append(name)
    return names


@given(
    story=STORIES,
    capacity=st.integers(1, 12),
    block_size=st.sampled_from([1, 16]),
    seed=st.integers(0, 2**64 - 1),
)
def test_it_answers_as_its_twin_does(story: list[Any], capacity: int, block_size: int, seed: int) -> None:
    policy = testing.PolicyHarness("auto", seed=seed, max_blocks_per_worker=capacity, block_size=block_size)
    twin, fleet = Auto(seed, capacity, block_size), Fleet()
    for url in URLS:
        policy.add(url)
        fleet.add(url)
    for what, which, *rest in story:
        if what == "ask":
            tried = [position for position in rest[1] if position < len(fleet.members)]
            blocks, tokens = chain(which), len(which) * block_size + rest[0]
            expected = twin.choose(blocks, tokens, fleet, tried)
            assert policy.choose_blocks(blocks, tried, prompt_tokens=tokens) == expected
        elif what == "add":
            url = f"http://w{which}:8000"
            if fleet.add(url, rest[0]):
                policy.add(url, rest[0] / 1000)
        elif fleet.members:
            position = which % len(fleet.members)
            worker = fleet.members[position]
            if what == "load":
                worker.requests, worker.prefill, worker.context = rest[0]
                policy.set_load(worker.url, worker.requests, prefill=worker.prefill, context=worker.context)
            elif what == "finish":
                twin.finish(position, chain(rest[0]), fleet)
                policy.finish_blocks(position, chain(rest[0]))
            elif what == "remove":
                policy.remove(worker.url)
                fleet.remove(worker.url)
            elif what == "drain":
                policy.set_draining(worker.url, True)
                fleet.set_draining(worker.url, True)
            else:
                policy.set_healthy(worker.url, what == "heal")
                fleet.set_healthy(worker.url, what == "heal")


SIZES = st.integers(0, 2**31)
TERMS = st.fixed_dictionaries(
    {
        "queued": SIZES,
        "uncached": st.integers(1, 2**31),
        "requests": st.integers(0, 10_000),
        "context": SIZES,
        "mean_prompt": st.integers(1, 2**31),
        "weight": st.sampled_from([0.01, 0.5, 1.0, 2.0, 100.0]),
    }
)


@given(
    terms=TERMS,
    name=st.sampled_from(["queued", "uncached", "requests", "context"]),
    more=st.integers(1, 10**6),
)
def test_more_of_anything_never_costs_less_and_no_cost_is_out_of_bounds(terms, name, more):
    cost = testing.auto_cost(**terms)
    assert 0 < cost < float("inf")
    assert testing.auto_cost(**{**terms, name: terms[name] + more}) >= cost


@given(
    loads=st.lists(LOADS, min_size=3, max_size=3),
    prompt=PROMPTS.filter(bool),
)
def test_to_hold_more_never_loses_the_request(loads, prompt):
    def choice(holder: int | None = None) -> int:
        policy = testing.PolicyHarness("auto", seed=1)
        for url in URLS:
            policy.add(url)
        if holder is not None:
            policy.finish_blocks(holder, chain(prompt))
        for url, (requests, prefill, context) in zip(URLS, loads, strict=True):
            policy.set_load(url, requests, prefill=prefill, context=context)
        return policy.choose_blocks(chain(prompt), prompt_tokens=16 * len(prompt) + 5)[0]

    chosen = choice()
    assert choice(holder=chosen) == chosen
