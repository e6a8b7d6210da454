"""cpp/worker/outlier_detector.h. The twin is compared in tests/property/, requests in tests/proxy/."""

import pytest

from vllm_router import _core_testing as testing


def counts(*events, window=80.0):
    """`events`: what happened, and when."""
    one = testing.ResponseCounts(window)
    for what, now in events:
        getattr(one, what)(now)
    return one


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
    assert testing.is_outlier(own, others) == outlier
