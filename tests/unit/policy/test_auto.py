"""cpp/policy/auto.h: its example, its edges. Random stories: tests/property."""

import pytest

from vllm_router import Router
from vllm_router import _core_testing as testing

A, B, C = (f"http://{name}:8000" for name in "abc")
PROMPT = list(range(1, 257))  # 256 blocks of 16 tokens: 4,096


def fleet(**options) -> testing.PolicyHarness:
    policy = testing.PolicyHarness("auto", seed=1, **options)
    for url in (A, B, C):
        policy.add(url)
    return policy


def test_the_example():
    terms = {"mean_prompt": 8000, "weight": 1}
    costs = [
        testing.auto_cost(queued=2000, uncached=512, requests=6, context=48_000, **terms),
        testing.auto_cost(queued=0, uncached=4096, requests=1, context=4000, **terms),
        testing.auto_cost(queued=0, uncached=2048, requests=2, context=16_000, **terms),
    ]
    assert [round(cost) for cost in costs] == [7619, 5106, 4058]


def test_the_cheapest_of_the_example_is_chosen():
    policy = fleet()
    policy.finish_blocks(0, PROMPT[:224])
    policy.finish_blocks(2, PROMPT[:128])
    # The mean over the three is 7,556 here.
    policy.set_load(A, 6, prefill=2000, context=48_000)
    policy.set_load(B, 1, prefill=0, context=4000)
    policy.set_load(C, 2, prefill=0, context=16_000)
    assert policy.choose_blocks(PROMPT, prompt_tokens=4096) == (2, "lowest_cost", 128, 256)


def test_a_crowd_moves_on_by_itself():
    policy = fleet()
    policy.finish_blocks(0, PROMPT)
    policy.set_load(A, 120, context=540_000)
    policy.set_load(B, 3, context=6000)
    policy.set_load(C, 120, context=540_000)
    assert policy.choose_blocks(PROMPT, prompt_tokens=4136)[:3] == (1, "lowest_cost", 0)


def test_who_gets_a_prompt_holds_it():
    policy = fleet()
    first = policy.choose_blocks(PROMPT, prompt_tokens=4100)
    assert first[1:] == ("lowest_cost", 0, 256)
    assert policy.choose_blocks(PROMPT, prompt_tokens=4100) == (first[0], "lowest_cost", 256, 256)


def test_the_blocks_of_an_answer_are_known_when_it_has_ended():
    policy = fleet()
    position = policy.choose_blocks(PROMPT[:10], prompt_tokens=160)[0]
    policy.finish_blocks(position, PROMPT[:20])
    assert policy.choose_blocks(PROMPT[:25], prompt_tokens=400) == (position, "lowest_cost", 20, 25)


def test_speed_is_counted_once():
    # Twice the weight halves the work that waits, and leaves what the open requests say of it alone.
    usual = {"queued": 1000, "uncached": 500, "requests": 10, "context": 20_000, "mean_prompt": 2000}
    assert testing.auto_cost(**usual, weight=1.0) == 2000 + 2000
    assert testing.auto_cost(**usual, weight=2.0) == 1000 + 2000


def test_equal_costs_go_by_least_load_and_then_by_lot():
    policy = fleet()
    assert {policy.choose_blocks([], prompt_tokens=100)[0] for _ in range(100)} == {0, 1, 2}


def test_without_a_prompt_the_least_work_decides():
    policy = fleet()
    policy.set_load(A, 1, context=10)
    policy.set_load(C, 2, context=10)
    assert policy.choose_blocks([], prompt_tokens=100, has_blocks=False) == (1, "fallback", 0, 0)


def test_nobody_eligible_and_one_eligible():
    policy = fleet()
    assert policy.choose_blocks(PROMPT, [0, 1, 2]) is None
    assert policy.choose_blocks(PROMPT, [0, 2])[0] == 1


@pytest.mark.parametrize("words", [{"prompt": "word " * 400}, {"token_ids": list(range(500))}])
def test_routers_offer_it(words):
    router = Router(policy="auto", worker_urls=[A, B, C], seed=1)
    first = router.select(**words)
    first.finish(status=200)
    second = router.select(**words)
    assert (first.reason, second.reason) == ("lowest_cost", "lowest_cost")
    assert second.worker_url == first.worker_url
    assert second.matched > 0
