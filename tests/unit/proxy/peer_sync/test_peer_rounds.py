"""cpp/proxy/peer_sync/peer_rounds.h: passwords, permissions, TLS, and members that say too much.

What routers tell each other is in tests/proxy/test_peer_sync.py."""

import re

import pytest

from tests.fakes.authority import Authority
from tests.fakes.redis_server import FakeRedis, RedisServer
from tests.fakes.wire import eventually
from tests.models import peer_frame
from tests.proxy.test_peer_sync import (
    chat,
    chosen,
    get,
    metric,
    open_router,
    publish,
    status,
    wait_until_connected,
    wait_until_idle,
)
from tests.proxy.test_peer_sync import strides as strides_of

# All that a router's user needs, of the fleet F.
KEYS = "~vr:{F}:*"
COMMANDS = [
    *("+ping", "+time", "+xadd", "+xrange", "+del", "+pexpire"),
    *("+zadd", "+zrem", "+zrevrangebyscore", "+zremrangebyscore", "+get", "+set", "+eval"),
]
OPTIONAL = ("+client|setname",)  # the name in CLIENT LIST; without it Redis is used as well


@pytest.fixture
def workers(harness):
    return [harness.worker(), harness.worker()]


def wait_until_up(harness, router, up=True):
    eventually(lambda: (get(harness, router, "/ha/health").status == 200) is up)


def with_user(url, user):
    return url.replace("redis://", f"redis://{user}@")


def open_user(redis, commands, keys=KEYS):
    assert redis.call("ACL", "SETUSER", "router", "reset", "on", ">pass", keys, *commands) == b"OK"


@pytest.fixture
def as_user(redis, tmp_path):
    """Options of a router that logs in as that user, of the fleet F."""
    (tmp_path / "password").write_text("pass\n")
    return {
        "peer_sync": with_user(redis.url, "router"),
        "peer_sync_password_file": str(tmp_path / "password"),
        "peer_sync_fleet": "F",
    }


def test_a_user_needs_few_commands_and_the_keys_of_its_fleet(harness, redis, workers, as_user):
    open_user(redis, [*COMMANDS, *OPTIONAL])
    options = {**as_user, "rate_limit_tokens_per_second": 1000}
    one, other = (open_router(harness, workers, redis, **options) for _ in range(2))
    wait_until_connected(harness, one, other)
    holder = chosen(harness, one)
    eventually(lambda: strides_of(other) >= 11)
    wait_until_idle(other, holder)
    assert chosen(harness, other) == holder
    eventually(lambda: metric(one, "rate_limit_leases_total", result="ok") > 3)
    one.shutdown()
    one.must_end()
    third = open_router(harness, workers, redis, **options)
    eventually(lambda: metric(third, "peer_sync_snapshots_total", direction="read") == 1)
    for router in (other, third):
        eventually(lambda router=router: status(harness, router)["redis"]["trouble"] == "")
    assert redis.call("ACL", "LOG") == []  # of what was denied


# Without +eval the rate limit alone is not shared (test_rate_lease.py), without +get no snapshot is read.
NEEDED = [name for name in COMMANDS if name not in ("+del", "+zrem", "+set", "+get", "+eval")]


@pytest.mark.parametrize("command", NEEDED)
def test_a_user_without_one_of_them_is_told_which(harness, redis, workers, as_user, capfd, command):
    open_user(redis, [name for name in COMMANDS if name != command])
    router = open_router(harness, workers, redis, **as_user, rate_limit_tokens_per_second=1000)
    if command == "+xrange":  # with others only
        publish(redis, {"router": 99, "bytes": peer_frame.write(peer_frame.empty(router=99))}, fleet="F")
    said = f"NOPERM: permit the user the router's commands and keys (to {command[1:].upper()})"
    logged = []

    def is_said():
        logged.append(capfd.readouterr().err)
        # PING is a part of the login, which the log tells of.
        return said in (
            "".join(logged) if command == "+ping" else status(harness, router)["redis"]["trouble"]
        )

    eventually(is_said)
    wait_until_up(harness, router, up=False)
    assert chat(harness, router).status == 200
    open_user(redis, COMMANDS)
    wait_until_up(harness, router)


def test_without_the_snapshot_a_router_begins_all_the_same(harness, redis, workers, as_user, capfd):
    open_user(redis, [name for name in COMMANDS if name != "+get"])
    router = open_router(harness, workers, redis, **as_user)
    wait_until_up(harness, router)
    said = "NOPERM: permit the user the router's commands and keys (to GET); the snapshot is not read"
    eventually(lambda: status(harness, router)["redis"]["trouble"].endswith(said))
    assert said in capfd.readouterr().err


