"""cpp/redis/redis_error.h: what each error of Redis means."""

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


@for_each_row(
    ("text", "effect", "type_"),
    [
        ("NOAUTH Authentication required.", "down", "other"),
        ("WRONGPASS invalid username-password pair or user is disabled.", "down", "other"),
        ("ERR invalid password", "down", "other"),
        ("ERR AUTH <password> called without any password configured for the default user.", "down", "other"),
        ("ERR Client sent AUTH, but no password is set", "down", "other"),
        ("ERR DB index is out of range", "down", "other"),
        ("ERR invalid DB index", "down", "other"),
        ("ERR max number of clients reached", "down", "connection"),
        ("NOPERM this user has no permissions to run the 'zadd' command", "down", "other"),
        ("LOADING Redis is loading the dataset in memory", "down", "other"),
        ("MASTERDOWN Link with MASTER is down", "down", "other"),
        ("BUSY Redis is busy running a script.", "down", "other"),
        ("MOVED 3999 127.0.0.1:6381", "down", "other"),
        ("ASK 3999 127.0.0.1:6381", "down", "other"),
        ("CLUSTERDOWN Hash slot not served", "down", "other"),
        ("OOM command not allowed when used memory > 'maxmemory'.", "unwritable", "other"),
        ("MISCONF Redis is configured to save RDB snapshots", "unwritable", "other"),
        ("NOREPLICAS Not enough good replicas to write.", "unwritable", "other"),
        ("READONLY You can't write against a read only replica.", "read only", "other"),
        ("WRONGTYPE Operation against a key holding the wrong kind of value", "one key", "other"),
        ("EXECABORT Transaction discarded because of previous errors.", "one key", "other"),
        ("BUSYGROUP Consumer Group name already exists", "one key", "other"),
        ("", "one key", "other"),
    ],
)
def test_an_error_has_an_effect_and_a_type(text, effect, type_):
    found = testing.read_redis_error(text)
    assert found[:2] == (effect, type_)
    assert found[2].startswith(f"replied {text.split(' ')[0] or 'an error'}")


def test_a_message_does_not_repeat_the_error():
    text = "ERR unknown command 'AUTH', with args beginning with: 'SECRET'"
    assert testing.read_redis_error(text) == ("one key", "other", "replied ERR")
    assert testing.read_redis_error("sEcReT") == ("one key", "other", "replied an error")
