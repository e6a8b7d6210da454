"""cpp/http/body_reader.h: three ways to delimit a body, one face."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


def read(framing, length, data, cuts=()):
    return testing.read_body(framing, length, data, list(cuts))


@pytest.mark.parametrize(("framing", "length"), [("none", 0), ("length", 0)])
def test_a_body_without_bytes_has_ended_from_the_start(framing, length):
    result = read(framing, length, b"GET / HTTP/1.1\r\n")
    assert result["ended_from_the_start"]
    assert (result["event"], result["used"], result["body"]) == ("end", 0, b"")


@for_each_row("cut", range(12))
def test_a_length_ends_the_body_and_leaves_the_rest(cut):
    result = read("length", 5, b"hello world", [cut])
    assert (result["event"], result["used"], result["body"], result["left"]) == ("end", 5, b"hello", 0)
    assert not result["ended_from_the_start"]


@pytest.mark.parametrize("size", range(5))
def test_a_body_shorter_than_its_length_needs_more_and_may_not_end_with_the_connection(size):
    result = read("length", 5, b"hello"[:size])
    assert (result["event"], result["left"], result["ended"]) == ("need_more", 5 - size, False)
    assert not result["proper_end_of_connection"]


@pytest.mark.parametrize("data", [b"", b"0\r\n\r\n", bytes(range(256))])
def test_without_framing_everything_is_body_until_the_connection_closes(data):
    result = read("until_close", 0, data, [len(data) // 2])
    assert (result["event"], result["body"], result["ended"]) == ("need_more", data, False)
    assert result["proper_end_of_connection"]


def test_chunks_are_taken_out():
    data = b"5\r\nhello\r\n6;x\r\n world\r\n0\r\n\r\nrest"
    for step in range(1, len(data)):
        result = read("chunked", 0, data, range(step, len(data), step))
        assert (result["event"], result["body"], result["used"]) == ("end", b"hello world", len(data) - 4)
        assert result["proper_end_of_connection"]


def test_a_chunked_body_may_not_end_with_the_connection():
    assert not read("chunked", 0, b"5\r\nhello\r\n")["proper_end_of_connection"]
    assert not read("chunked", 0, b"5\r\nhello\r\n0\r\n")["proper_end_of_connection"]


def test_a_broken_chunk_says_why():
    result = read("chunked", 0, b"5\r\nhello!\r\n")
    assert (result["event"], result["body"]) == ("bad", b"hello")
    assert result["error"] == "A chunk is longer than its size."
