"""cpp/proxy/thread/aborted_responses.h: one of many aborted responses counts."""

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


def test_of_a_burst_one_counts():
    """Row 12: an engine that ends aborts all of its responses at once."""
    aborted = testing.AbortedResponses()
    assert [aborted.count(now / 1000, 10, 120) for now in range(300)] == [True] + [False] * 299


def test_the_next_one_counts_after_the_spacing():
    aborted = testing.AbortedResponses()
    spacing = 120 / 9
    assert aborted.count(0, 10, 120)
    assert not aborted.count(spacing - 0.01, 10, 120)
    assert aborted.count(spacing + 0.01, 10, 120)
    assert not aborted.count(2 * spacing, 10, 120)


@for_each_row("failures", [1, 2, 3, 10, 77])
@for_each_row("window", [0.05, 1, 120])
def test_a_client_whose_responses_are_all_aborted_opens_no_breaker(failures, window):
    """Row 12: whatever the rate, for it may be the client that wants its responses aborted."""
    for per_window in (1, failures, 7 * failures, 1000):
        aborted = testing.AbortedResponses()
        breaker = testing.CircuitBreaker(failures, 1, 60, window, False)
        for step in range(3 * per_window):
            now = step * window / per_window
            if aborted.count(now, failures, window):
                given = breaker.try_pass()
                given.settle("success", now)
                given.settle_end(True, now)
        assert breaker.state == "closed"


def test_each_worker_has_its_own():
    aborted = testing.AbortedResponses()
    assert [aborted.count(0, 10, 120, worker) for worker in (1, 2, 1, 2)] == [True, True, False, False]
    assert [aborted.count(14, 10, 120, worker) for worker in (1, 3, 1, 2)] == [True, True, False, True]
