"""cpp/events/msgpack_cursor.h"""

import msgpack
import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


def plain(value):
    """As the msgpack library gives it: texts and maps apart."""
    if isinstance(value, tuple) and value[0] == "text":
        return value[1].decode()
    if isinstance(value, tuple):
        return {plain(key): plain(item) for key, item in value[1]}
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value


def read(payload: bytes):
    value, left = testing.msgpack_value(payload)
    assert left == 0
    return plain(value)


@for_each_row(
    "value",
    [
        None,
        True,
        False,
        *(sign * (1 << bits) - step for bits in range(64) for sign in (1,) for step in (0, 1)),
        2**64 - 1,
        1.5,
        -0.0,
        1e300,
        "",
        "a" * 31,
        "a" * 32,
        "a" * 256,
        "é" * 40_000,
        b"",
        b"x" * 255,
        b"x" * 70_000,
        [],
        [[[], 1], "two"],
        list(range(15)),
        list(range(16)),
        list(range(70_000)),
        {},
        {"a": [1], "b": {"c": None}},
        {f"k{i}": i for i in range(70_000)},
    ],
    ids=lambda value: repr(value)[:20],
)
def test_every_form_of_a_value_reads_back(value):
    payload = msgpack.packb(value)
    assert read(payload) == value
    assert testing.msgpack_skip(payload + b"!") == 1


@for_each_row("bits", range(64))
def test_negative_integers_are_read_as_their_bits(bits):
    for value in (-(1 << bits), -(1 << bits) + 1 if bits else -1):
        assert read(msgpack.packb(value)) == value % 2**64


@pytest.mark.parametrize("size", [0, 1, 2, 4, 8, 16, 17, 300, 70_000])
def test_extensions_are_skipped(size):
    payload = msgpack.packb([msgpack.ExtType(5, b"e" * size), 7])
    assert testing.msgpack_skip(payload) == 0


def test_floats_of_four_bytes():
    assert read(msgpack.packb(1.5, use_single_float=True)) == 1.5


def test_what_is_cut_off_is_no_value_and_moves_nothing():
    payload = msgpack.packb({"a": [1, 2**40, "text", b"bytes", 1.5], "b": msgpack.ExtType(1, b"12345")})
    for size in range(len(payload)):
        assert testing.msgpack_skip(payload[:size]) is None
        with pytest.raises(ValueError, match="cut off"):
            testing.msgpack_value(payload[:size])


def test_a_count_above_the_bytes_that_are_left_is_no_head():
    for head in (
        b"\xdd\xff\xff\xff\xff",
        b"\xdf\x80\x00\x00\x00",
        b"\x95\x01\x02\x03\x04",
        b"\x82\x01\x02\x03",
    ):
        assert testing.msgpack_skip(head) is None


def test_nesting_is_limited():
    assert testing.msgpack_skip(b"\x91" * 16 + b"\x01") == 0
    assert testing.msgpack_skip(b"\x91" * 17 + b"\x01") is None
    assert testing.msgpack_skip(b"\x91" * 100_000) is None


def test_the_byte_that_begins_no_value():
    assert testing.msgpack_skip(b"\xc1") is None
    assert testing.msgpack_skip(b"") is None
