"""cpp/worker/retry_after_backoff.h"""

from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

MOST = 10.0


def test_a_rest_begins_once_and_ends_once():
    rest = testing.RetryAfterBackoff()
    assert not rest.active
    assert rest.begin(100.0, 5.0)
    assert rest.active
    assert not rest.end(104.9)
    assert rest.end(105.0)
    assert not rest.active
    assert not rest.end(106.0)
    assert rest.begin(106.0, 1.0)


def test_a_longer_rest_prolongs_it_and_a_shorter_one_does_not():
    rest = testing.RetryAfterBackoff()
    assert rest.begin(100.0, 5.0)
    assert not rest.begin(101.0, 9.0)
    assert not rest.begin(102.0, 1.0)
    assert not rest.end(109.9)
    assert rest.end(110.0)


def test_nobody_rests_for_longer_than_ten_seconds():
    rest = testing.RetryAfterBackoff()
    rest.begin(100.0, 3600.0)
    assert not rest.end(109.9)
    assert rest.end(110.0)


def test_the_clock_alone_says_whether_it_rests():
    rest = testing.RetryAfterBackoff()
    assert not rest.rests_at(100.0)
    rest.begin(100.0, 5.0)
    assert rest.rests_at(104.9)
    assert not rest.rests_at(105.0)
    assert rest.active  # nobody has asked for the end yet


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 30), st.booleans()), max_size=40))
def test_it_rests_until_the_latest_time_that_was_agreed(steps):
    rest, until, now = testing.RetryAfterBackoff(), None, 1000
    for wait, seconds, begins in steps:
        now += wait
        if begins:
            assert rest.begin(now, seconds) is (until is None)
            until = max(until or 0, now + min(seconds, MOST))
        else:
            over = until is not None and now >= until
            assert rest.end(now) is over
            until = None if over else until
        assert rest.active is (until is not None)
