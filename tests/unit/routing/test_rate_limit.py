"""cpp/routing/rate_limit.h: so many per second. Its twin: tests/models/concurrency_limiter.py."""

from vllm_router import _core_testing as testing

SECOND = 10**9


def test_a_seconds_worth_at_once_and_then_one_by_one():
    limit = testing.RateLimit(per_second=4)
    now = 123 * SECOND
    assert [limit.take(now) for _ in range(5)] == [0, 0, 0, 0, SECOND // 4]
    assert limit.take(now + SECOND // 4 - 1) == 1
    assert limit.take(now + SECOND // 4) == 0
    assert limit.take(now + SECOND // 4) == SECOND // 4


def test_a_refused_request_costs_nothing():
    limit = testing.RateLimit(per_second=1)
    assert limit.take(0) == 0
    assert [limit.take(SECOND // 2) for _ in range(9)] == [SECOND // 2] * 9
    assert limit.take(SECOND) == 0


def test_a_long_pause_saves_up_no_more_than_a_second():
    limit = testing.RateLimit(per_second=2)
    assert [limit.take(0) for _ in range(2)] == [0, 0]
    assert [limit.take(3600 * SECOND) == 0 for _ in range(3)] == [True, True, False]


def test_another_rate_holds_for_what_comes_from_now_on():
    limit = testing.RateLimit(per_second=1)
    assert [limit.take(0), limit.take(0)] == [0, SECOND]
    limit.set_rate(4)
    assert [limit.take(SECOND // 2) == 0 for _ in range(3)] == [True, True, False]
    limit.set_rate(1)
    assert limit.take(SECOND) > 0
    assert limit.take(2 * SECOND) == 0


def test_a_rate_of_0_is_none():
    limit = testing.RateLimit(per_second=0)
    assert {limit.take(0) for _ in range(1000)} == {0}
    limit.set_rate(1)
    assert [limit.take(0), limit.take(0)] == [0, SECOND]
    limit.set_rate(0)
    assert limit.take(0) == 0
