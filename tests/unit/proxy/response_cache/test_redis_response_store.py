"""cpp/proxy/response_cache/redis_response_store.h: what requests find in Redis and store there.

What the control thread does beside is in tests/unit/proxy/response_cache/test_response_cache_service.py.
"""

import pytest

from tests.fakes.authority import Authority
from tests.fakes.redis_server import RedisServer, hang_up
from tests.fakes.wire import eventually
from vllm_router import _core_testing as testing

NO_ERRORS = {"connection": 0, "timeout": 0, "other": 0}


def key(number):
    return "cr:resp:" + testing.RedisResponses.hex_key(number)


def text(value):
    return b"$%d\r\n%s\r\n" % (len(value), value)


def connections_ever(redis):
    lines = redis.call("INFO", "stats").split(b"\r\n")
    return int(dict(line.split(b":") for line in lines if b":" in line)[b"total_connections_received"])


def test_what_is_stored_is_found_byte_for_byte(open_responses, redis):
    responses = open_responses(redis.url, connections=2)
    blob = bytes(range(256)) * 4_000
    assert responses.find(1).get() == ("miss", b"")
    responses.set(1, blob)
    eventually(lambda: responses.find(1).get() == ("hit", blob))
    assert responses.find(2).get() == ("miss", b"")
    assert redis.call("GET", key(1)) == blob
    responses.delete(1)
    eventually(lambda: responses.find(1).get() == ("miss", b""))
    eventually(lambda: responses.stats()["latency"]["delete"] == 1)  # its reply, which comes last
    stats = responses.stats()
    assert stats["latency"]["set"] == 1
    assert stats["latency"]["get"] >= 4
    assert (stats["errors"], stats["late"], stats["dropped"], stats["waiting_bytes"]) == (NO_ERRORS, 0, 0, 0)


@pytest.mark.parametrize(("ttl_ms", "seconds"), [(1, 1), (1_000, 1), (1_001, 2), (300_000, 300)])
def test_a_response_expires_by_itself_after_whole_seconds(open_responses, fake, ttl_ms, seconds):
    open_responses(fake.url).set(1, b"x", ttl_ms)
    assert fake.wait_for("SET") == [["SET", key(1), "x", "EX", str(seconds)]]


def test_a_response_without_a_time_is_not_stored(open_responses, fake):
    responses = open_responses(fake.url)
    responses.set(1, b"x", 0)
    responses.set(2, b"y")
    assert fake.wait_for("SET") == [["SET", key(2), "y", "EX", "60"]]


def test_with_tls(open_responses, tmp_path):
    authority = Authority(tmp_path)
    files = authority.certify("127.0.0.1")
    options = (
        *("--tls-cert-file", files.cert, "--tls-key-file", files.key),
        *("--tls-ca-cert-file", authority.path, "--tls-auth-clients", "no"),
    )
    with RedisServer(tmp_path, *options) as server:
        responses = open_responses(server.url.replace("redis://", "rediss://"), ca_file=authority.path)
        responses.set(1, b"x" * 300_000)
        eventually(lambda: responses.find(1).get() == ("hit", b"x" * 300_000))


# ---- a Redis that is slow


def test_a_reply_beyond_the_budget_is_not_used(open_responses, fake):
    fake.replies["GET"] = None
    responses = open_responses(fake.url, lookup_budget_ms=5)
    call = responses.find(1)
    assert call.get() == ("late", b"")
    assert responses.stats()["late"] == 1
    # The reply comes after all, and the next one is of the next look-up.
    fake.wait_for("GET")
    fake.replies["GET"] = text(b"second")
    connection = fake.connection_of("GET")
    connection.sendall(text(b"first"))
    eventually(lambda: responses.stats()["latency"]["get"] == 1)
    eventually(lambda: responses.find(2).get() == ("hit", b"second"))
    assert responses.stats()["errors"] == NO_ERRORS


def test_a_request_that_is_cancelled_does_not_wait(open_responses, fake):
    fake.replies["GET"] = None
    responses = open_responses(fake.url)
    call = responses.find(1)
    fake.wait_for("GET")
    responses.cancel(call)
    assert call.get() == ("late", b"")
    assert responses.stats()["late"] == 0
    fake.replies["GET"] = b"$-1\r\n"
    already = responses.find(2)
    responses.cancel(already)
    already.get()


