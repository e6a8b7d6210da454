"""cpp/policy/least_load.h."""

import pytest

from tests.models.statistics import chi_square_is_plausible
from vllm_router import _core_testing as testing


def policy(loads, *, weights=None, seed=1, **options):
    """Loads are (open requests, outstanding tokens)."""
    policy = testing.PolicyHarness("least_load", seed=seed, **options)
    for i, (requests, tokens) in enumerate(loads):
        url = f"http://w{i + 1}:8000"
        policy.add(url, weights[i] if weights else 1.0)
        policy.set_load(url, requests, tokens // 2, tokens - tokens // 2)
    return policy


def test_requests_are_compared_first_and_tokens_break_ties():
    assert policy([(2, 900), (1, 5000), (1, 700)]).choose() == (2, "least_loaded")


def test_tokens_may_be_compared_first():
    tokens = {"least_load_metric": "tokens"}
    assert policy([(2, 600), (1, 5000), (1, 700)], **tokens).choose() == (0, "least_loaded")
    assert policy([(2, 700), (1, 5000), (1, 700)], **tokens).choose() == (2, "least_loaded")


@pytest.mark.parametrize("metric", ["requests", "tokens"])
def test_equals_are_drawn_evenly(metric):
    for loads in ([(0, 0)] * 4, [(3, 50)] * 4):
        drawn = policy(loads, seed=11, least_load_metric=metric).choose_many(count=8000)
        assert chi_square_is_plausible([drawn.count(i) for i in range(4)], [1] * 4)


def test_loads_are_compared_by_weight():
    assert policy([(3, 0), (5, 0)], weights=[1, 2]).choose() == (1, "least_loaded")
    assert policy([(2, 100), (4, 199)], weights=[1, 2]).choose() == (1, "least_loaded")
    assert policy([(2, 99), (4, 199)], weights=[1, 2]).choose() == (0, "least_loaded")


def test_nine_selections_without_a_finish_give_three_workers_three_each():
    three = policy([(0, 0)] * 3)
    loads = [0, 0, 0]
    for _ in range(9):
        position, _ = three.choose()
        assert loads[position] == min(loads), "the largest grows only when all are equal"
        loads[position] += 1
        three.set_load(f"http://w{position + 1}:8000", loads[position])
    assert loads == [3, 3, 3]


def test_a_new_worker_draws_traffic_until_it_is_level_and_not_longer():
    fleet = policy([(3, 0), (3, 0)])
    fleet.add("http://w3:8000")
    loads = [3, 3, 0]
    for step in range(6):
        position, _ = fleet.choose()
        assert position == 2 or step >= 3
        loads[position] += 1
        fleet.set_load(f"http://w{position + 1}:8000", loads[position])
    assert sorted(loads) == [4, 4, 4]


def test_who_may_not_serve_is_not_chosen_however_idle():
    fleet = policy([(0, 0), (9, 0), (8, 0)])
    fleet.set_healthy("http://w1:8000", False)
    assert fleet.choose() == (2, "least_loaded")
    assert fleet.choose(tried=[2]) == (1, "least_loaded")
    assert fleet.choose(tried=[1, 2]) is None


def test_it_needs_the_size_of_the_prompt_for_the_ticket():
    assert policy([(0, 0)]).needs == 4
