"""cpp/policy/round_robin.h."""

import itertools

import pytest

from tests.models.policies import smooth_schedule
from vllm_router import _core_testing as testing


def policy(workers, weights=None):
    policy = testing.PolicyHarness("round_robin")
    policy.add_all([(f"http://w{i + 1}:8000", weights[i] if weights else 1.0) for i in range(workers)])
    return policy


def turns(policy, count):
    return [position + 1 for position in policy.choose_many(count=count)]


def test_turns_go_round_in_fleet_order():
    assert turns(policy(3), 7) == [1, 2, 3, 1, 2, 3, 1]


def test_a_worker_that_leaves_shifts_the_sequence_once():
    # The fourth call has counter 3, and 3 mod 2 = 1: the second of w1 and w3.
    three = policy(3)
    assert turns(three, 3) == [1, 2, 3]
    three.set_healthy("http://w2:8000", False)
    assert turns(three, 4) == [3, 1, 3, 1]


def test_a_retry_uses_a_turn():
    three = policy(3)
    assert three.choose() == (0, "round_robin")
    assert three.choose(tried=[0]) == (2, "round_robin")  # counter 1 of [w2, w3]
    assert three.choose() == (2, "round_robin")


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 64])
def test_over_whole_rounds_everyone_gets_the_same(workers):
    chosen = turns(policy(workers), workers * 13)
    assert [chosen.count(worker + 1) for worker in range(workers)] == [13] * workers
    for end in range(len(chosen)):
        counts = [chosen[:end].count(worker + 1) for worker in range(workers)]
        assert max(counts) - min(counts) <= 1


@pytest.mark.parametrize("threads", [2, 4])
def test_threads_take_turns_without_losing_one(threads):
    assert policy(5).choose_in_threads(threads, 5000) == [threads * 1000] * 5
    assert policy(3, [5, 1, 1]).choose_in_threads(threads, 7000) == [
        threads * 5000,
        threads * 1000,
        threads * 1000,
    ]


@pytest.mark.parametrize(
    ("weights", "round_"),
    [
        ([5, 1, 1], [1, 1, 2, 1, 3, 1, 1]),
        ([2, 1, 1], [1, 2, 3, 1]),
        ([0.5, 0.25, 0.25], [1, 2, 3, 1]),
        ([1, 2], [2, 1, 2]),
    ],
)
def test_unequal_weights_take_turns_smoothly(weights, round_):
    assert turns(policy(len(weights), weights), 3 * len(round_)) == 3 * round_


def test_a_retry_passes_over_the_slots_of_the_tried():
    #   slots   1 1 2 1 3 1 1
    weighted = policy(3, [5, 1, 1])
    assert weighted.choose(tried=[1]) == (0, "round_robin")
    assert weighted.choose(tried=[0]) == (2, "round_robin")  # equal weights are left: counter 1 of [w2, w3]
    mixed = policy(3, [5, 1, 2])
    # slots 1 3 1 1 2 1 3 1, by the rule; at counter 0 the first slot that is not w1's is w3's
    assert turns(policy(3, [5, 1, 2]), 8) == [1, 3, 1, 1, 2, 1, 3, 1]
    assert mixed.choose(tried=[0]) == (2, "round_robin")


def test_a_change_of_health_plans_anew():
    weighted = policy(3, [2, 1, 1])
    assert turns(weighted, 4) == [1, 2, 3, 1]
    weighted.set_healthy("http://w3:8000", False)
    assert sorted(turns(weighted, 6)) == [1, 1, 1, 1, 2, 2]


@pytest.mark.parametrize(
    "weights",
    [
        [10, 100_000],
        [999, 1000],
        [1000, 1001, 1002, 1003],
        [100_000] + [10] * 500,
        [100_000] + [10] * 511,
        [100_000] + [10] * 512,
        [100_000, 99_999] + [10] * 700,
        [1000] * 1024,
        [3000] * 1000 + [1000] * 24,
    ],
    ids=lambda weights: f"{len(weights)}-{weights[0]}",
)
def test_a_schedule_is_short_gives_everyone_a_turn_and_keeps_the_shares(weights):
    schedule = testing.smooth_schedule(weights)
    assert schedule == smooth_schedule(weights)
    assert len(schedule) <= max(1024, 2 * len(weights))
    counts = [schedule.count(i) for i in range(len(weights))]
    assert min(counts) >= 1
    if len(weights) < 10:
        for count, weight in zip(counts, weights, strict=True):
            assert abs(count - len(schedule) * weight / sum(weights)) <= 1 + len(weights) / 100


def test_turns_of_one_worker_are_spread_out():
    schedule = testing.smooth_schedule([3000, 1000, 1000, 1000])
    assert all(a != 0 or b != 0 for a, b in itertools.pairwise(schedule))


def test_a_schedule_for_a_fleet_of_the_largest_size_has_two_slots_each_at_most():
    schedule = testing.smooth_schedule([1000 + 10 * (i % 7) for i in range(4096)])
    assert len(schedule) <= 8192
    assert set(schedule) == set(range(4096))
