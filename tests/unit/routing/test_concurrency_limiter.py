"""cpp/routing/concurrency_limiter.h: permits, and the line of who waits.
Its twin: tests/models/concurrency_limiter.py.
"""

import pytest

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


def test_more_than_there_are_can_never_be_had():
    assert entered(testing.ConcurrencyLimiter(permits=3, line=9), 4) == ["never"]


def test_who_came_first_is_first():
    admission = testing.ConcurrencyLimiter(permits=1, line=2)
    assert entered(admission, 1, 1, 1, 1) == ["held", "waiting", "waiting", "full"]
    assert admission.take_granted() == []
    admission.release()
    assert (admission.take_granted(), admission.in_use, admission.waiting) == ([1], 1, 1)
    admission.release()
    assert (admission.take_granted(), admission.in_use, admission.waiting) == ([2], 1, 0)
    admission.release()
    assert admission.in_use == 0


def test_nobody_overtakes_the_one_in_front_even_with_permits_to_spare():
    # 3 of 4 are out; the one in front wants 2, the one behind it 1
    admission = testing.ConcurrencyLimiter(permits=4, line=9)
    assert entered(admission, 3, 2, 1) == ["held", "waiting", "waiting"]
    assert not admission.try_acquire(1)
    assert entered(admission, 1) == ["waiting"]
    admission.release(3)
    assert admission.take_granted() == [1, 2, 3]
    assert admission.in_use == 4


def test_one_that_leaves_frees_its_place_at_once_and_those_behind_it_go_if_they_fit():
    admission = testing.ConcurrencyLimiter(permits=4, line=2)
    assert entered(admission, 3, 2, 1, 1) == ["held", "waiting", "waiting", "full"]
    assert admission.leave(1)
    assert admission.take_granted() == [2]
    assert entered(admission, 1) == ["waiting"]


def test_leaving_after_the_grant_is_too_late():
    admission = testing.ConcurrencyLimiter(permits=1, line=1)
    entered(admission, 1, 1)
    admission.release()
    assert not admission.leave(1)
    assert admission.in_use == 1


def test_one_that_steps_back_stands_where_it_stood():
    admission = testing.ConcurrencyLimiter(permits=1, line=9)
    entered(admission, 1, 1, 1)
    admission.release()
    assert admission.take_granted() == [1]
    assert admission.step_back(1) == "waiting"
    assert (admission.in_use, admission.waiting, admission.take_granted()) == (0, 2, [])
    assert not admission.try_acquire(1), "those who wait come first"
    admission.nudge()
    assert admission.take_granted() == [1]


def test_one_that_got_in_without_a_line_goes_in_front_of_those_who_came_later():
    admission = testing.ConcurrencyLimiter(permits=2, line=9)
    assert entered(admission, 1, 1, 1, 1) == ["held", "held", "waiting", "waiting"]
    assert [admission.step_back(number) for number in (1, 0)] == ["waiting", "waiting"]
    order = []
    for _ in range(4):
        admission.nudge()
        order += admission.take_granted()
        admission.release()
        order += admission.take_granted()
    assert order == [1, 0, 2, 3]


def test_a_release_wakes_no_more_waiters_than_it_gave_permits():
    # All are here because they stepped back: there are permits for everybody, and use for none.
    admission = testing.ConcurrencyLimiter(permits=9, line=9)
    entered(admission, 1, 1, 1, 1)
    for number in (0, 1, 2):
        assert admission.step_back(number) == "waiting"
    admission.release(1)
    assert admission.take_granted() == [0]


def test_one_that_never_stood_in_the_line_cannot_step_back_into_a_full_one():
    admission = testing.ConcurrencyLimiter(permits=2, line=1)
    entered(admission, 1, 1, 1)
    assert admission.step_back(1) == "full"
    assert admission.take_granted() == [2], "its permit goes to the one who waits"


def test_to_nudge_an_empty_line_does_nothing():
    admission = testing.ConcurrencyLimiter(permits=1, line=1)
    admission.nudge()
    assert (admission.in_use, admission.take_granted()) == (0, [])


@pytest.mark.parametrize("line", [0, 3])
def test_full_says_what_entering_would(line):
    admission = testing.ConcurrencyLimiter(permits=2, line=line)
    for _ in range(2 + line):
        assert not admission.full
        admission.enter()
    assert admission.full
    assert entered(admission, 1) == ["full"]


def test_more_permits_go_to_those_that_wait():
    admission = testing.ConcurrencyLimiter(permits=1, line=3)
    assert entered(admission, 1, 1, 1, 1) == ["held", "waiting", "waiting", "waiting"]
    admission.set_limits(3, 3)
    assert (admission.take_granted(), admission.in_use, admission.waiting) == ([1, 2], 3, 1)
    admission.release()
    assert admission.take_granted() == [3]


def test_fewer_permits_take_none_away():
    admission = testing.ConcurrencyLimiter(permits=3, line=1)
    assert entered(admission, 1, 1, 1) == ["held"] * 3
    admission.set_limits(1, 1)
    assert (admission.in_use, admission.take_granted()) == (3, [])
    assert entered(admission, 1) == ["waiting"]
    admission.release()
    admission.release()
    assert (admission.in_use, admission.take_granted()) == (1, [])
    admission.release()
    assert (admission.in_use, admission.take_granted()) == (1, [3])


def test_a_shorter_line_keeps_those_in_it():
    admission = testing.ConcurrencyLimiter(permits=1, line=2)
    assert entered(admission, 1, 1, 1) == ["held", "waiting", "waiting"]
    admission.set_limits(1, 0)
    assert (admission.waiting, entered(admission, 1)) == (2, ["full"])
    admission.release()
    admission.release()
    assert admission.take_granted() == [1, 2]
