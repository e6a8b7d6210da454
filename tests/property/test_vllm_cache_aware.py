"""The policy vllm_cache_aware against its twin, throw for throw, through changes of fleet and load."""

from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from tests.models.fleet import Fleet
from tests.models.policies import VllmCacheAware, cap
from vllm_router import _core_testing as testing

# Prompts over a tiny alphabet, so that they share beginnings. A block's name stands for all before it.
PROMPTS = st.lists(st.integers(0, 2), max_size=6)
WHICH = st.integers(0, 5)
STEPS = st.one_of(
    st.tuples(st.just("ask"), PROMPTS, st.lists(WHICH, max_size=2, unique=True)),
    st.tuples(st.just("ask"), PROMPTS, st.just([])),
    st.tuples(st.just("load"), WHICH, st.integers(0, 6)),
    st.tuples(st.just("add"), st.integers(1, 5), st.sampled_from([1000, 1000, 2000])),
    st.tuples(st.sampled_from(["remove", "heal", "hurt", "drain"]), WHICH),
    st.tuples(st.just("finish"), WHICH, st.sampled_from([0, 1, 16, 100])),
    st.tuples(st.just("blocks of"), WHICH, st.sampled_from([1, 8, 16, 24, 32, 64, 10**9])),
)
STORIES = st.lists(STEPS, min_size=10, max_size=60)
OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "max_blocks_per_worker": st.integers(1, 12),
        "cache_threshold": st.sampled_from([0.0, 0.3, 0.5, 1.0]),
        "load_factor": st.sampled_from([1000, 1250, 3000]),
        "load_bound": st.sampled_from(["room", "average"]),
        "prefix_load_floor": st.integers(0, 7),
    },
)


def chain(prompt: list[int]) -> list[int]:
    names = []
    name = 1
    for block in prompt:
        name = name * 4 + block + 1
        names.append(name)
    return names


@given(story=STORIES, options=OPTIONS, own_sizes=st.booleans(), seed=st.integers(0, 2**64 - 1))
def test_it_answers_as_its_twin_does(
    story: list[Any], options: dict[str, Any], own_sizes: bool, seed: int
) -> None:
    policy, twin, fleet = (
        testing.PolicyHarness("vllm_cache_aware", seed=seed, worker_block_sizes=own_sizes, **options),
        VllmCacheAware(seed, **options),
        Fleet(),
    )
    for url in ("http://w1:8000", "http://w2:8000", "http://w3:8000"):
        policy.add(url)
        fleet.add(url)
    for what, which, *rest in story:
        if what == "ask":
            tried = [position for position in rest[0] if position < len(fleet.members)]
            blocks = chain(which)
            expected = twin.choose(blocks, fleet, tried)
            assert policy.choose_blocks(blocks, tried) == expected
            if expected is None:
                continue
            position, reason, matched, total = expected
            event(reason)
            assert 0 <= matched <= total
            worker = fleet.members[position]
            if reason == "prefix_hit" and options.get("load_bound", "room") == "room":
                bound = cap(fleet, fleet.eligible(tried), position, twin.factor)
                assert worker.requests < max(bound, twin.floor)
            limit = twin.learned.tracker.capacity
            assert all(len(blocks) <= limit for blocks in twin.learned.tracker.used.values())
        elif what == "add":
            url = f"http://w{which}:8000"
            if fleet.add(url, rest[0]):
                policy.add(url, rest[0] / 1000)
        elif fleet.members:
            worker = fleet.members[which % len(fleet.members)]
            if what == "finish":
                twin.learned.finish(rest[0])
                policy.finish_blocks(which % len(fleet.members), rest[0])
            elif what == "load":
                worker.requests = rest[0]
                policy.set_load(worker.url, rest[0])
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


@given(prompts=st.lists(PROMPTS.filter(bool), min_size=1, max_size=20))
def test_on_an_idle_fleet_an_equal_prompt_meets_a_worker_that_had_it(prompts: list[list[int]]) -> None:
    policy = testing.PolicyHarness("vllm_cache_aware", cache_threshold=0.9)
    for number in range(3):
        policy.add(f"http://w{number}:8000")
    given: dict[int, set[int]] = {0: set(), 1: set(), 2: set()}
    for prompt in prompts:
        blocks = chain(prompt)
        first = policy.choose_blocks(blocks)
        given[first[0]].update(blocks)
        again = policy.choose_blocks(blocks)
        assert again[1:] == ("prefix_hit", len(prompt), len(prompt))
        assert given[again[0]] >= set(blocks)
