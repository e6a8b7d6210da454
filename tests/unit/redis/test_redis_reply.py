"""cpp/redis/redis_reply.h: values of each kind, and the first error among them."""

import pytest

from vllm_router import _core_testing as testing


def test_a_reply_has_values_of_each_kind():
    replies, problem = testing.RespReader().feed(
        b"*6\r\n+a\r\n-b\r\n:-3\r\n$1\r\nc\r\n$-1\r\n*1\r\n$0\r\n\r\n"
    )
    assert problem == ""
    assert replies == [[("status", b"a"), ("error", b"b"), -3, b"c", None, [b""]]]


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (b"+OK\r\n", ""),
        (b"-OOM x\r\n", "OOM x"),
        (b"*2\r\n:1\r\n-NOPERM y\r\n", "NOPERM y"),
        (b"*1\r\n*1\r\n-deep\r\n", ""),
        (b"*-1\r\n", ""),
    ],
)
def test_the_first_error_of_a_reply(reply, error):
    assert testing.first_redis_error(reply) == error
