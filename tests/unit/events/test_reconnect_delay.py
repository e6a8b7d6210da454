"""cpp/events/reconnect_delay.h: how long to wait before a stream is opened again."""

from vllm_router import _core_testing as testing

SECOND = 10**9
NEVER = 0


def longest(delay, good_ns=NEVER, rejected=False):
    """In seconds, of the largest share."""
    return round(delay.next(good_ns, rejected, 0.999999999) / SECOND, 3)


def test_each_failure_doubles_the_delay_up_to_a_minute():
    delay = testing.ReconnectDelay(SECOND)
    assert [longest(delay) for _ in range(9)] == [1, 2, 4, 8, 16, 32, 60, 60, 60]


def test_the_share_is_from_half_to_all_of_it():
    assert testing.ReconnectDelay(4 * SECOND).next(NEVER, False, 0.0) == 2 * SECOND
    assert testing.ReconnectDelay(4 * SECOND).next(NEVER, False, 0.5) == 3 * SECOND


def test_a_minute_of_a_good_connection_begins_anew_and_less_does_not():
    delay = testing.ReconnectDelay(SECOND)
    assert [longest(delay) for _ in range(3)] == [1, 2, 4]
    assert longest(delay, 59 * SECOND) == 8
    assert longest(delay, 60 * SECOND) == 1


def test_a_rejection_waits_a_minute_at_once():
    delay = testing.ReconnectDelay(SECOND)
    assert longest(delay, rejected=True) == 60
    assert longest(delay) == 1


def test_the_servers_wish_counts_within_limits():
    delay = testing.ReconnectDelay(SECOND)
    for wish, first in ((0, 1), (5 * SECOND, 5), (3600 * SECOND, 60)):
        delay.set_first(wish)
        assert longest(delay, 60 * SECOND) == first


def test_the_longest_first_delay_stays_what_it_is():
    delay = testing.ReconnectDelay(60 * SECOND)
    assert [longest(delay) for _ in range(70)] == [60] * 70
