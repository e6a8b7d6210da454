"""cpp/proxy/dashboard/fleet_history.h: six numbers a second, of ten minutes, from counters."""

import pytest

from vllm_router import _core_testing as testing

# Buckets of times: the first is up to 1 ms, the last has what is longer than all bounds.
UP_TO_25_MS, UP_TO_50_MS, LONGER = 4, 5, 23


@pytest.fixture
def history():
    return testing.FleetHistory()


def test_requests_are_a_rate_of_the_last_ten_seconds(history):
    for second in range(31):
        history.add(float(second), {"requests": 20 * second if second <= 20 else 400})
    assert history.last[1] == 0
    history.add(31.0, {"requests": 450})
    assert history.last[1] == pytest.approx(5)


def test_a_first_point_has_no_rate_and_nothing_measured(history):
    history.add(0.0, {"requests": 100})
    assert history.last == (0.0, 0.0, None, None, None, None, 0.0)


def test_quantiles_are_interpolated_within_a_bucket(history):
    history.add(0.0, {})
    history.add(1.0, {}, first_tokens={UP_TO_25_MS: 10, UP_TO_50_MS: 10})
    _, _, p50, p95, *_ = history.last
    assert p50 == pytest.approx(25)
    assert p95 == pytest.approx(25 + 25 * 0.9)


def test_times_longer_than_all_bounds_are_the_last_bound(history):
    history.add(0.0, {})
    history.add(1.0, {}, first_tokens={LONGER: 1})
    assert history.last[3] == 1_800_000
    assert history.facts["p99_ms"] == 1_800_000


def test_times_are_those_of_the_last_thirty_seconds(history):
    history.add(0.0, {})
    for second in range(1, 33):
        history.add(float(second), {}, first_tokens={UP_TO_25_MS: 10})
    assert history.last[2] is None


def test_shares_are_of_prompt_tokens(history):
    history.add(0.0, {})
    history.add(
        1.0,
        {"reported": 30, "reported_of": 40, "expected": 45, "expected_of": 50, "receipts": 4, "reporting": 3},
    )
    assert history.last[4:6] == pytest.approx((0.75, 0.9))
    assert history.facts["reporting"] == pytest.approx(0.75)


def test_ten_minutes_are_kept_and_facts_are_of_them(history):
    for second in range(700):
        history.add(float(second), {"requests": 2 * second, "failed": second, "retried": 3 * second})
    assert history.size == 600
    facts = history.facts
    assert 590 <= facts["failed"] <= 600
    assert facts["requests"] == 2 * facts["failed"]
    assert facts["retried"] == 3 * facts["failed"]


def test_counters_that_fell_count_as_nothing(history):
    """A worker was removed, and what it had counted is gone."""
    history.add(0.0, {"requests": 100}, first_tokens={UP_TO_25_MS: 9})
    history.add(1.0, {"requests": 50}, first_tokens={UP_TO_25_MS: 3})
    assert history.last[1:4] == (0.0, None, None)


def test_the_longest_wait_is_below_the_bound_of_its_bucket(history):
    history.add(0.0, {})
    assert history.facts["longest_wait_ms"] is None
    history.add(1.0, {}, waits={0: 5, UP_TO_50_MS: 1}, waiting=2)
    assert history.facts["longest_wait_ms"] == 50
    assert history.last[6] == 2
