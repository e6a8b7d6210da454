"""cpp/redis/redis_health.h: when Redis may be used, and when it is probed."""

from vllm_router import _core_testing as testing

SECOND = 10**9


def probes_until(health, now, count):
    """The seconds between probes that all fail."""
    delays = []
    for _ in range(count):
        due = health.next_probe_ns
        assert not health.begin_probe(due - 1)
        assert health.begin_probe(due)
        assert health.state == "probing"
        assert not health.begin_probe(due)
        delays.append((due - now) / SECOND)
        health.end_probe(False, due)
        now = due
    return delays


def test_probes_come_after_1_2_4_8_16_and_then_30_seconds():
    health = testing.RedisHealth()
    health.failed(7)
    assert probes_until(health, 7, 8) == [1, 2, 4, 8, 16, 30, 30, 30]


def test_probes_may_come_no_later_than_the_longest_delay():
    for longest, delays in ((1, [1] * 5), (3, [1, 2, 3, 3, 3]), (60, [1, 2, 4, 8, 16, 32, 60, 60])):
        health = testing.RedisHealth(longest_delay_ns=longest * SECOND)
        health.failed(0)
        assert probes_until(health, 0, len(delays)) == delays


def test_a_redis_that_fails_again_soon_is_probed_less_often():
    health = testing.RedisHealth(failures=1)
    health.failed(0)
    now = 10 * SECOND
    for delay in (2, 4):
        assert health.begin_probe(now)
        health.end_probe(True, now)
        assert health.state == "up"
        health.failed(now + 59 * SECOND)
        assert health.next_probe_ns == now + (59 + delay) * SECOND
        now += 100 * SECOND
    assert health.begin_probe(now)
    health.end_probe(True, now)
    health.failed(now + 60 * SECOND)
    assert health.next_probe_ns == now + 61 * SECOND
