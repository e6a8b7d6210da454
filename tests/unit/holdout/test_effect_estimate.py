"""cpp/holdout/effect_estimate.h: the same numbers as its slow twin, and intervals that hold at every look."""

import math

import numpy as np
import pytest

from tests.models import effect_estimate as twin
from vllm_router import _core_testing as testing

SHARE = 0.1
SEEDS = 1000
# 0.05, and two standard deviations of the number of misses.
MOST_MISSES = 0.05 + 2 * math.sqrt(0.05 * 0.95 / SEEDS)


def arms(rng, count, share=SHARE):
    return rng.random(count) < share


def shares(rng, count, held_out, effect):
    """Cached shares, clipped at 0 and 1: (strata, values, true effect)."""
    strata = rng.integers(0, 8, count)
    without = np.clip(rng.beta(0.8, 0.8, count) * 0.6 + 0.05 * strata, 0, 1)
    with_policy = np.clip(without + effect, 0, 1)
    return strata, np.where(held_out, without, with_policy), float((with_policy - without).mean())


def log_times(rng, count, held_out, effect):
    strata = rng.integers(0, 8, count)
    without = 0.3 * strata + rng.standard_normal(count)
    return strata, np.where(held_out, without, without + effect), effect


def tokens(rng, count, held_out, effect):
    """Cached tokens of conversations with a few huge ones, whose sizes are cut: as shares."""
    size = np.minimum(np.exp(8 + 1.2 * rng.standard_normal(count)), math.exp(8 + 1.2 * 2.58))
    strata = np.clip(np.log2(size), 0, 20).astype(int)
    without = rng.beta(1, 2, count)
    with_policy = np.clip(without + effect, 0, 1)
    return (
        strata,
        size * np.where(held_out, without, with_policy),
        float((size * (with_policy - without)).mean()),
    )


def test_terms_are_those_of_the_twin():
    rng = np.random.default_rng(1)
    held_out = arms(rng, 2000)
    strata, values, _ = shares(rng, 2000, held_out, 0.2)
    estimate = testing.EffectEstimate(SHARE)
    estimate.add_all(strata, held_out, values)
    psi = twin.terms(SHARE, strata, held_out, values)
    assert estimate.effect == pytest.approx(psi.mean(), rel=1e-9)
    assert estimate.sd == pytest.approx(psi.std(), rel=1e-9)
    assert estimate.at(0.05) == pytest.approx(twin.interval(SHARE, psi, 0.05), rel=1e-9)
    assert (estimate.policy, estimate.held_out) == ((~held_out).sum(), held_out.sum())
    assert estimate.policy_mean == pytest.approx(values[~held_out].mean())
    assert estimate.held_out_mean == pytest.approx(values[held_out].mean())


@pytest.mark.parametrize("alpha", [0.05, 0.01])
def test_the_interval_is_narrowest_where_it_is_to_be(alpha):
    at = 500 / SHARE
    rho_squared = testing.tightest_rho_squared(at, alpha)
    best = testing.confidence_half_width(at, 1, rho_squared, alpha)
    for factor in (0.8, 1.25):
        assert testing.confidence_half_width(at, 1, rho_squared * factor, alpha) > best
    assert best == pytest.approx(twin.half_width(at, 1, rho_squared, alpha))


def test_its_width_is_three_standard_errors_and_more_later():
    rho_squared = testing.tightest_rho_squared(1000, 0.05)
    multiples = [
        testing.confidence_half_width(t, 1, rho_squared, 0.05) * math.sqrt(t) for t in (200, 1000, 10_000)
    ]
    assert multiples == pytest.approx([3.36, 3.04, 3.24], abs=0.01)
    assert testing.confidence_half_width(0, 1, rho_squared, 0.05) == math.inf


def test_there_is_none_before_100_held_out_conversations():
    estimate = testing.EffectEstimate(SHARE)
    for i in range(99):
        estimate.add(0, True, i % 2)
    estimate.add_all(np.zeros(1000), np.zeros(1000), np.ones(1000))
    assert estimate.at() is None
    estimate.add(0, True, 1)
    assert estimate.at() is not None


