"""cpp/worker/outlier_detector.h. The twin is compared in tests/property/, requests in tests/proxy/."""

import pytest

from vllm_router import _core_testing as testing


def counts(*events, window=80.0):
    """`events`: what happened, and when."""
    one = testing.ResponseCounts(window)
    for what, now in events:
        getattr(one, what)(now)
    return one


def test_responses_count_for_the_window():
    one = counts(("success", 100.0), ("error", 100.0), ("success", 150.0))
    assert one.within(150.0) == (1, 3)
    assert one.within(179.9) == (1, 3)
    assert one.within(180.0) == (0, 1)  # the bucket of 100 to 110 has left
    assert one.within(230.0) == (0, 0)


def test_a_stream_that_ends_in_an_error_is_one_response():
    one = counts(("success", 100.0), ("turn_into_error", 100.0))
    assert one.within(100.0) == (1, 1)


def test_a_stream_that_began_before_the_window_takes_nothing_from_others():
    one = counts(("success", 100.0), ("turn_into_error", 250.0))
    assert one.within(250.0) == (1, 1)


def test_a_clock_that_jumps_back_counts_in_the_last_bucket():
    one = counts(("success", 200.0), ("error", 100.0))
    assert one.within(200.0) == (1, 2)


@pytest.mark.parametrize(
    ("own", "others", "outlier"),
    [
        ((10, 10), (0, 20), True),  # broken in a good fleet
        ((10, 10), (0, 0), True),  # alone
        ((10, 10), (10, 10), False),  # all are sent requests that fail
        ((1, 2), (0, 20), False),  # half is not more than half
        ((6, 10), (3, 10), False),  # twice is not more than twice
        ((6, 10), (2, 10), True),
        ((0, 0), (0, 0), False),
        ((0, 10), (0, 0), False),
    ],
)
def test_a_worker_is_to_blame_if_it_does_worse_than_the_fleet(own, others, outlier):
    """mending row 2"""
    assert testing.is_outlier(own, others) == outlier


@pytest.mark.parametrize(
    ("size", "ejected", "may"),
    [
        (1, 0, True),  # panic mode goes on serving it
        (1, 1, False),
        (2, 0, True),
        (2, 1, False),
        (3, 1, False),
        (4, 1, True),
        (4, 2, False),
    ],
)
def test_half_of_the_fleet_may_be_ejected_or_one(size, ejected, may):
    """mending row 2"""
    registry = testing.Registry()
    for number in range(size):
        registry.add(f"http://worker-{number}")
    for number in range(ejected):
        registry.set_open(f"http://worker-{number}", True)
    assert registry.view.may_eject == may
