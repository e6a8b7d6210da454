"""cpp/routing/concurrency_limiter.h: permits, and the line of who waits.
Its twin: tests/models/concurrency_limiter.py.
"""

from vllm_router import _core_testing as testing


def entered(admission, *amounts):
    """What came of entering with each of these amounts."""
    return [admission.enter(amount)[0] for amount in amounts]


def test_permits_go_out_until_there_are_none():
    admission = testing.ConcurrencyLimiter(permits=3, line=0)
    assert entered(admission, 1, 2, 1) == ["held", "held", "full"]
    assert (admission.in_use, admission.full) == (3, True)
    admission.release(1)
    assert not admission.full
    assert entered(admission, 1) == ["held"]


def test_nobody_overtakes_the_one_in_front_even_with_permits_to_spare():
    # 3 of 4 are out; the one in front wants 2, the one behind it 1
    admission = testing.ConcurrencyLimiter(permits=4, line=9)
    assert entered(admission, 3, 2, 1) == ["held", "waiting", "waiting"]
    assert not admission.try_acquire(1)
    assert entered(admission, 1) == ["waiting"]
    admission.release(3)
    assert admission.take_granted() == [1, 2, 3]
    assert admission.in_use == 4
