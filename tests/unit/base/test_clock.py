"""cpp/base/clock.h."""

import time

from vllm_router import _core_testing as testing


def test_the_steady_clock_never_goes_back():
    times = [testing.steady_now_nanos() for _ in range(1000)]
    assert times == sorted(times)


def test_the_steady_clock_is_the_monotonic_clock_that_python_sees():
    before = time.monotonic_ns()
    now = testing.steady_now_nanos()
    assert before <= now <= time.monotonic_ns()


def test_the_manual_clock_stands_still_until_told_to_move():
    clock = testing.ManualClock()
    start = clock.now_nanos()
    assert clock.now_nanos() == start
    clock.advance(1_500_000_000)
    clock.advance(1)
    assert clock.now_nanos() == start + 1_500_000_001
