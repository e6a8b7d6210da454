"""The policy auto against its twin, throw for throw, and what its cost promises."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.models.fleet import Fleet
from tests.models.policies import Auto
from vllm_router import _core_testing as testing

PROMPTS = st.lists(st.integers(0, 2), max_size=6)
WHICH = st.integers(0, 5)
LOADS = st.tuples(  # requests, of them waiting, prefill, context
    st.integers(0, 5),
    st.integers(0, 3),
    st.sampled_from([0, 7, 100, 5000]),
    st.sampled_from([0, 64, 900, 30_000]),
)
POLLED = st.tuples(st.integers(0, 5), st.integers(0, 3)).filter(lambda polled: polled[1] <= polled[0])
STEPS = st.one_of(
    st.tuples(st.just("ask"), PROMPTS, st.integers(0, 40), st.lists(WHICH, max_size=2, unique=True)),
    st.tuples(st.just("ask"), PROMPTS, st.integers(0, 40), st.just([])),
    st.tuples(
        st.just("ask for an adapter"), PROMPTS, st.integers(0, 40), st.lists(WHICH, max_size=4, unique=True)
    ),
    st.tuples(st.just("load"), WHICH, LOADS),
    st.tuples(st.just("polled"), WHICH, POLLED),
    st.tuples(st.just("add"), st.integers(1, 5), st.sampled_from([1000, 1000, 2000, 500])),
    st.tuples(st.sampled_from(["remove", "heal", "hurt", "drain"]), WHICH),
    st.tuples(st.just("finish"), WHICH, st.sampled_from([0, 1, 16, 100])),
    st.tuples(st.just("blocks of"), WHICH, st.sampled_from([1, 8, 16, 24, 32, 64, 10**9])),
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


def set_load(policy: testing.PolicyHarness, url: str, load: tuple[int, int, int, int]) -> None:
    requests, waiting, prefill, context = load
    policy.set_load(url, requests, waiting=waiting, prefill=prefill, context=context)


@given(
    story=STORIES,
    capacity=st.integers(1, 12),
    block_size=st.sampled_from([1, 16]),
    objective=st.sampled_from(["balanced", "ttft"]),
    own_sizes=st.booleans(),
    lora=st.sampled_from([0, 7, 2000]),
    pause=st.sampled_from([0.0, 0.015625, 2.0]),
    seed=st.integers(0, 2**64 - 1),
)
def test_it_answers_as_its_twin_does(
    story: list[Any],
    capacity: int,
    block_size: int,
    objective: str,
    own_sizes: bool,
    lora: int,
    pause: float,
    seed: int,
) -> None:
    options = {
        "max_blocks_per_worker": capacity,
        "block_size": block_size,
        "worker_block_sizes": own_sizes,
        "auto_objective": objective,
        "lora_load_tokens": lora,
    }
    policy = testing.PolicyHarness("auto", seed=seed, **options)
    twin, fleet = Auto(seed, capacity, block_size, objective, lora), Fleet()
    now = 1.0
    for url in URLS:
        policy.add(url)
        fleet.add(url)
    for what, which, *rest in story:
        now += pause
        if what == "ask":
            tried = [position for position in rest[1] if position < len(fleet.members)]
            blocks, tokens = chain(which), len(which) * block_size + rest[0]
            expected = twin.choose(blocks, tokens, fleet, tried, now_s=now)
            dry = policy.choose_blocks(blocks, tried, prompt_tokens=tokens, now=now, dry_run=True)
            assert policy.choose_blocks(blocks, tried, prompt_tokens=tokens, now=now) == expected == dry
        elif what == "ask for an adapter":
            there = [position for position in rest[1] if position < len(fleet.members)]
            blocks, tokens = chain(which), len(which) * block_size + rest[0]
            expected = twin.choose(blocks, tokens, fleet, residents=there, now_s=now)
            asked = {"prompt_tokens": tokens, "residents": there, "now": now}
            assert policy.choose_blocks(blocks, **asked) == expected
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
            elif what == "polled":
                worker.polled, worker.polled_waiting = rest[0]
                policy.set_polled(worker.url, *rest[0])
            elif what == "finish":
                twin.finish(rest[0])
                policy.finish_blocks(position, rest[0])
            elif what == "blocks of":
                policy.set_cache_size(worker.url, block_tokens=rest[0])
                if own_sizes:
                    twin.learned.told(worker, rest[0])
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
COUNTS = st.integers(0, 10_000)
TERMS = st.fixed_dictionaries(
    {
        "queued": SIZES,
        "waiting": COUNTS,
        "uncached": st.integers(2**20, 2**31),
        "requests": COUNTS,
        "context": SIZES,
        "sent": st.floats(0, 4096),
        "slow": st.sampled_from([0.125, 1.0, 8.0]),
        "weight": st.sampled_from([0.01, 0.5, 1.0, 2.0, 100.0]),
        "prompt": st.integers(1, 2**31),
        "least_uncached": st.integers(1, 2**20),
        "sharers": COUNTS,
        "mean_uncached": SIZES,
        "mean_output": st.integers(0, 2**15),
        "mean_prompt": st.integers(1, 2**31),
        "mean_requests": st.floats(0, 10_000),
        "mean_context": SIZES,
        "rate": st.floats(0, 1e6),
        "lost": st.floats(0, 1),
    }
)
OBJECTIVES = st.sampled_from(["balanced", "ttft"])


@given(
    objective=OBJECTIVES,
    terms=TERMS,
    name=st.sampled_from(
        ["queued", "waiting", "uncached", "requests", "context", "sent", "slow", "mean_uncached", "lost"]
    ),
    more=st.integers(1, 10**6),
)
def test_more_of_anything_never_costs_less_and_no_cost_is_out_of_bounds(objective, terms, name, more):
    cost = testing.auto_cost(objective, **terms)
    assert 0 < cost < float("inf")
    assert testing.auto_cost(objective, **{**terms, name: terms[name] + more}) >= cost


@given(objective=OBJECTIVES, terms=TERMS, factor=st.sampled_from([2.0, 16.0]))
def test_twice_the_speed_is_half_the_work_that_waits(objective, terms, factor):
    waits = {**terms, "requests": 0, "context": 0, "mean_requests": 0, "rate": 0, "sent": 0, "lost": 0}
    faster = {**waits, "weight": waits["weight"] * factor}
    cost = testing.auto_cost(objective, **waits)
    assert abs(testing.auto_cost(objective, **faster) * factor - cost) <= 1e-9 * cost


def fleet_with(loads, objective):
    policy = testing.PolicyHarness("auto", seed=1, auto_objective=objective)
    for url in URLS:
        policy.add(url)
    for _ in range(3):
        policy.choose_blocks([], prompt_tokens=100)  # now there is a mean
    for url, load in zip(URLS, loads, strict=True):
        set_load(policy, url, load)
    return policy


THREE_LOADS = st.lists(LOADS, min_size=3, max_size=3)


@given(loads=THREE_LOADS, prompt=PROMPTS.filter(bool), objective=OBJECTIVES)
def test_to_hold_more_never_loses_the_request(loads, prompt, objective):
    blocks, tokens = chain(prompt), 16 * len(prompt) + 5
    chosen = fleet_with(loads, objective).choose_blocks(blocks, prompt_tokens=tokens)[0]
    policy = fleet_with(loads, objective)
    others = [i for i in range(3) if i != chosen]
    policy.choose_blocks(blocks, others, prompt_tokens=100)  # now it holds them, and the mean is as it was
    assert policy.choose_blocks(blocks, prompt_tokens=tokens)[0] == chosen


@given(
    loads=THREE_LOADS,
    prompt=PROMPTS.filter(bool),
    objective=OBJECTIVES,
    less=st.tuples(st.integers(0, 3), st.integers(0, 5000)),
)
def test_less_that_waits_never_loses_the_request(loads, prompt, objective, less):
    blocks, tokens = chain(prompt), 16 * len(prompt) + 5
    chosen = fleet_with(loads, objective).choose_blocks(blocks, prompt_tokens=tokens)[0]
    requests, waiting, prefill, context = loads[chosen]
    lighter = list(loads)
    lighter[chosen] = (requests, max(0, waiting - less[0]), max(0, prefill - less[1]), context)
    assert fleet_with(lighter, objective).choose_blocks(blocks, prompt_tokens=tokens)[0] == chosen


@given(
    loads=THREE_LOADS,
    residents=st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True),
    tokens=st.integers(1, 9000),
    objective=OBJECTIVES,
)
def test_the_adapter_is_loaded_only_where_that_is_worth_it(loads, residents, tokens, objective):
    """A dearer load never moves a request away from the workers that have the adapter."""

    def choose(load_tokens, tried=(), marks=residents):
        policy = testing.PolicyHarness("auto", seed=1, auto_objective=objective, lora_load_tokens=load_tokens)
        for url, load in zip(URLS, loads, strict=True):
            policy.add(url)
            set_load(policy, url, load)
        return policy.choose_blocks([], list(tried), prompt_tokens=tokens, residents=marks)[0]

    chosen = [choose(load) in residents for load in (0, 100, 2000, 10**7)]
    assert chosen == sorted(chosen)
    assert chosen[-1]
    assert choose(0, tried=residents) not in residents
    if not chosen[0]:
        assert choose(0) == choose(0, marks=None)
