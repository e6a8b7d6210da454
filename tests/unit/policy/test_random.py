"""cpp/policy/random.h."""

import pytest

from tests.models.random import Random
from tests.models.statistics import chi_square_is_plausible
from vllm_router import _core_testing as testing


def policy(workers, seed=1, weights=None):
    policy = testing.PolicyHarness("random", seed=seed)
    policy.add_all([(f"http://w{i + 1}:8000", weights[i] if weights else 1.0) for i in range(workers)])
    return policy


@pytest.mark.parametrize("seed", range(5))
def test_30000_draws_over_three_equal_workers_are_a_third_each(seed):
    drawn = policy(3, seed).choose_many(count=30_000)
    assert all(9_700 <= drawn.count(worker) <= 10_300 for worker in range(3))


@pytest.mark.parametrize("weights", [[1, 1, 1, 1], [1, 2, 3], [0.01, 1, 100], [2.5, 2.5, 5, 0.5, 1, 1, 1]])
def test_10000_draws_fit_the_weights(weights):
    drawn = policy(len(weights), 7, weights).choose_many(count=10_000)
    assert chi_square_is_plausible([drawn.count(i) for i in range(len(weights))], weights)


def test_equal_seeds_draw_alike_and_different_seeds_differ_within_64_draws():
    assert policy(5, 3).choose_many(count=1000) == policy(5, 3).choose_many(count=1000)
    sequences = {tuple(policy(5, seed).choose_many(count=64)) for seed in range(50)}
    assert len(sequences) == 50


def test_with_one_worker_the_draw_is_still_made():
    one = policy(1, seed=9)
    dice = Random(9)
    assert one.choose() == (0, "random")
    dice.next()
    one.add("http://w2:8000")
    assert [one.choose()[0] for _ in range(20)] == [dice.below(2) for _ in range(20)]


def test_nobody_who_may_not_serve_is_drawn(rng):
    flipping = policy(6)
    down = set()
    for _ in range(300):
        worker = rng.randrange(6)
        flipping.set_healthy(f"http://w{worker + 1}:8000", worker in down)
        down ^= {worker}
        drawn = {flipping.choose() for _ in range(5)}
        assert drawn == {None} if len(down) == 6 else not down & {position for position, _ in drawn}


def test_a_retry_draws_from_the_rest_by_weight():
    weighted = policy(4, 5, [1, 2, 3, 4])
    drawn = [weighted.choose(tried=[2])[0] for _ in range(5000)]
    assert drawn.count(2) == 0
    assert chi_square_is_plausible([drawn.count(i) for i in (0, 1, 3)], [1, 2, 4])


def test_ranks_are_separate_outcomes():
    ranks = testing.PolicyHarness("random", seed=2)
    ranks.add_all([("http://a:8000@0", 1.0), ("http://a:8000@1", 1.0), ("http://b:8000", 1.0)])
    drawn = ranks.choose_many(count=9000)
    assert chi_square_is_plausible([drawn.count(i) for i in range(3)], [1, 1, 1])


def test_it_needs_nothing_of_the_request():
    assert policy(1).needs == 0
