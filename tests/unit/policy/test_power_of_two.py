"""cpp/policy/power_of_two.h."""

from collections import Counter

import pytest

from tests.models.random import Random
from tests.models.statistics import chi_square_is_plausible
from vllm_router import _core_testing as testing


def policy(requests, *, weights=None, seed=1):
    policy = testing.PolicyHarness("power_of_two", seed=seed)
    for i, load in enumerate(requests):
        url = f"http://w{i + 1}:8000"
        policy.add(url, weights[i] if weights else 1.0)
        policy.set_load(url, load)
    return policy


def test_the_less_loaded_of_two_is_chosen():
    # pairs {1,2} and {2,3} give w2, {1,3} gives w1; w3 gets nothing until it is level
    drawn = Counter(policy([7, 3, 9]).choose_many(count=9000))
    assert chi_square_is_plausible([drawn[0], drawn[1]], [1, 2])
    assert drawn[2] == 0
    level = Counter(policy([7, 7, 7]).choose_many(count=9000))
    assert chi_square_is_plausible([level[i] for i in range(3)], [1, 1, 1])


@pytest.mark.parametrize("workers", [2, 3, 10])
def test_with_equal_loads_the_choice_is_uniform(workers):
    drawn = policy([0] * workers, seed=21).choose_many(count=10_000)
    assert chi_square_is_plausible([drawn.count(i) for i in range(workers)], [1] * workers)


def test_the_strictly_most_loaded_is_never_chosen():
    assert 3 not in policy([0, 1, 2, 3]).choose_many(count=2000)


def test_the_second_is_drawn_from_the_others_and_the_first_wins_ties():
    three, dice = policy([0, 0, 0], seed=5), Random(5)
    for _ in range(50):
        first = dice.below(3)
        dice.below(2)
        assert three.choose() == (first, "power_of_two")


def test_one_worker_is_chosen_without_a_draw():
    one, dice = policy([3], seed=5), Random(5)
    for _ in range(3):
        assert one.choose() == (0, "power_of_two")
    one.add("http://w2:8000")
    one.set_load("http://w1:8000", 0)
    assert one.choose()[0] == dice.below(2)


def test_loads_are_compared_by_weight():
    assert set(policy([3, 5], weights=[1, 2]).choose_many(count=50)) == {1}


def test_two_ranks_of_one_host_are_two_workers():
    ranks = testing.PolicyHarness("power_of_two", seed=1)
    ranks.add_all([("http://a:8000@0", 1.0), ("http://a:8000@1", 1.0)])
    ranks.set_load("http://a:8000@0", 1)
    assert set(ranks.choose_many(count=50)) == {1}
