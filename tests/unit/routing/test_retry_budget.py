"""cpp/routing/retry_budget.h. The twin is compared in tests/property/, threads that meet in tests/stress/."""

from vllm_router import _core_testing as testing

ALWAYS = 100  # ten per second, over the window of ten seconds


def budget_of(share, threads=1):
    budget = testing.RetryBudget(share)
    return budget, [testing.RetryBudgetThread(budget) for _ in range(threads)]


def taken(thread, now, wanted=1000):
    return sum(thread.take(now) for _ in range(wanted))


def test_ten_per_second_are_always_allowed():
    """mending row 6: the constant part stands beside the share."""
    _, (thread,) = budget_of(0.0)
    assert taken(thread, 100.0) == ALWAYS
    assert taken(thread, 109.9) == 0
    assert taken(thread, 110.0) == ALWAYS


def test_a_share_of_the_last_ten_seconds_comes_on_top():
    _, (thread,) = budget_of(0.2)
    for second in range(100, 110):
        for _ in range(100):
            thread.count_request(float(second))
    assert taken(thread, 109.0) == ALWAYS + 200
    assert not thread.take(109.9)
    assert taken(thread, 113.0) == 0  # 600 requests and 300 retries are in the window
    assert taken(thread, 130.0) == ALWAYS  # all is forgotten


def test_what_is_under_way_counts_as_requests_for_those_that_say_so():
    _, (thread,) = budget_of(0.5)
    assert sum(thread.take(100.0, underway=40) for _ in range(1000)) == ALWAYS + 20
    assert not thread.take(100.0)
    assert not thread.take(100.0, underway=40)
    assert thread.take(100.0, underway=44)


def test_all_threads_share_one_budget():
    """mending row 6: what one thread counts another may use, and what one takes another lacks."""
    _, (quiet, busy) = budget_of(0.5, threads=2)
    for _ in range(40):
        busy.count_request(100.0)
    assert taken(quiet, 100.0, wanted=70) == 70
    assert taken(busy, 100.0) == ALWAYS + 20 - 70
    assert not quiet.take(100.0)


def test_requests_of_a_thread_that_has_ended_count_no_longer():
    budget, (thread,) = budget_of(1.0)
    for _ in range(50):
        thread.count_request(100.0)
    del thread
    assert sum(budget.take(100.0) for _ in range(1000)) == ALWAYS


def test_a_thread_that_is_a_second_ahead_is_counted():
    budget, (thread,) = budget_of(1.0)
    thread.count_request(101.0)
    assert sum(budget.take(100.0) for _ in range(1000)) == ALWAYS + 1


def test_a_clock_that_jumps_back_neither_breaks_nor_refills_the_budget():
    _, (thread,) = budget_of(0.0)
    assert taken(thread, 100.0) == ALWAYS
    thread.count_request(100.0)
    thread.count_request(50.0)
    assert not thread.take(50.0)
    assert not thread.take(100.5)
    assert thread.take(1e6)


def test_another_share_holds_at_once():
    budget, (thread,) = budget_of(0.0)
    for _ in range(100):
        thread.count_request(100.0)
    assert taken(thread, 100.0) == ALWAYS
    budget.set_share(0.5)
    assert taken(thread, 100.0) == 50
    budget.set_share(0.1)
    assert taken(thread, 100.0) == 0
