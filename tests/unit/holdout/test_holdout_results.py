"""cpp/holdout/holdout_results.h: what closed conversations show, and when a hold-out is to stop."""

import math

import numpy as np
import pytest

from vllm_router import _core_testing as testing

SHARE = 0.1


def add_many(results, rng, count, policy, held_out):
    """Conversations whose members the two functions make, of a random arm each."""
    for is_held_out in rng.random(count) < SHARE:
        make = held_out if is_held_out else policy
        results.add(testing.ClosedConversation(is_held_out=bool(is_held_out), **make()))


def test_each_outcome_has_the_conversations_that_show_it():
    results = testing.HoldoutResults(SHARE)
    results.add(testing.ClosedConversation(prompt_tokens=100, cached_tokens=50, reporting=1))
    results.add(testing.ClosedConversation(is_held_out=True, first_turn_log_s=0.5))
    results.add(testing.ClosedConversation(later_turns_log_s=-0.5, has_failed=True))
    assert (results.policy, results.held_out, results.reporting) == (2, 1, 1)
    assert (results.cached_share.policy, results.cached_share.held_out) == (1, 0)
    assert results.cached_share.policy_mean == 0.5
    assert (results.first_turn.policy, results.first_turn.held_out) == (0, 1)
    assert (results.later_turns.policy, results.later_turns.held_out) == (1, 0)
    assert (results.failures.policy, results.failures.held_out) == (1, 0)


def test_a_stratum_is_a_power_of_two_of_the_first_requests_bytes():
    """What the first request explains does not widen the interval."""
    rng = np.random.default_rng(1)
    results = testing.HoldoutResults(SHARE)

    def make():
        size = 2.0 ** rng.integers(8, 16)
        return {"first_body_bytes": int(size), "later_turns_log_s": math.log(size) + 0.01 * rng.random()}

    add_many(results, rng, 4000, make, make)
    assert results.later_turns.sd < 1


def test_saved_tokens_of_huge_conversations_are_cut_at_a_quantile_of_those_before():
    results = testing.HoldoutResults(SHARE)
    for _ in range(300):
        results.add(testing.ClosedConversation(prompt_tokens=1000, cached_tokens=1000, reporting=1))
    assert results.saved_tokens.policy == 100
    results.add(testing.ClosedConversation(prompt_tokens=10**8, cached_tokens=10**8, reporting=1))
    assert results.saved_tokens.policy_mean == pytest.approx(1000, rel=0.05)


def test_a_quantile_is_at_most_a_sixteenth_of_a_power_of_two_too_large():
    sizes = testing.SizeQuantile()
    for size in range(1, 10_001):
        sizes.add(size)
    for share in (0.5, 0.9, 0.995):
        assert 10_000 * share <= sizes.at(share) <= 10_000 * share * 2 ** (1 / 16) + 1


def test_it_stops_for_failures_of_three_times_the_rate_and_not_without_a_difference():
    def failing(rate):
        return lambda: {"has_failed": bool(rng.random() < rate)}

    for seed in range(20):
        rng = np.random.default_rng(seed)
        results = testing.HoldoutResults(SHARE)
        add_many(results, rng, 6000, failing(0.02), failing(0.02))
        assert results.reason_to_stop == ""
    rng = np.random.default_rng(0)
    results = testing.HoldoutResults(SHARE)
    add_many(results, rng, 1000, failing(0.1), failing(0.9))
    assert (results.held_out < 200, results.reason_to_stop) == (True, "")
    add_many(results, rng, 9000, failing(0.1), failing(0.4))
    assert results.reason_to_stop == "failures"


def test_it_stops_for_first_tokens_that_take_three_times_as_long():
    def taking(seconds):
        return lambda: {"later_turns_log_s": float(math.log(seconds) + rng.standard_normal())}

    for seed in range(20):
        rng = np.random.default_rng(seed)
        results = testing.HoldoutResults(SHARE)
        add_many(results, rng, 4000, taking(1), taking(1))
        assert results.reason_to_stop == ""
    rng = np.random.default_rng(0)
    results = testing.HoldoutResults(SHARE)
    add_many(results, rng, 6000, taking(1), taking(3))
    assert results.reason_to_stop == "first_token"


def test_faster_held_out_conversations_are_no_reason_to_stop():
    rng = np.random.default_rng(0)
    results = testing.HoldoutResults(SHARE)
    add_many(results, rng, 6000, lambda: {"later_turns_log_s": 2.0}, lambda: {"later_turns_log_s": 0.0})
    assert results.reason_to_stop == ""
