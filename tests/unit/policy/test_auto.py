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


def hold(policy: testing.PolicyHarness, position: int, prompt: list[int]) -> None:
    """The worker at this position was sent the prompt."""
    others = [i for i in range(3) if i != position]
    policy.choose_blocks(prompt, others, prompt_tokens=16 * len(prompt))


TERMS = {"waiting": 0, "mean_uncached": 1000, "mean_prompt": 8000, "mean_requests": 3, "weight": 1}


def cost(objective: str = "balanced", **terms: float) -> float:
    return testing.auto_cost(objective, **{**TERMS, **terms})


def test_the_example():
    costs = [
        cost(queued=2000, waiting=2, uncached=512, requests=6, context=48_000),
        cost(queued=0, uncached=4096, requests=1, context=4000),
        cost(queued=0, uncached=2048, requests=2, context=16_000),
    ]
    assert [round(each) for each in costs] == [7253, 4868, 3280]


def test_the_cheapest_of_the_example_is_chosen():
    policy = fleet()
    hold(policy, 0, PROMPT[:224])
    hold(policy, 2, PROMPT[:128])
    # The mean over the three is 7,556 here.
    policy.set_load(A, 6, waiting=2, prefill=2000, context=48_000)
    policy.set_load(B, 1, prefill=0, context=4000)
    policy.set_load(C, 2, prefill=0, context=16_000)
    assert policy.choose_blocks(PROMPT, prompt_tokens=4096) == (2, "lowest_cost", 128, 256)


def test_many_requests_move_on_by_themselves():
    policy = fleet()
    hold(policy, 0, PROMPT)
    policy.set_load(A, 120, context=540_000)
    policy.set_load(B, 3, context=6000)
    policy.set_load(C, 120, context=540_000)
    assert policy.choose_blocks(PROMPT, prompt_tokens=4136)[:3] == (1, "lowest_cost", 0)


def test_requests_without_a_first_token_count_besides_their_tokens():
    # Each costs half a mean uncached prompt, and waits for this one as well.
    usual = {"queued": 0, "uncached": 100, "requests": 4, "context": 0}
    assert cost(**usual, waiting=3) - cost(**usual) == pytest.approx(3 * (1000 / 2 + 0.7 * 100))
    assert cost("ttft", **usual, waiting=3) - cost("ttft", **usual) == pytest.approx(3 * (1000 / 2 + 100))


def test_a_worker_with_many_requests_costs_more_than_in_proportion():
    def load(requests: int) -> float:
        return cost(queued=0, uncached=1, requests=requests, context=0)

    assert load(60) - load(50) > load(20) - load(10) > load(10) - load(0)


def test_room_is_kept_for_a_mean_response():
    policy = fleet(max_blocks_per_worker=20)
    hold(policy, 0, PROMPT[:10])
    hold(policy, 0, [1000, 1001, 1002, 1003])
    assert policy.choose_blocks(PROMPT[:10], [1, 2], prompt_tokens=200)[2] == 10  # both fit
    policy.finish_blocks(0, 16 * 10)
    hold(policy, 0, [2000, 2001, 2002, 2003])  # 4 and 10 beside them
    assert policy.choose_blocks(PROMPT[:10], [1, 2], prompt_tokens=200)[2] == 6


def test_an_absurd_report_of_output_leaves_prompts_in_the_index():
    policy = fleet(max_blocks_per_worker=100_000)
    for _ in range(3):
        policy.finish_blocks(0, 2**63)
    hold(policy, 0, PROMPT)
    hold(policy, 0, PROMPT[:1])
    assert policy.choose_blocks(PROMPT, [1, 2], prompt_tokens=4100)[2] == 256


def test_who_gets_a_prompt_holds_it():
    policy = fleet()
    first = policy.choose_blocks(PROMPT, prompt_tokens=4100)
    assert first[1:] == ("lowest_cost", 0, 256)
    assert policy.choose_blocks(PROMPT, prompt_tokens=4100) == (first[0], "lowest_cost", 256, 256)


def test_speed_is_counted_once():
    # Twice the weight halves what waits, and leaves what runs alone.
    usual = {"queued": 1000, "uncached": 500, "requests": 8, "context": 20_000, "mean_prompt": 2000}
    waits = 1000 + 500 + 0.01 * 2000 * 8 * 8 / 4
    runs = 0.125 * 500 * 8 + 0.02 * (20_000 + 8 * 2000)
    assert cost(**usual, weight=1.0) == pytest.approx(waits + runs)
    assert cost(**usual, weight=2.0) == pytest.approx(waits / 2 + runs)


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
