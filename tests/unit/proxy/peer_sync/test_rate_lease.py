"""cpp/proxy/peer_sync/rate_lease.h: a limit of all routers, leased at a pace of its own; and without leases.

The arithmetic is in tests/unit/routing/test_rate_limit.py, the script of Redis in
tests/unit/proxy/peer_sync/test_peer_streams.py.
"""

import itertools
import time

import pytest

from tests.fakes.redis_server import FakeRedis
from tests.fakes.wire import eventually
from tests.models import peer_frame
from tests.proxy.test_peer_sync import (
    chat,
    get,
    metric,
    open_router,
    publish,
    states,
    status,
    wait_until_connected,
)
from tests.unit.proxy.peer_sync.test_peer_rounds import COMMANDS, open_user, with_user

LIMIT = "vr:{default}:lim:requests"
BOX = "redis.call('DEL', KEYS[1]) return redis.call('HSET', KEYS[1], 'a', 'b')"


@pytest.fixture
def workers(harness):
    return [harness.worker()]


def leases(router, result="ok"):
    return metric(router, "rate_limit_leases_total", result=result)


def wait_for_leases(router, count=3):
    before = leases(router)
    eventually(lambda: leases(router) >= before + count, "it leases nothing")


def admit(harness, routers, seconds):
    """How many requests each admits that has as many as it can take; and the time that passed."""
    clients = [harness.client(router) for router in routers]
    admitted = [0] * len(routers)
    begun = time.monotonic()
    while (passed := time.monotonic() - begun) < seconds:
        for at, (router, client) in enumerate(zip(routers, clients, strict=True)):
            admitted[at] += chat(harness, router, "x", client).status == 200
    return admitted, passed


@pytest.mark.parametrize("interval", [50, 2000])
def test_the_interval_of_frames_does_not_change_the_limit(harness, redis, workers, interval):
    options = {"rate_limit_tokens_per_second": 20, "peer_sync_interval_ms": interval}
    router = open_router(harness, workers, redis, **options)
    wait_for_leases(router)
    ((admitted,), passed) = admit(harness, [router], 3)
    assert 20 * passed * 0.9 <= admitted <= 20 * (passed + 1) + 1


def test_two_routers_with_equal_loads_get_equal_parts(harness, redis, workers):
    routers = [open_router(harness, workers, redis, rate_limit_tokens_per_second=20) for _ in range(2)]
    wait_until_connected(harness, *routers)
    for router in routers:
        wait_for_leases(router)
    (one, other), passed = admit(harness, routers, 4)
    assert 20 * passed * 0.9 <= one + other <= 20 * (passed + 1) + 2
    assert abs(one - other) <= 0.3 * (one + other) / 2  # few requests, so with room for how they fall


