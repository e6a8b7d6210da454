"""cpp/redis/redis_url.h: what an operator may write, and that messages keep its secrets."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing
from vllm_router.settings.kinds import RedisUrl, Unfit


@pytest.mark.parametrize(
    ("text", "tls", "user", "password", "host", "port", "database", "shown"),
    [
        ("redis://a", False, "", "", "a", 6379, 0, "redis://a:6379/0"),
        ("REDISS://a:1/2", True, "", "", "a", 1, 2, "rediss://a:1/2"),
        ("valkey://u@a/", False, "u", "", "a", 6379, 0, "redis://a:6379/0"),
        ("valkeys://u:p%40%2F@a.b", True, "u", "p@/", "a.b", 6379, 0, "rediss://a.b:6379/0"),
        ("redis://:p:q@[fd00::1]:7", False, "", "p:q", "fd00::1", 7, 0, "redis://[fd00::1]:7/0"),
        ("redis://127.0.0.1/16383", False, "", "", "127.0.0.1", 6379, 16383, "redis://127.0.0.1:6379/16383"),
    ],
)
def test_a_url_has_these_parts(text, tls, user, password, host, port, database, shown):
    found = testing.parse_redis_url("redis_url", text)
    assert found == (tls, user, password, host, port, database, shown)
    assert RedisUrl().check(text) == text


@for_each_row(
    ("text", "reason"),
    [
        ("", "has no scheme"),
        ("a:6379", "has no scheme"),
        ("http://SECRET@a", "has another scheme"),
        ("redis://", "has no host name or address"),
        ("redis://u:SECRET@", "has no host name or address"),
        ("redis://u:SECRET@a b", "has no host name or address"),
        ("redis://u:SECRET@a?x=1", "has no host name or address"),
        ("redis://" + "a" * 254, "has no host name or address"),
        ("redis://[fd00", "has an IPv6 address that is none"),
        ("redis://[SECRET]", "has an IPv6 address that is none"),
        ("redis://[fd00::1]9", "has a port that is no whole number between 1 and 65535"),
        ("redis://u:SECRET@a:0", "has a port that is no whole number between 1 and 65535"),
        ("redis://a:65536", "has a port that is no whole number between 1 and 65535"),
        ("redis://a:SECRET", "has a port that is no whole number between 1 and 65535"),
        ("redis://a/16384", "has a database that is no whole number between 0 and 16383"),
        ("redis://u:SEC/RET@a", "has a database that is no whole number between 0 and 16383"),
        ("redis://u:SECRET@x@a", "has a user or password with a '%' or '@' that is not percent-encoded"),
    ],
)
def test_what_is_no_url_is_rejected_without_its_password(text, reason):
    with pytest.raises(ValueError, match=r"^redis_url ") as rejected:
        testing.parse_redis_url("redis_url", text)
    assert str(rejected.value) == (
        f"redis_url {reason}; write it as redis://host:6379/0, or rediss:// for TLS"
    )
    with pytest.raises(Unfit):
        RedisUrl().check(text)


def test_a_percent_sign_needs_two_digits():
    with pytest.raises(ValueError, match="that is not percent-encoded"):
        testing.parse_redis_url("redis_url", "redis://u:100%@a")


def test_the_command_line_takes_no_password():
    assert RedisUrl().parse(["redis://u@a"]) == "redis://u@a"
    with pytest.raises(Unfit, match="without a password on the command line; set --redis-password-file"):
        RedisUrl().parse(["redis://:p@a"])
