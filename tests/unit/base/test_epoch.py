"""cpp/base/epoch.h: what is retired is freed when nobody can see it any more, not before and not never."""

import gc
import threading

from vllm_router import _core_testing as testing


def test_without_readers_the_retired_is_freed_at_the_next_collection():
    reclaimer = testing.EpochReclaimer()
    reclaimer.retire(1, bytes=100)
    assert (reclaimer.freed, reclaimer.backlog, reclaimer.backlog_bytes) == ([], 1, 100)
    reclaimer.collect()
    assert (reclaimer.freed, reclaimer.backlog, reclaimer.backlog_bytes) == ([1], 0, 0)


def test_a_reader_keeps_what_was_retired_after_it_came():
    reclaimer = testing.EpochReclaimer()
    guard = testing.ReadGuard()
    reclaimer.retire(1)
    for _ in range(3):
        reclaimer.collect()
    assert reclaimer.freed == []
    del guard
    gc.collect()
    reclaimer.collect()
    assert reclaimer.freed == [1]


def test_a_reader_does_not_keep_what_was_retired_before_it_came():
    reclaimer = testing.EpochReclaimer()
    reclaimer.retire(1)
    reclaimer.collect()
    guard = testing.ReadGuard()
    assert reclaimer.freed == [1]
    del guard


def test_guards_nest():
    reclaimer = testing.EpochReclaimer()
    outer = testing.ReadGuard()
    reclaimer.retire(1)
    inner = testing.ReadGuard()
    del inner
    reclaimer.collect()
    assert reclaimer.freed == []
    del outer
    reclaimer.collect()
    assert reclaimer.freed == [1]


def test_every_64th_retirement_collects():
    reclaimer = testing.EpochReclaimer()
    for number in range(1, 130):
        reclaimer.retire(number)
    assert reclaimer.freed == list(range(1, 129))


def test_a_reader_that_sleeps_delays_memory_and_nothing_else():
    # A thread pins and waits; the writer goes on, and the backlog shows it.
    reclaimer = testing.EpochReclaimer()
    pinned, wake = threading.Event(), threading.Event()

    def sleep():
        guard = testing.ReadGuard()
        pinned.set()
        wake.wait()
        del guard

    thread = threading.Thread(target=sleep)
    thread.start()
    pinned.wait()
    for number in range(1, 1001):
        reclaimer.retire(number, bytes=10)
    assert (reclaimer.freed, reclaimer.backlog_bytes) == ([], 10_000)
    wake.set()
    thread.join()
    reclaimer.collect()
    assert reclaimer.freed == list(range(1, 1001))


def test_threads_that_come_and_go_leave_nothing_behind():
    reclaimer = testing.EpochReclaimer()
    testing.threads_that_pin_once(300)
    reclaimer.retire(1)
    reclaimer.collect()
    assert reclaimer.freed == [1]


def test_there_may_be_any_number_of_readers():
    reclaimer = testing.EpochReclaimer()
    barrier, leave = threading.Barrier(101), threading.Event()

    def read():
        guard = testing.ReadGuard()
        barrier.wait()
        leave.wait()
        del guard

    threads = [threading.Thread(target=read) for _ in range(100)]
    for thread in threads:
        thread.start()
    barrier.wait()
    reclaimer.retire(1)
    reclaimer.collect()
    assert reclaimer.freed == []
    leave.set()
    for thread in threads:
        thread.join()
    reclaimer.collect()
    assert reclaimer.freed == [1]


def test_a_moment_has_passed_when_all_readers_of_then_have_left():
    guard = testing.ReadGuard()
    moment = testing.epoch_now()
    assert not testing.epoch_all_left_since(moment)
    del guard
    assert testing.epoch_all_left_since(moment)
    assert testing.epoch_all_left_since(testing.epoch_now())
