"""cpp/proxy/client/backoff.h: how long somebody who did not answer well is left alone."""

from vllm_router import _core_testing as testing

SECOND = 1_000_000_000


def test_each_failure_doubles_the_pause_up_to_a_minute():
    rest, now = testing.Rest(), 5
    assert rest.over(now)
    for pause in (1, 2, 4, 8, 16, 32, 60, 60):
        rest.failed(now)
        assert not rest.over(now + pause * SECOND - 1)
        now += pause * SECOND
        assert rest.over(now)


def test_failures_at_the_same_time_are_one():
    rest = testing.Rest()
    rest.failed(0)
    rest.failed(SECOND // 2)
    assert rest.over(SECOND)


def test_a_good_answer_ends_it():
    rest = testing.Rest()
    rest.failed(0)
    rest.failed(SECOND)
    rest.worked()
    assert rest.over(SECOND)
    rest.failed(SECOND)
    assert rest.over(2 * SECOND)


def test_who_does_not_know_the_question_rests_a_minute():
    rest = testing.Rest()
    rest.unknown(0)
    assert not rest.over(60 * SECOND - 1)
    assert rest.over(60 * SECOND)