@pytest.mark.parametrize("effect", [0, 0.2])
@pytest.mark.parametrize("outcome", [shares, log_times, tokens])
def test_at_any_look_it_misses_the_truth_in_one_case_of_20_at_most(outcome, effect):
    misses = 0
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        held_out = arms(rng, 6000)
        strata, values, truth = outcome(rng, 6000, held_out, effect)
        misses += testing.ever_misses(SHARE, strata, held_out, values, truth)
    assert misses / SEEDS <= MOST_MISSES


def test_narrower_intervals_would_miss_it_far_more_often():
    """So the test above can fail."""
    misses = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        held_out = arms(rng, 6000)
        strata, values, truth = log_times(rng, 6000, held_out, 0)
        misses += testing.ever_misses(SHARE, strata, held_out, values, truth, alpha=0.6)
    assert misses / 100 > MOST_MISSES


def test_first_tokens_that_come_10_percent_sooner_are_found():
    found = contained = 0
    for seed in range(20):
        rng = np.random.default_rng(seed)
        held_out = arms(rng, 40_000)
        strata, values, _ = log_times(rng, 40_000, held_out, math.log(0.9))
        estimate = testing.EffectEstimate(SHARE)
        estimate.add_all(strata, held_out, values)
        low, high = estimate.at()
        found += high < 0
        contained += low < math.log(0.9) < high
    assert found >= 18
    assert contained >= 18


def test_strata_that_explain_the_outcome_make_it_narrower():
    rng = np.random.default_rng(4)
    held_out = arms(rng, 10_000)
    strata = rng.integers(0, 8, 10_000)
    values = strata + 0.1 * rng.standard_normal(10_000)
    estimates = [testing.EffectEstimate(SHARE) for _ in range(2)]
    estimates[0].add_all(strata, held_out, values)
    estimates[1].add_all(np.zeros(10_000), held_out, values)
    assert estimates[0].sd < estimates[1].sd / 5


def test_how_many_more_are_needed_shrinks_with_what_is_there_and_with_the_effect():
    def needed(count, effect):
        rng = np.random.default_rng(5)
        held_out = arms(rng, count)
        strata, values, _ = log_times(rng, count, held_out, effect)
        estimate = testing.EffectEstimate(SHARE)
        estimate.add_all(strata, held_out, values)
        return estimate.held_out_needed

    assert needed(40_000, -0.5) == 0
    # (3.88 / 0.1)^2 = 1505 for a standard deviation of 1, without what is there.
    assert 1505 * 0.5 < needed(8000, -0.1) + 800 < 1505 * 2
    assert testing.EffectEstimate(SHARE).held_out_needed is None


# ---- failures


@pytest.mark.parametrize("alpha", [0.05, 0.01])
@pytest.mark.parametrize(("policy", "held_out"), [(40, 3), (200, 0), (0, 5), (1, 1), (900, 300)])
def test_the_ratio_of_failures_has_the_twins_interval(policy, held_out, alpha):
    failures = testing.FailureRatio(SHARE)
    for is_held_out, count in ((False, policy), (True, held_out)):
        for _ in range(count):
            failures.add(is_held_out)
    low, high = failures.at(alpha)
    expected_low, expected_high = twin.failure_ratios(SHARE, policy, held_out, alpha)
    if held_out == 0:
        assert low == 0
    else:
        assert low == pytest.approx(expected_low, rel=5e-3)
    if policy == 0:
        assert (high, failures.ratio) == (math.inf, math.inf)
    else:
        assert high == pytest.approx(expected_high, rel=5e-3)
        assert failures.ratio == pytest.approx(held_out / policy * (1 - SHARE) / SHARE)


def test_without_failures_any_ratio_is_possible():
    failures = testing.FailureRatio(SHARE)
    assert failures.at() == (0, math.inf)
    assert failures.ratio is None


@pytest.mark.parametrize(("policy_rate", "held_out_rate"), [(0.01, 0.01), (0.01, 0.03)])
def test_at_any_look_the_ratio_is_missed_in_one_case_of_20_at_most(policy_rate, held_out_rate):
    misses = 0
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        held_out = arms(rng, 10_000)
        failed = rng.random(10_000) < np.where(held_out, held_out_rate, policy_rate)
        misses += testing.failures_ever_miss(SHARE, held_out[failed], held_out_rate / policy_rate)
    assert misses / SEEDS <= MOST_MISSES
