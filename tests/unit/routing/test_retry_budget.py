"""cpp/routing/retry_budget.h. The twin is compared in tests/property/, threads that meet in tests/stress/."""

from vllm_router import _core_testing as testing

ALWAYS = 100  # ten per second, over the window of ten seconds


def budget_of(share, threads=1):
    budget = testing.RetryBudget(share)
    return budget, [testing.RetryBudgetThread(budget) for _ in range(threads)]


def taken(thread, now, wanted=1000):
    return sum(thread.take(now) for _ in range(wanted))


def test_what_is_under_way_counts_as_requests_for_those_that_say_so():
    _, (thread,) = budget_of(0.5)
    assert sum(thread.take(100.0, underway=40) for _ in range(1000)) == ALWAYS + 20
    assert not thread.take(100.0)
    assert not thread.take(100.0, underway=40)
    assert thread.take(100.0, underway=44)


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