def test_what_waits_for_redis_has_a_limit_and_the_newest_is_dropped(open_responses, fake):
    fake.replies["SET"] = None
    responses = open_responses(fake.url, max_waiting_bytes=1_000)
    responses.set(1, b"x" * 600)
    responses.set(2, b"y" * 401)
    responses.set(3, b"z" * 400)
    assert [words[1] for words in fake.wait_for("SET", 2)] == [key(1), key(3)]
    assert responses.stats()["dropped"] == 1
    assert responses.stats()["waiting_bytes"] == 1_000
    fake.replies["SET"] = b"+OK\r\n"
    connection = fake.connection_of("SET")
    connection.sendall(b"+OK\r\n+OK\r\n")
    eventually(lambda: responses.stats()["waiting_bytes"] == 0)
    responses.set(4, b"a" * 1_000)
    fake.wait_for("SET", 3)
    assert responses.stats()["dropped"] == 1


def test_responses_beyond_what_a_connection_takes_wait_and_are_stored(open_responses, redis):
    responses = open_responses(redis.url)
    blob = b"x" * (3 << 20)
    redis.pause()
    for number in range(5):
        responses.set(number, blob)
    assert responses.stats()["waiting_bytes"] == 15 << 20
    responses.set(5, blob)
    redis.resume()
    eventually(lambda: responses.stats()["waiting_bytes"] == 0)
    assert responses.stats()["dropped"] == 1
    assert [redis.call("STRLEN", key(number)) for number in range(6)] == [3 << 20] * 5 + [0]


def test_a_stopped_redis_costs_a_budget_once_and_then_nothing(open_responses, redis):
    """Its process is halted: it accepts and does not reply."""
    responses = open_responses(redis.url, lookup_budget_ms=10, command_timeout_ms=200, connect_timeout_ms=200)
    redis.pause()
    assert responses.find(1).get() == ("late", b"")
    eventually(lambda: responses.stats()["fallback"])
    assert responses.stats()["errors"]["timeout"] >= 1
    for _ in range(10):
        assert responses.find(1).get() == ("down", b"")
    responses.set(1, b"x")
    assert responses.stats()["dropped"] == 1
    redis.resume()
    eventually(lambda: responses.stats()["usable"])
    eventually(lambda: responses.find(1).get() == ("miss", b""))


# ---- a Redis that fails


def test_a_redis_that_is_killed_is_down_at_once_and_used_again(open_responses, redis):
    responses = open_responses(redis.url)
    responses.set(1, b"x")
    eventually(lambda: responses.find(1).get() == ("hit", b"x"))
    redis.kill()
    eventually(lambda: responses.stats()["fallback"])
    assert responses.find(1).get() == ("down", b"")
    assert responses.stats()["errors"]["connection"] >= 1
    assert redis.start()
    eventually(lambda: responses.stats()["usable"] and responses.stats()["idle"] == 2)
    assert responses.find(1).get() == ("miss", b"")
    responses.set(1, b"y")
    eventually(lambda: responses.find(1).get() == ("hit", b"y"))


def test_a_connection_that_ends_in_a_reply_has_no_response(open_responses, fake):
    def half(connection, _):
        connection.sendall(b"$100\r\nhalf")
        hang_up(connection)

    fake.replies["GET"] = half
    responses = open_responses(fake.url)
    assert responses.find(1).get() == ("down", b"")
    assert responses.stats()["fallback"]
    assert responses.stats()["errors"]["connection"] == 1


@pytest.mark.parametrize(
    "error",
    [
        "LOADING Redis is loading the dataset in memory",
        "MASTERDOWN Link with MASTER is down",
        "BUSY Redis is busy running a script",
        "MOVED 3999 127.0.0.1:6381",
        "ASK 3999 127.0.0.1:6381",
        "CLUSTERDOWN Hash slot not served",
        "NOPERM this user has no permissions",
        "NOAUTH Authentication required.",
    ],
)
def test_a_look_up_that_is_rejected_means_down_at_the_first(open_responses, fake, error):
    fake.replies["GET"] = b"-%s\r\n" % error.encode()
    responses = open_responses(fake.url)
    assert responses.find(1).get() == ("down", b"")
    stats = responses.stats()
    assert (stats["fallback"], stats["outages"], stats["errors"]) == (True, 1, NO_ERRORS | {"other": 1})


@pytest.mark.parametrize(
    "error",
    [
        "OOM command not allowed when used memory > 'maxmemory'.",
        "MISCONF Redis is configured to save RDB snapshots",
        "NOREPLICAS Not enough good replicas to write.",
        "READONLY You can't write against a read only replica.",
    ],
)
def test_a_store_that_is_rejected_leaves_look_ups_alone(open_responses, fake, error):
    fake.replies["GET"] = text(b"x")
    fake.replies["SET"] = b"-%s\r\n" % error.encode()
    responses = open_responses(fake.url, connections=2)
    responses.set(1, b"y")
    eventually(lambda: responses.stats()["errors"]["other"] == 1)
    eventually(lambda: responses.find(1).get() == ("hit", b"x"))
    assert (responses.stats()["fallback"], responses.stats()["outages"]) == (False, 0)