def test_leases_come_several_times_a_second_and_not_in_step(harness, workers):
    with FakeRedis() as fake:
        when = []
        fake.replies["EVAL"] = lambda *_: when.append(time.monotonic()) or b":1\r\n"
        options = {"rate_limit_tokens_per_second": 1000, "peer_sync_interval_ms": 5000}
        router = open_router(harness, workers, fake, **options)
        eventually(lambda: len(when) >= 20)
        router.shutdown()
        router.must_end()
    pauses = sorted(after - before for before, after in itertools.pairwise(when))
    assert pauses[len(pauses) // 2] < 0.25
    assert pauses[-1] - pauses[0] > 0.01


def test_a_router_that_has_no_lease_yet_admits_a_small_part(harness, redis, workers):
    """Else 16 that start together would admit 16 times a second's worth."""
    redis.pause()
    begun = time.monotonic()
    router = open_router(harness, workers, redis, rate_limit_tokens_per_second=64)
    client = harness.client(router)
    admitted = 0
    for _ in range(20):
        admitted += chat(harness, router, "x", client).status == 200
    passed = time.monotonic() - begun
    redis.resume()
    if passed < 1:  # later it has found that Redis is down, and no other router was ever heard
        assert admitted <= 4 + 4 * passed
    wait_for_leases(router)


def test_a_user_who_may_run_no_scripts_loses_leases_and_nothing_else(harness, redis, workers, capfd):
    open_user(redis, [name for name in COMMANDS if name != "+eval"], "~vr:{default}:*")
    options = {
        "peer_sync": with_user(redis.url, "router:pass"),
        "rate_limit_tokens_per_second": 20,
    }
    routers = [open_router(harness, workers, redis, **options) for _ in range(2)]
    wait_until_connected(harness, *routers)
    for router in routers:
        eventually(lambda router=router: metric(router, "rate_limit_fallback") == 1)
        eventually(lambda router=router: leases(router, "failed") > 3)
        assert metric(router, "peer_sync_up") == 1
        assert get(harness, router, "/ha/health").status == 200
        said = status(harness, router)["redis"]["trouble"]
        assert said == "replied NOPERM: permit the user the router's commands and keys (to EVAL)"
    # Each has half of the limit.
    (admitted, _), passed = admit(harness, routers, 2)
    assert 10 * passed * 0.6 <= admitted <= 10 * (passed + 1) + 1
    logged = []

    def is_said():
        logged.append(capfd.readouterr().err)
        return "cannot be leased" in "".join(logged)

    eventually(is_said)
    (line, *_) = [line for line in "".join(logged).splitlines() if "cannot be leased" in line]
    assert "NOPERM" in line
    assert "--rate-limit-tokens-per-second" in line
    open_user(redis, COMMANDS, "~vr:{default}:*")
    for router in routers:
        eventually(lambda router=router: metric(router, "rate_limit_fallback") == 0)
        wait_for_leases(router)
        assert metric(router, "peer_sync_outage_seconds_total") < 1
        eventually(lambda router=router: status(harness, router)["redis"]["trouble"] == "")


@pytest.mark.parametrize("key", [LIMIT, f"{LIMIT}:queue"])
def test_a_key_of_another_type_counts_as_none(harness, redis, workers, key):
    router = open_router(harness, workers, redis, rate_limit_tokens_per_second=1000)
    wait_for_leases(router)
    redis.call("EVAL", BOX, "1", key)
    assert chat(harness, router).status == 200
    eventually(lambda: status(harness, router)["redis"]["trouble"] == "")
    assert get(harness, router, "/ha/health").status == 200
    eventually(lambda: metric(router, "rate_limit_fallback") == 0)


@pytest.mark.parametrize("value", ["nan", "inf", "-nan", "junk"])
def test_what_another_program_wrote_to_the_limit_is_written_over(harness, redis, workers, value):
    router = open_router(harness, workers, redis, rate_limit_tokens_per_second=1000)
    wait_for_leases(router)
    redis.call("SET", LIMIT, value)
    redis.call("SET", f"{LIMIT}:queue", value)
    eventually(lambda: redis.call("GET", LIMIT).isdigit())
    wait_for_leases(router)
    assert metric(router, "rate_limit_fallback") == 0
    ((admitted,), passed) = admit(harness, [router], 0.5)
    assert 0 < admitted <= 1000 * (passed + 1) + 1


@pytest.mark.parametrize("reply", [b"$3\r\nnan\r\n", b"+OK\r\n", b"$-1\r\n", b"*0\r\n"])
def test_a_reply_that_is_no_number_is_no_lease(harness, workers, reply):
    with FakeRedis() as fake:
        fake.replies["EVAL"] = reply
        router = open_router(harness, workers, fake, rate_limit_tokens_per_second=1000)
        eventually(lambda: metric(router, "rate_limit_fallback") == 1)
        assert leases(router) == 0
        assert leases(router, "failed") > 0
        router.shutdown()
        router.must_end()


def test_a_lease_that_never_ends_keeps_no_router_from_stopping(harness, workers):
    with FakeRedis() as fake:
        fake.replies["EVAL"] = None
        router = open_router(harness, workers, fake, rate_limit_tokens_per_second=1000)
        fake.wait_for("EVAL")
        router.shutdown()
        router.must_end()


def test_a_router_of_its_own_limit_leases_nothing(harness, redis, workers):
    router = open_router(harness, workers, redis, rate_limit_tokens_per_second=50, rate_limit_scope="router")
    eventually(lambda: get(harness, router, "/ha/health").status == 200)
    ((admitted,), passed) = admit(harness, [router], 1)
    assert 50 <= admitted <= 50 * (passed + 1) + 1
    assert leases(router) == leases(router, "failed") == 0
    assert redis.call("GET", LIMIT) is None


def test_a_stream_of_another_type_makes_its_router_late_and_no_other(harness, redis, workers):
    one, other = (open_router(harness, workers, redis) for _ in range(2))
    wait_until_connected(harness, one, other)
    publish(redis, {"router": 99, "bytes": peer_frame.write(peer_frame.empty(router=99))})
    eventually(lambda: states(harness, one) == ["live", "live"])
    redis.call("EVAL", BOX, "1", f"vr:{{default}}:x:{99:016x}")
    # Late after two seconds, when one whose rounds failed would long have been without the others.
    eventually(lambda: sorted(states(harness, one)) in (["late", "live"], ["gone", "live"]))
    assert get(harness, one, "/ha/health").status == 200
    assert metric(one, "peer_sync_outage_seconds_total") < 0.5
    assert f"(to XRANGE of router {99:016x})" in status(harness, one)["redis"]["trouble"]
    assert chat(harness, one).status == 200