def open_fake(fake, **replies):
    """A Redis that has nothing to tell."""
    fake.replies |= {
        "TIME": b"*2\r\n$10\r\n1790000000\r\n$1\r\n0\r\n",
        "XADD": b"$15\r\n1790000000000-0\r\n",
        "ZREVRANGEBYSCORE": b"*0\r\n",
        "GET": b"$-1\r\n",
        **replies,
    }


def test_a_router_with_ever_more_to_say_does_not_keep_the_others_alone(harness, workers):
    with FakeRedis() as fake:
        entry = b"*2\r\n$3\r\n1-1\r\n*2\r\n$1\r\nf\r\n$4\r\njunk\r\n"
        open_fake(fake, ZREVRANGEBYSCORE=b"*1\r\n$16\r\n0000000000000063\r\n", XRANGE=b"*8\r\n" + entry * 8)
        wait_until_up(harness, open_router(harness, workers, fake))


def test_what_the_login_was_refused_for_is_said(harness, redis, workers, tmp_path):
    redis.call("CONFIG", "SET", "requirepass", "right")
    file = tmp_path / "password"
    file.write_text("wrong\n")
    router = open_router(harness, workers, redis, peer_sync_password_file=str(file))
    eventually(lambda: "WRONGPASS" in status(harness, router)["redis"]["trouble"])
    eventually(lambda: status(harness, router)["redis"]["alone"], "it is not alone")
    assert "WRONGPASS" in status(harness, router)["redis"]["trouble"]
    assert metric(router, "peer_sync_rounds_total", result="error") == 0


def test_an_error_that_comes_each_time_is_logged_once(harness, redis, workers, as_user, capfd):
    open_user(redis, [name for name in COMMANDS if name != "+xadd"])
    open_router(harness, workers, redis, **as_user)

    def rejected():
        counted = re.search(rb"cmdstat_xadd:.*rejected_calls=(\d+)", redis.call("INFO", "commandstats"))
        return int(counted[1]) if counted else 0

    eventually(lambda: rejected() >= 4)
    lines = capfd.readouterr().err.splitlines()
    assert sum("is down: it replied NOPERM" in line for line in lines) == 1
    assert sum("is used" in line for line in lines) <= 2


def test_a_key_beyond_the_fleets_is_refused(harness, redis, workers, as_user):
    open_user(redis, COMMANDS)
    router = open_router(harness, workers, redis, **{**as_user, "peer_sync_fleet": "G"})
    eventually(lambda: "NOPERM" in status(harness, router)["redis"]["trouble"])
    assert get(harness, router, "/ha/health").status == 503


def test_a_password_may_change(harness, redis, workers, tmp_path):
    file = tmp_path / "password"
    file.write_text("first\n")
    redis.call("CONFIG", "SET", "requirepass", "first")
    router = open_router(harness, workers, redis, peer_sync_password_file=str(file))
    wait_until_up(harness, router)
    redis.call("AUTH", "first")
    redis.call("CONFIG", "SET", "requirepass", "second")
    assert get(harness, router, "/ha/health").status == 200  # connections stay
    redis.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    wait_until_up(harness, router, up=False)
    file.write_text("second\n")
    wait_until_up(harness, router)
    file.unlink()
    redis.call("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
    wait_until_up(harness, router, up=False)
    assert chat(harness, router).status == 200
    file.write_text("second")
    wait_until_up(harness, router)


def test_tls_with_a_certificate_of_the_router(harness, workers, tmp_path):
    authority = Authority(tmp_path)
    files, own = authority.certify("127.0.0.1"), authority.certify("router")
    with RedisServer(
        tmp_path,
        *("--tls-cert-file", files.cert, "--tls-key-file", files.key),
        *("--tls-ca-cert-file", authority.path, "--tls-auth-clients", "yes"),
    ) as server:
        url = server.url.replace("redis://", "rediss://")
        shown = {"peer_sync_cert_path": own.cert, "peer_sync_key_path": own.key}
        one, other = (
            open_router(harness, workers, server, peer_sync=url, peer_sync_ca_file=authority.path, **shown)
            for _ in range(2)
        )
        wait_until_connected(harness, one, other)
        without = open_router(harness, workers, server, peer_sync=url, peer_sync_ca_file=authority.path)
        eventually(lambda: get(harness, without, "/ha/health").status == 503)
        eventually(lambda: metric(without, "peer_sync_rounds_total", result="ok") == 0)
        assert chat(harness, without).status == 200
