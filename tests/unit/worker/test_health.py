"""cpp/worker/health.h"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router._core import testing


def test_a_worker_starts_healthy():
    assert testing.HealthTracker(3, 2).healthy


def verdicts(tracker, observations):
    """After each observation, and whether that changed it."""
    story = []
    for success in observations:
        changed = tracker.observe(success)
        story.append((tracker.healthy, changed))
    return story


@pytest.mark.parametrize("failures", [1, 2, 3, 10])
def test_it_takes_so_many_failures_in_a_row_to_fall_ill(failures):
    story = verdicts(testing.HealthTracker(failures, 2), [False] * (failures + 2))
    assert story == [(True, False)] * (failures - 1) + [(False, True)] + [(False, False)] * 2


@pytest.mark.parametrize("successes", [1, 2, 5])
def test_it_takes_so_many_successes_in_a_row_to_recover(successes):
    tracker = testing.HealthTracker(1, successes)
    tracker.observe(False)
    story = verdicts(tracker, [True] * (successes + 2))
    assert story == [(False, False)] * (successes - 1) + [(True, True)] + [(True, False)] * 2


def test_a_success_in_between_starts_the_count_again():
    tracker = testing.HealthTracker(3, 2)
    assert not any(changed for _, changed in verdicts(tracker, [False, False, True] * 10))
    assert tracker.healthy


@given(st.lists(st.booleans(), max_size=60), st.integers(1, 4), st.integers(1, 4))
def test_the_verdict_changes_only_after_enough_observations_in_a_row_against_it(
    observations, failures, successes
):
    tracker = testing.HealthTracker(failures, successes)
    healthy, run = True, 0
    for success in observations:
        run = run + 1 if success != healthy else 0
        changes = run == (failures if healthy else successes)
        if changes:
            healthy, run = success, 0
        assert tracker.observe(success) is changes
        assert tracker.healthy is healthy
