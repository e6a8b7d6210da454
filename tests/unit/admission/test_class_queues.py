"""cpp/admission/class_queues.h: which waiter is next, and which one has to go."""

from vllm_router import _core_testing as testing

ALL = (True, True, True)


def queues(*lines):
    return testing.ClassQueues("\n".join(lines))


def drained(queues, room=ALL, now_ms=0):
    found = []
    while got := queues.next(room, now_ms):
        found.append(got)
    return found


def test_the_highest_class_is_first_and_each_is_in_order():
    made = queues()
    for number, of_class in enumerate(["batch", "default", "batch", "interactive", "default"]):
        made.enqueue(number, of_class)
    assert made.sizes == [1, 2, 2]
    assert made.mask == 0b111
    assert [number for number, _ in drained(made)] == [3, 1, 4, 0, 2]


def test_a_class_without_room_is_passed_over():
    made = queues()
    made.enqueue(0, "interactive")
    made.enqueue(1, "batch")
    assert made.next([False, False, False]) is None
    assert made.next([False, True, True]) == (1, "queued")
    assert made.next([True, False, False]) == (0, "queued")


def test_the_oldest_of_a_class_that_ages_counts_one_class_higher():
    made = queues("class default age_after_ms=1000")
    made.enqueue(0, "default", now_ms=0)
    made.enqueue(1, "interactive", now_ms=500)
    made.enqueue(2, "default", now_ms=500)
    assert made.next(ALL, 999) == (1, "queued")
    made.enqueue(3, "interactive", now_ms=999)
    assert made.next([True, False, False], 1000) == (0, "aged")
    assert made.next(ALL, 1499) == (3, "queued")
    assert made.next([True, False, False], 1499) is None
    assert made.next([True, False, False], 1500) == (2, "aged")


def test_a_class_that_ages_gets_every_second_place_by_the_order_of_its_tenants():
    made = queues("class default age_after_ms=1000")
    for number in range(4):
        made.enqueue(number, "default", tenant=1)
    made.enqueue(4, "default", tenant=2)
    for number in (10, 11, 12):
        made.enqueue(number, "interactive", now_ms=2000)
    assert made.next([False, False, False], 5000) is None
    assert made.next(ALL, 5000) == (0, "aged")
    assert made.next([False, False, False], 5000) is None  # which is no one's turn
    assert [number for number, _ in drained(made, now_ms=5000)] == [10, 4, 11, 1, 12, 2, 3]


def test_no_more_age_than_the_class_above_dispatches():
    made = queues("class default age_after_ms=1000")
    for number in range(5):
        made.enqueue(number, "default")
    room = (True, False, False)
    assert [made.next(room, 5000) for _ in range(3)] == [(0, "aged"), None, None]
    made.passed("default")
    assert made.next(room, 5000) is None
    made.passed("interactive")  # which did not wait
    assert [made.next(room, 5000) for _ in range(2)] == [(1, "aged"), None]
    assert made.next(ALL, 5000) == (2, "queued")
    made.enqueue(10, "interactive", now_ms=5000)
    assert drained(made, now_ms=5000) == [(10, "queued"), (3, "aged"), (4, "queued")]


def test_one_that_came_later_than_the_class_above_waits_behind_it():
    made = queues("class default age_after_ms=1000")
    made.enqueue(0, "interactive", now_ms=0)
    made.enqueue(1, "default", now_ms=1)
    assert made.next(ALL, 5000) == (0, "queued")
    assert made.next(ALL, 5000) == (1, "aged")


def test_weights_share_the_dispatched_cost():
    made = queues("class interactive weight=3", "class default weight=1", "class batch weight=1")
    for number in range(40):
        made.enqueue(number, "interactive", cost=100)
        made.enqueue(100 + number, "default", cost=100)
    first = [made.next(ALL)[0] for _ in range(40)]
    assert 29 <= sum(number < 100 for number in first) <= 31


def test_a_class_that_was_empty_earns_nothing_by_that():
    made = queues("class interactive weight=1", "class default weight=1", "class batch weight=1")
    for number in range(20):
        made.enqueue(number, "default", cost=100)
    for _ in range(10):
        made.next(ALL)
    for number in range(20):
        made.enqueue(100 + number, "batch", cost=100)
    first = [made.next(ALL)[0] for _ in range(10)]
    assert sum(number >= 100 for number in first) in (5, 6)


def test_a_full_queue_displaces_the_newest_of_the_lowest_class():
    made = queues("class interactive queue_size=1", "class default queue_size=2", "class batch queue_size=2")
    assert made.enqueue(0, "batch") == made.enqueue(1, "batch") == (True, None)
    assert made.enqueue(2, "batch") == (False, None)
    assert made.enqueue(3, "default") == made.enqueue(4, "default") == (True, None)
    assert made.enqueue(5, "interactive") == (True, None)
    assert made.enqueue(6, "interactive") == (True, 1)
    assert made.enqueue(7, "default") == (True, 0)
    assert made.enqueue(8, "interactive") == (True, 7)
    assert made.sizes == [3, 2, 0]
    assert made.enqueue(9, "default") == (False, None)


def test_within_a_class_the_tenant_with_the_most_waiters_gives_way():
    made = queues("class default queue_size=4")
    for number, tenant in enumerate([1, 1, 1, 2]):
        made.enqueue(number, "default", tenant)
    assert made.enqueue(4, "default", tenant=1) == (False, None)
    assert made.enqueue(5, "default", tenant=3) == (True, 2)
    # Two, one and one: one more of tenant 2 would only change places.
    assert made.enqueue(6, "default", tenant=2) == (False, None)


def test_a_size_of_0_lets_nothing_wait():
    made = queues("class interactive queue_size=0")
    made.enqueue(0, "batch")
    assert made.enqueue(1, "interactive") == (False, None)
    assert made.sizes == [0, 0, 1]


def test_one_that_is_queued_again_has_its_old_place_and_no_charge():
    made = queues()
    for number in range(3):
        made.enqueue(number, "default", cost=10)
    assert made.next(ALL) == (0, "queued")
    assert made.queued_cost("default") == 20
    made.requeue(0)
    assert made.queued_cost("default") == 30
    assert [number for number, _ in drained(made)] == [0, 1, 2]


def test_what_a_newcomer_waits_for():
    made = queues()
    for number, of_class in enumerate(["interactive", "default", "batch"]):
        made.enqueue(number, of_class, cost=10**number)
    assert [made.queued_cost(name) for name in ("interactive", "default", "batch")] == [1, 11, 111]


def test_other_settings_leave_those_that_wait():
    made = queues("class batch queue_size=3")
    for number in range(3):
        made.enqueue(number, "batch")
    made.follow("class batch queue_size=1")
    assert made.sizes == [0, 0, 3]
    assert made.enqueue(3, "batch") == (False, None)
    assert len(drained(made)) == 3
