"""cpp/admission/fair_queue.h. The twin is compared in tests/property/."""

from collections import Counter

import pytest

from vllm_router import _core_testing as testing

ALL = [0, 1, 2, 3]


def queue_of(*tenants, cost=100, quantum=0.0, max_waiters=1000):
    """With one waiter for each, whose numbers are 0 and so on."""
    queue = testing.FairQueue(max_waiters, quantum)
    for number, tenant in enumerate(tenants):
        assert queue.enqueue(number, tenant, cost)
    return queue


def taken(queue, count, workers=ALL):
    return [queue.next(workers) for _ in range(count)]


def test_tenants_take_turns_and_each_is_served_in_its_order():
    queue = queue_of(7, 7, 7, 7, 8, 8)
    assert taken(queue, 7) == [0, 4, 1, 5, 2, 3, None]


def test_tenants_get_tokens_by_weight_and_not_requests():
    queue = testing.FairQueue(1000, 0.0)
    for number in range(100):
        queue.enqueue(number, 1, cost=300)
        queue.enqueue(100 + number, 2, cost=100)
        queue.enqueue(200 + number, 3, cost=100, weight=2.0)
    served = Counter(number // 100 for number in taken(queue, 60))
    assert served == {0: 6, 1: 18, 2: 36}


def test_of_each_tenant_the_sixteen_oldest_are_searched():
    queue = queue_of(*[7] * 18, 8)
    assert [number for number in range(19) if not queue.is_searched(number)] == [16, 17]
    assert queue.next(ALL) == 0
    assert [queue.is_searched(number) for number in (0, 16, 17)] == [False, True, False]


def test_a_tenant_that_returns_is_ahead_by_a_quantum_at_most():
    queue = queue_of(*[1] * 50, quantum=250.0)
    assert taken(queue, 30) == list(range(30))
    for number in range(100, 120):
        queue.enqueue(number, 2, 100)
    assert queue.virtual_time_of(2) == queue.virtual_time - 250.0
    assert taken(queue, 6) == [100, 101, 102, 103, 30, 104]


def test_a_short_absence_forgives_nothing():
    queue = queue_of(1, 2, 2, 2, cost=1000)
    assert taken(queue, 1) == [0]
    assert queue.virtual_time_of(1) == 1000
    queue.enqueue(10, 1, 1000)
    assert taken(queue, 4) == [1, 2, 10, 3]


def test_a_request_whose_prompt_is_cached_goes_before_within_the_quantum():
    queue = queue_of(1, 2, cost=100, quantum=100.0)
    queue.enqueue(10, 2, 100, holders=[(3, 0.9)])
    queue.enqueue(11, 3, 100, holders=[(2, 0.94)])
    assert taken(queue, 1, [0, 1]) == [0]  # none of the holders has room
    assert taken(queue, 1) == [10]  # 0.04 more is no more
    queue.enqueue(12, 2, 100, holders=[(2, 1.0)])
    queue.enqueue(13, 2, 100, holders=[(2, 1.0)])
    assert taken(queue, 4) == [12, 11, 13, 1]  # the quantum of 2 is used up


def test_fairness_comes_before_locality_beyond_the_quantum():
    queue = testing.FairQueue(1000, 200.0)
    for number in range(20):
        queue.enqueue(number, 1, 100, holders=[(0, 1.0)])
        queue.enqueue(100 + number, 2, 100)
    served = taken(queue, 20)
    assert served[:4] == [0, 1, 2, 100]
    assert sum(number < 100 for number in served) == 11


@pytest.mark.parametrize(("before", "found"), [(15, True), (16, False)])
def test_the_search_looks_at_sixteen_of_a_tenant(before, found):
    queue = queue_of(*[1] * before, cost=0)
    queue.enqueue(99, 1, 0, holders=[(0, 1.0)])
    assert taken(queue, 1) == [99 if found else 0]


@pytest.mark.parametrize(("before", "found"), [(7, True), (8, False)])
def test_the_search_looks_at_eight_tenants(before, found):
    queue = queue_of(*range(before))
    queue.enqueue(99, 50, 0, holders=[(0, 1.0)])
    assert taken(queue, 1) == [99 if found else 0]


def test_one_that_must_have_a_worker_waits_for_it_and_delays_no_other():
    queue = testing.FairQueue(10, 0.0)
    queue.enqueue(0, 1, 100, worker=2)
    queue.enqueue(1, 1, 100)
    assert taken(queue, 2, [0, 1]) == [1, None]
    assert taken(queue, 1, [2]) == [0]


def test_where_nothing_within_the_quantum_can_go_another_does():
    queue = queue_of(1, 1)
    assert taken(queue, 1) == [0]
    queue.remove(1)
    queue.enqueue(2, 2, 100, worker=3)
    queue.enqueue(3, 1, 100)
    assert queue.virtual_time_of(2) < queue.virtual_time_of(1)
    assert taken(queue, 1, [0]) == [3]


def test_a_full_queue_takes_none_until_one_leaves():
    queue = queue_of(1, 2, 3, max_waiters=3)
    assert not queue.enqueue(9, 4, 1)
    assert queue.remove(1)
    assert not queue.remove(1)
    assert queue.enqueue(10, 4, 1)
    assert len(queue) == 3
    assert taken(queue, 4) == [0, 2, 10, None]


def test_one_that_is_queued_again_has_its_old_place_and_no_charge():
    queue = queue_of(1, 1, 1)
    assert taken(queue, 2) == [0, 1]
    assert (queue.reserved, queue.virtual_time_of(1)) == (200, 200)
    queue.requeue(1)
    queue.requeue(0)
    assert (queue.reserved, queue.virtual_time_of(1)) == (0, 0)
    assert taken(queue, 4) == [0, 1, 2, None]


def test_what_was_spent_takes_the_place_of_what_was_charged():
    queue = queue_of(1, 2, 1, 2)
    assert taken(queue, 2) == [0, 1]
    queue.settle(0, 700)
    queue.settle(1, 40)
    assert (queue.virtual_time_of(1), queue.virtual_time_of(2)) == (700, 40)
    assert (queue.reserved, taken(queue, 2)) == (0, [3, 2])


def test_a_debt_outlives_the_tenant_that_was_forgotten():
    queue = queue_of(1, cost=10)
    taken(queue, 1)
    queue.enqueue(1, 2, 500)
    queue.enqueue(2, 2, 500)
    taken(queue, 2)  # tenant 1 has been reached
    assert queue.virtual_time_of(1) is None
    queue.settle(0, 4000)
    assert queue.virtual_time_of(1) == queue.virtual_time + 3990


def test_invented_tenants_are_forgotten():
    queue = testing.FairQueue(8, 1e9)
    for number in range(1000):
        assert queue.enqueue(number, number, 10)
        assert queue.next(ALL) == number
    assert queue.tenants <= 16
    assert len(queue) == 0
