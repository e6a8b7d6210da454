"""cpp/worker/health.h"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing


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


# ---- when a host is asked next


def answered(watch, success, now):
    watch.begin()
    assert not watch.due(now + 1000)  # nobody is asked twice at once
    return watch.end(success, now)


def test_a_host_is_asked_at_once_and_then_once_per_interval():
    watch = testing.HealthWatch(interval_secs=60)
    assert watch.due(0)
    answered(watch, True, 0)
    assert not watch.due(59.9)
    assert watch.due(60)


def test_hosts_are_not_asked_in_step():
    watch = testing.HealthWatch(interval_secs=60)
    for spread, due in ((-1.0, 54), (0.0, 60), (1.0, 66)):
        watch.begin()
        watch.end(True, 0, spread)
        assert watch.due_at == pytest.approx(due)


def test_a_dead_host_is_out_after_three_seconds_whatever_the_interval():
    watch = testing.HealthWatch(interval_secs=60)
    answered(watch, True, 0)
    watch.suspect(10)  # a request was refused
    story = []
    for second in (10, 11, 12):
        assert watch.due(second)
        story.append(answered(watch, False, second))
    assert story == [False, False, True]
    assert not watch.healthy


def test_and_back_within_three():
    watch = testing.HealthWatch(interval_secs=60, failure_threshold=1)
    answered(watch, False, 0)
    assert not watch.due(1.9)
    assert watch.due(2)
    assert not answered(watch, False, 2)
    assert watch.due(4)
    assert not answered(watch, True, 4)
    assert watch.due(5)
    assert answered(watch, True, 5)
    assert not watch.due(64)


def test_one_that_dies_without_traffic_is_out_after_twelve_seconds():
    """mending row 7: nobody asks it for anything but its health, at the default interval."""
    watch = testing.HealthWatch()
    answered(watch, True, 0)
    assert not watch.due(9.9)
    story = []
    for second in (10, 11, 12):
        assert watch.due(second)
        story.append(answered(watch, False, second))
    assert story == [False, False, True]
    assert not watch.healthy


def test_an_unhealthy_one_is_checked_every_two_seconds():
    watch = testing.HealthWatch(failure_threshold=1)
    for now in range(0, 20, 2):
        assert watch.due(now)
        answered(watch, False, now)
        assert not watch.due(now + 1.9)


@pytest.mark.parametrize("success", [True, False])
def test_a_new_one_is_known_when_its_first_check_has_ended(success):
    watch = testing.HealthWatch()
    assert not watch.known
    watch.begin()
    assert not watch.known
    watch.end(success, 0)
    assert watch.known


def test_a_suspicion_ends_after_good_answers():
    watch = testing.HealthWatch(interval_secs=60)
    answered(watch, True, 0)
    watch.suspect(10)
    answered(watch, True, 10)
    assert watch.suspected
    assert watch.due(11)
    answered(watch, True, 11)
    assert not watch.suspected
    assert not watch.due(70)


def test_a_short_interval_is_not_made_longer():
    watch = testing.HealthWatch(interval_secs=0.1)
    answered(watch, False, 0)
    assert watch.due(0.11)


def test_a_suspicion_of_one_that_is_down_changes_nothing():
    watch = testing.HealthWatch(failure_threshold=1)
    answered(watch, False, 0)
    watch.suspect(0.5)
    assert not watch.suspected
    assert not watch.due(0.9)


def test_other_options_hold_from_the_next_check_on():
    watch = testing.HealthWatch(interval_secs=600.0, failure_threshold=3, success_threshold=2)
    watch.begin()
    watch.end(True, now=0.0)
    assert watch.due_at == 600.0
    watch.set_options(10.0, 1, 1, 100.0)
    assert watch.due_at == 110.0, "no later than the new interval says"
    watch.begin()
    assert watch.end(False, now=110.0), "one failure is enough now"
    watch.set_options(600.0, 3, 2, 111.0)
    assert watch.due_at == 112.0, "a check that was due stays so"
