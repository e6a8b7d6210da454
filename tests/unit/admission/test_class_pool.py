"""cpp/admission/class_pool.h: who passes at once, who waits, and what dispatches those."""

import pytest

from vllm_router import _core_testing as testing


def waiting(pool):
    return pool.read()[0]


def choosing(pool):
    return pool.read()[1]


def test_one_worker_takes_one_prompt_of_an_idle_only_class():
    pool = testing.ClassPool(1)
    assert pool.try_pass("batch")
    assert not pool.try_pass("batch")  # the first has not chosen yet
    pool.set_load(0, requests=1, waiting=1)
    pool.chosen()
    assert not pool.try_pass("batch")
    pool.set_load(0, requests=1)
    assert pool.try_pass("batch")


def test_the_highest_class_never_waits_for_room():
    pool = testing.ClassPool(1)
    pool.set_load(0, requests=500, waiting=40, queued_prefill=90_000)
    pool.set_report(0, 1.0)
    for _ in range(100):
        assert pool.try_pass("interactive")
    assert choosing(pool) == 100


def test_but_for_a_place_under_the_maximum_of_requests():
    pool = testing.ClassPool(1, max_requests=8)
    pool.set_load(0, requests=7)
    assert pool.try_pass("interactive")
    pool.chosen()
    pool.set_load(0, requests=8)
    assert not pool.try_pass("interactive")


def test_what_waits_is_in_the_way_of_its_own_and_lower_classes():
    pool = testing.ClassPool(2)
    pool.set_load(0, requests=1, queued_prefill=4000, waiting=1)
    pool.set_load(1, requests=1, queued_prefill=4000, waiting=1)
    assert not pool.try_pass("default")
    assert pool.enqueue(1, "default") == (True, 1000)
    assert [pool.must_wait(name) for name in ("interactive", "default", "batch")] == [False, True, True]
    for worker in range(2):
        pool.set_load(worker, requests=1)
    assert not pool.try_pass("default")  # there is room, and another was first
    assert not pool.try_pass("batch")
    assert pool.try_pass("interactive")
    pool.pump()
    assert pool.told() == [(1, "dispatched")]
    assert not pool.must_wait("batch")


def test_no_more_are_under_way_than_workers_have_room():
    pool = testing.ClassPool(3)
    for number in range(5):
        pool.enqueue(number, "batch")
    pool.pump()
    assert [number for number, _ in pool.told()] == [0, 1, 2]
    pool.pump()
    assert pool.told() == []
    pool.set_load(0, requests=1, waiting=1)
    pool.chosen()
    pool.pump()
    assert pool.told() == []  # two are under way, and two workers have room
    pool.set_load(0, requests=1)
    pool.end_prefill()
    pool.pump()
    assert [number for number, _ in pool.told()] == [3]


def test_beside_a_higher_class_an_idle_only_one_has_half_of_the_workers():
    pool = testing.ClassPool(4)
    assert pool.try_pass("interactive")
    pool.chosen()
    for number in range(4):
        pool.enqueue(number, "batch")
    pool.pump()
    assert [number for number, _ in pool.told()] == [0, 1]
    assert waiting(pool) == [0, 0, 2]
    pool.set_time(30_000)
    pool.pump()
    assert [number for number, _ in pool.told()] == [2, 3]


def test_classes_are_dispatched_by_rank():
    pool = testing.ClassPool(1)
    pool.set_load(0, requests=1, waiting=1, queued_prefill=9000)
    for number, of_class in enumerate(["batch", "default"]):
        assert not pool.try_pass(of_class)
        pool.enqueue(number, of_class)
    pool.set_load(0, requests=1)
    pool.pump()
    assert pool.told()[0] == (1, "dispatched")


