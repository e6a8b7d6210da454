"""cpp/shared_pool/query_backoff.h: when a service that fails is queried again."""

from vllm_router import _core_testing as testing

SECOND = 1_000_000_000


def failed(times, at=0):
    backoff = testing.QueryBackoff()
    for _ in range(times):
        assert backoff.may_query(at)
        backoff.failed(at)
    return backoff


def test_four_failures_pause_nothing():
    backoff = failed(4)
    assert backoff.may_query(0)
    backoff.worked()
    backoff.failed(0)
    assert backoff.may_query(0)


def test_five_in_a_row_pause_for_five_seconds():
    backoff = failed(5)
    assert backoff.paused
    assert not backoff.may_query(5 * SECOND - 1)
    assert backoff.may_query(5 * SECOND)


def test_one_probe_at_a_time_and_the_pause_doubles_up_to_a_minute():
    backoff, now, pauses = failed(5), 5 * SECOND, []
    for _ in range(5):
        assert backoff.may_query(now)
        assert not backoff.may_query(now)
        backoff.failed(now)
        pause = next(s for s in range(1, 100) if backoff.may_query(now + s * SECOND))
        backoff.left()
        pauses.append(pause)
        now += pause * SECOND
    assert pauses == [10, 20, 40, 60, 60]


def test_a_success_ends_the_pause_for_good():
    backoff = failed(5)
    assert backoff.may_query(5 * SECOND)
    backoff.worked()
    assert not backoff.paused
    for _ in range(5):
        assert backoff.may_query(6 * SECOND)
        backoff.failed(6 * SECOND)
    assert backoff.may_query(11 * SECOND)


def test_a_probe_whose_client_left_makes_room_for_another():
    backoff = failed(5)
    assert backoff.may_query(5 * SECOND)
    backoff.left()
    assert backoff.may_query(5 * SECOND)


def test_failures_of_queries_from_before_the_pause_do_not_lengthen_it():
    backoff = failed(5)
    backoff.failed(4 * SECOND)
    assert backoff.may_query(5 * SECOND)
