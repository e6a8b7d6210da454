"""cpp/http/dechunk.h: framing taken out of a stretch of bytes, in place."""

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


def test_the_data_of_several_chunks_comes_in_one_piece():
    (part,) = testing.dechunk("chunked", 0, [b"5\r\nhello\r\n6;x=y\r\n world\r\n"])
    assert part == (b"hello world", 25, False)


def test_the_rest_belongs_to_the_next_message():
    (part,) = testing.dechunk("chunked", 0, [b"1\r\na\r\n0\r\n\r\nGET"])
    assert part == (b"a", 11, False)
    assert testing.dechunk("length", 3, [b"abcdef"]) == [(b"abc", 3, False)]
    assert testing.dechunk("none", 0, [b"abc"]) == [(b"", 0, False)]


@for_each_row("size", range(1, 30))
def test_reads_may_end_anywhere(size):
    body = b"5\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\nA: b\r\n\r\n"
    parts = testing.dechunk("chunked", 0, [body[i : i + size] for i in range(0, len(body), size)])
    assert b"".join(data for data, _, _ in parts) == b"hello0123456789abcdef"
    assert sum(used for _, used, _ in parts) == len(body)
    assert not any(bad for _, _, bad in parts)


def test_what_came_before_a_broken_chunk_is_kept():
    (part,) = testing.dechunk("chunked", 0, [b"5\r\nhello\r\nx\r\n"])
    assert part == (b"hello", 10, True)


def test_without_chunks_nothing_is_touched():
    assert testing.dechunk("until_close", 0, [b"0\r\n\r\n", b""]) == [
        (b"0\r\n\r\n", 5, False),
        (b"", 0, False),
    ]