def test_what_ages_takes_an_open_class_s_room_as_often_as_that_class():
    pool = testing.ClassPool(1, "class default age_after_ms=1000")
    pool.set_load(0, requests=40, waiting=40, queued_prefill=90_000)
    for number in range(20):
        pool.enqueue(number, "default")
    pool.set_time(5_000)

    def dispatched():
        found = []
        for _ in range(5):
            pool.pump()
            told = [number for number, _ in pool.told()]
            for _ in told:
                pool.chosen()
            found += told
        return found

    assert dispatched() == [0]
    for number in (1, 2):
        for _ in range(3):
            assert pool.try_pass("interactive")
            pool.chosen()
        assert dispatched() == [number]


def test_a_full_queue_displaces_and_says_when_to_come_again():
    pool = testing.ClassPool(1, "class default queue_size=1\nclass batch queue_size=1")
    pool.set_load(0, requests=1, waiting=1, queued_prefill=9000)
    assert pool.enqueue(0, "batch", cost=500) == (True, 1000)
    assert pool.enqueue(1, "batch", cost=500) == (False, 1000)
    assert pool.enqueue(2, "default") == (True, 1000)
    assert pool.enqueue(3, "default") == (True, 1000)
    assert pool.told() == [(0, "displaced")]
    assert waiting(pool) == [0, 2, 0]


def test_one_that_leaves_is_told_nothing():
    pool = testing.ClassPool(1)
    pool.enqueue(0, "batch")
    assert pool.leave(0)
    assert not pool.leave(0)
    pool.pump()
    assert pool.told() == []
    pool.enqueue(1, "batch")
    pool.pump()
    assert not pool.leave(1)
    assert pool.told() == [(1, "dispatched")]


def test_one_that_was_dispatched_in_vain_has_its_old_place():
    pool = testing.ClassPool(1)
    for number in range(2):
        pool.enqueue(number, "default")
    pool.pump()
    assert [number for number, _ in pool.told()] == [0, 1]  # a gated class has small prompts side by side
    pool.chosen()
    pool.requeue(0)
    pool.pump()
    assert pool.told() == [(0, "dispatched")]
    pool.settle(0, 7)


def test_without_permits_nothing_is_dispatched():
    pool = testing.ClassPool(1, permits=0)
    assert not pool.try_pass("interactive")
    pool.enqueue(0, "interactive")
    pool.pump()
    assert pool.told() == []


def test_of_a_pool_without_workers_all_are_dispatched():
    pool = testing.ClassPool(1)
    pool.set_load(0, requests=1, waiting=1)
    for number in range(3):
        pool.enqueue(number, "batch")
    pool.set_healthy(False)
    assert pool.try_pass("interactive")
    pool.pump()
    assert len(pool.told()) == 3


def test_without_classes_all_are_dispatched():
    pool = testing.ClassPool(1)
    pool.set_load(0, requests=1, waiting=1)
    for number in range(3):
        pool.enqueue(number, "batch")
    pool.dispatch_all()
    assert [number for number, _ in pool.told()] == [0, 1, 2]


@pytest.mark.parametrize("empty", [True, False], ids=["empty", "waiting"])
def test_a_pool_that_retires_takes_no_waiter(empty):
    pool = testing.ClassPool(1)
    if not empty:
        pool.enqueue(0, "batch")
    assert pool.retire() == empty
    assert pool.enqueue(1, "batch")[0] != empty


def test_a_pool_in_use_does_not_retire():
    pool = testing.ClassPool(1)
    assert pool.try_pass("batch")
    assert not pool.retire()  # it is under way
    pool.chosen()
    assert not pool.retire()  # and has no first token
    pool.end_prefill()
    assert pool.retire()


def test_who_waits_is_moved_in_order_and_keeps_how_long_it_has_waited():
    pool = testing.ClassPool(1)
    pool.set_load(0, requests=1, waiting=1, queued_prefill=4000)
    for number, of_class in enumerate(["batch", "default", "batch"]):
        pool.enqueue(number, of_class)
    pool.move_all()
    assert pool.told() == [(1, "moved"), (0, "moved"), (2, "moved")]
    assert waiting(pool) == [0, 0, 0]
    assert not pool.enqueue(3, "batch")[0]