def test_a_full_redis_can_be_read(open_responses, redis):
    responses = open_responses(redis.url)
    responses.set(1, b"x")
    eventually(lambda: responses.find(1).get() == ("hit", b"x"))
    redis.call("CONFIG", "SET", "maxmemory-policy", "noeviction")
    redis.call("CONFIG", "SET", "maxmemory", "1")
    responses.set(2, b"y")
    eventually(lambda: responses.stats()["errors"]["other"] == 1)
    assert responses.find(1).get() == ("hit", b"x")
    assert responses.find(2).get() == ("miss", b"")
    redis.call("CONFIG", "SET", "maxmemory", "0")
    responses.set(2, b"y")
    eventually(lambda: responses.find(2).get() == ("hit", b"y"))
    assert responses.stats()["outages"] == 0


def test_a_replica_can_be_read_and_its_connections_are_opened_anew(open_responses, tmp_path, redis):
    with RedisServer(tmp_path) as replica:
        redis.call("SET", key(1), "x")
        replica.call("REPLICAOF", "127.0.0.1", str(redis.port))
        eventually(lambda: replica.call("GET", key(1)) == b"x")
        responses = open_responses(replica.url, connections=2)
        opened = connections_ever(replica)
        assert responses.find(1).get() == ("hit", b"x")
        responses.set(2, b"y")
        eventually(lambda: responses.stats()["errors"]["other"] == 1)
        eventually(lambda: connections_ever(replica) == opened + 3 and responses.stats()["idle"] == 3)
        assert responses.find(1).get() == ("hit", b"x")
        # It is the primary now, as after a failover.
        replica.call("REPLICAOF", "NO", "ONE")
        responses.set(2, b"y")
        eventually(lambda: responses.find(2).get() == ("hit", b"y"))
        assert (responses.stats()["outages"], responses.stats()["errors"]) == (0, NO_ERRORS | {"other": 1})


def test_a_key_of_another_program_is_a_miss_and_stays(open_responses, redis):
    redis.call("SADD", key(1), "theirs")
    responses = open_responses(redis.url)
    assert responses.find(1).get() == ("miss", b"")
    eventually(lambda: responses.stats()["errors"]["other"] == 1)
    assert redis.call("TYPE", key(1)) == b"set"
    assert (responses.stats()["outages"], responses.stats()["latency"]["delete"]) == (0, 0)


def test_a_text_that_is_too_large_is_deleted_and_redis_stays_up(open_responses, redis):
    redis.call("SET", key(1), "x" * 5_000)
    responses = open_responses(redis.url, max_reply_bytes=4_000)
    assert responses.find(1).get() == ("miss", b"")
    eventually(lambda: redis.call("EXISTS", key(1)) == 0)
    stats = responses.stats()
    assert (stats["too_large"], stats["outages"], stats["errors"]) == (1, 0, NO_ERRORS | {"other": 1})
    eventually(lambda: responses.find(1).get() == ("miss", b""))


def test_those_behind_a_text_that_is_too_large_are_misses(open_responses, fake):
    fake.replies["GET"] = None
    responses = open_responses(fake.url, max_reply_bytes=4_000)
    calls = [responses.find(number) for number in range(3)]
    fake.wait_for("GET", 3)
    connection = fake.connection_of("GET")
    connection.sendall(b"$5000\r\n")
    assert [call.get() for call in calls] == [("miss", b"")] * 3
    assert fake.wait_for("DEL") == [["DEL", key(0)]]
    assert (responses.stats()["outages"], responses.stats()["too_large"]) == (0, 1)


@pytest.mark.parametrize("reply", [b"+OK\r\n", b":7\r\n", b"*1\r\n$1\r\nx\r\n", b"-ERR unknown command\r\n"])
def test_a_reply_that_is_no_text_is_a_miss(open_responses, fake, reply):
    fake.replies["GET"] = reply
    responses = open_responses(fake.url)
    assert responses.find(1).get() == ("miss", b"")
    assert responses.stats()["outages"] == 0


@pytest.mark.parametrize("reply", [b"garbage\r\n", b"$x\r\n", b"+" + b"x" * 70_000, b"$-1\r\n$-1\r\n"])
def test_bytes_that_are_no_reply_mean_down(open_responses, fake, reply):
    fake.replies["GET"] = reply
    responses = open_responses(fake.url)
    assert responses.find(1).get()[0] in ("down", "miss")
    eventually(lambda: reply.startswith(b"$-1") or responses.stats()["fallback"])
