"""cpp/redis/resp_reader.h: RESP2 in pieces, and what ends a connection."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

STREAM = b"+OK\r\n:-42\r\n$5\r\nhe\r\nl\r\n*2\r\n$0\r\n\r\n*1\r\n$-1\r\n*0\r\n-ERR x\r\n*-1\r\n+a\rb\nc\r\n"
VALUES = [
    ("status", b"OK"), -42, b"he\r\nl", [b"", [None]], [], ("error", b"ERR x"), None, ("status", b"a\rb\nc"),
]  # fmt: skip


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_replies_may_come_in_pieces(size):
    reader = testing.RespReader()
    found = []
    for begin in range(0, len(STREAM), size):
        replies, problem = reader.feed(STREAM[begin : begin + size])
        assert problem == ""
        found += replies
    assert found == VALUES
    assert reader.reply_bytes == 0


@for_each_row(
    ("bytes_", "problem"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "sent what is not RESP2"),
        (b"\r\n", "sent what is not RESP2"),
        (b"%1\r\n", "sent what is not RESP2"),  # RESP3
        (b":1x\r\n", "sent a number that is none"),
        (b":+1\r\n", "sent a number that is none"),
        (b":01\r\n", "sent a number that is none"),
        (b":-0\r\n", "sent a number that is none"),
        (b":9223372036854775808\r\n", "sent a number that is none"),
        (b":" + b"1" * 100 + b"\r\n", "sent a number that is none"),
        (b"$\r\n", "sent a number that is none"),
        (b"$-2\r\n", "sent a length below -1"),
        (b"*-2\r\n", "sent a length below -1"),
        (b"$1\r\nabc", "sent a text without a line end behind it"),
        (b"$1\r\na\rb", "sent a text without a line end behind it"),
        (b"*16385\r\n", "sent a reply of more than 16384 elements"),
        (b"*2147483647\r\n", "sent a reply of more than 16384 elements"),
        (b"*2\r\n*9000\r\n" + b":1\r\n" * 9000 + b"*9000\r\n", "sent a reply of more than 16384 elements"),
        (b"*1\r\n*1\r\n*1\r\n*1\r\n", "sent a reply of more than 3 arrays in one another"),
        (b"+" + b"x" * 2**16, "sent a line of more than 65536 bytes"),
        (b"$1048576\r\n", "sent a reply of more than 1048576 bytes"),
        (b"$9223372036854775807\r\n", "sent a reply of more than 1048576 bytes"),
        (b"*20\r\n" + b"+%s\r\n" % (b"x" * 60_000) * 20, "sent a reply of more than 1048576 bytes"),
    ],
)
def test_what_is_no_reply_ends_the_stream_after_those_before_it(bytes_, problem):
    reader = testing.RespReader()
    assert reader.feed(b"+before\r\n" + bytes_) == ([("status", b"before")], problem)
    assert reader.feed(b"+after\r\n") == ([], problem)


def test_a_limit_is_of_one_reply():
    reader = testing.RespReader(max_reply_bytes=12)
    for _ in range(3):
        assert reader.feed(b"$6\r\nabcdef\r\n") == ([b"abcdef"], "")
    assert reader.feed(b"$7\r\n") == ([], "sent a reply of more than 12 bytes")
