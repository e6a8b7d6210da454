"""How the cost of a call grows with its input: a ratio within one run, whatever the machine's speed."""

import time

GROWTH = 16


def _least_seconds(call, argument):
    least = float("inf")
    for _ in range(5):
        began = time.process_time()
        call(argument)
        least = min(least, time.process_time() - began)
    return max(least, 1e-6)


def assert_linear(call, make):
    """Asserts that `call(make(16))` costs less than 64 times the processor time of `call(make(1))`.

    Linear is 16 times, or some 40 if only the smaller input fits the processor's cache; quadratic is 256.
    """
    small, large = make(1), make(GROWTH)
    assert _least_seconds(call, large) < 4 * GROWTH * _least_seconds(call, small)
