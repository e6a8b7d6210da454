"""cpp/policy/auto_cost.h: the terms of auto's cost, and its weights."""

import pytest

from vllm_router import _core_testing as testing

REQUEST, CONTEXT, TOKEN_S = 0.625, 0.0009125, 80e-6


def cost(objective: str = "balanced", **terms: float) -> float:
    return testing.auto_cost(objective, **terms)


def test_an_idle_fleet_without_a_memory_costs_what_is_computed():
    assert cost(uncached=500, least_uncached=500, prompt=4000) == 500
    # With a rate, what comes meanwhile waits for it: x^2 / 4 of each token.
    rate = 10.0
    assert cost(uncached=500, least_uncached=500, prompt=4000, rate=rate) == pytest.approx(
        500 + rate * TOKEN_S / 4 * 500 * 500
    )


def test_its_own_first_token_waits_for_the_queue_the_prompt_and_a_step_and_a_half():
    decoding = REQUEST * 4 + CONTEXT * 20_000
    # The rest of the terms for open requests: their first tokens, and whole responses (none is known).
    more = REQUEST + CONTEXT * 1000
    assert cost(
        queued=700, uncached=300, least_uncached=300, requests=4, context=20_000, prompt=1000
    ) == pytest.approx(700 + 300 + 1.5 * decoding + 1.5 * more * 4 + 0.03 * 300 * 4)


def test_a_request_that_waits_shares_the_step_and_pays_as_the_fleet_is_busy():
    usual = {"uncached": 300, "least_uncached": 300, "prompt": 1000, "mean_uncached": 800}
    assert cost(**usual, waiting=2) - cost(**usual) == pytest.approx(2 * 300)
    busy = {**usual, "rate": 5.0}
    p = 5.0 * TOKEN_S * 800
    stretch = 1 / (1 - p)
    assert cost(**busy, waiting=2) - cost(**busy) == pytest.approx(2 * (300 + min(1, p * stretch) * 800))


def test_a_move_costs_more_where_all_are_busy():
    """The holder has the prompt but for 100 tokens; another worker has nothing of its 4,000."""

    def price(rate: float, mean_requests: float) -> float:
        means = {
            "least_uncached": 100,
            "prompt": 4000,
            "mean_uncached": 500,
            "rate": rate,
            "mean_requests": mean_requests,
            "mean_context": 4000 * mean_requests,
        }
        return cost(uncached=4000, **means) - cost(uncached=100, **means)

    assert price(0, 0) == 3900
    assert price(0, 0) < price(1, 0) < price(10, 0) < price(20, 0) < price(20, 30)


def test_a_shared_prefix_may_be_copied():
    means = {"least_uncached": 100, "prompt": 4000, "mean_uncached": 500, "rate": 10.0}
    alone, shared, hot = (cost(uncached=4000, **means, sharers=n) for n in (0, 1, 8))
    assert alone > shared > hot > 4000


def test_a_copy_costs_more_where_caches_are_short():
    means = {"least_uncached": 100, "prompt": 4000}
    assert cost(uncached=4000, **means, lost=0.1) == pytest.approx(4000 + 0.1 * 10 * 3900)
    assert cost(uncached=4000, **means, lost=1.0) == pytest.approx(4000 + 8 * 3900)
    assert cost(uncached=100, **means, lost=1.0) == 100


def test_what_was_sent_is_balanced_by_what_this_request_adds():
    means = {"uncached": 200, "least_uncached": 200, "prompt": 1000, "mean_output": 50}
    work = 50 * (REQUEST + CONTEXT * 1000) + 200
    assert cost(**means, sent=1.5) - cost(**means, sent=0.5) == pytest.approx(work)


def test_whole_responses_weigh_less_for_the_first_token_alone():
    usual = {"uncached": 100, "least_uncached": 100, "requests": 8, "context": 30_000, "prompt": 900}
    usual |= {"mean_output": 300}
    assert cost("ttft", **usual) < cost("balanced", **usual)


def test_a_weight_divides_what_waits_and_a_pace_multiplies_all():
    usual = {"queued": 1000, "uncached": 500, "least_uncached": 500, "prompt": 900}
    assert cost(**usual, weight=2.0) == pytest.approx(750)
    assert cost(**usual, slow=2.0) == pytest.approx(3000)


def test_a_worker_with_many_requests_costs_more_than_in_proportion():
    def load(requests: int) -> float:
        return cost(uncached=1, least_uncached=1, requests=requests, mean_prompt=8000, mean_requests=3)

    assert load(60) - load(50) > load(20) - load(10) > load(10) - load(0)


def test_the_only_worker_that_was_sent_anything_costs_no_more_than_four_times_the_mean():
    means = {"uncached": 200, "least_uncached": 200, "prompt": 200}
    assert cost(**means, sent=64) == cost(**means, sent=4) == 200 + 4 * 200
