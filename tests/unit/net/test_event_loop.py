"""cpp/net/event_loop.h"""

import threading
import time

import pytest

from vllm_router import _core_testing as testing


def test_functions_run_in_the_order_in_which_they_were_posted():
    assert testing.EventLoop().posted_order(1000) == list(range(1000))


def test_functions_may_be_posted_from_many_threads():
    loop = testing.EventLoop()
    results = []
    threads = [threading.Thread(target=lambda: results.append(loop.posted_order(100))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [list(range(100))] * 8


def test_yielding_lets_the_others_have_their_turn():
    assert testing.EventLoop().yields(5) == "ababababab"


def test_a_delay_takes_as_long_as_it_says():
    loop = testing.EventLoop()
    since = time.monotonic()
    assert loop.start_delay(0.05).get() is True
    assert time.monotonic() - since >= 0.05


def test_a_delay_of_nothing_does_not_wait():
    loop = testing.EventLoop()
    assert loop.start_delay(0).get() is True
    assert loop.start_delay(-1).get() is True


def test_a_delay_can_be_cut_short():
    loop = testing.EventLoop()
    delay = loop.start_delay(1000)
    assert not delay.done
    loop.cancel_delay()
    assert delay.get() is False


@pytest.mark.parametrize("milliseconds", [1, 100, 250])
def test_the_loop_s_wheel_fires_timers_not_early_and_soon(milliseconds):
    loop = testing.EventLoop()
    passed = loop.start_timer(milliseconds).get()
    # The clock that deadlines are read from is up to 10 ms behind.
    assert milliseconds - 10 <= passed
    assert passed < milliseconds + 5000


def test_the_wheel_goes_to_sleep_and_wakes_again():
    loop = testing.EventLoop()
    for _ in range(3):
        loop.start_timer(1).get()


def test_a_loop_that_is_dropped_ends_its_thread():
    before = threading.active_count()
    for _ in range(20):
        testing.EventLoop().posted_order(1)
    assert threading.active_count() == before
