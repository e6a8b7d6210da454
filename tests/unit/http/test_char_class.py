"""cpp/http/char_class.h: each byte in each place of a head."""

import string

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

TOKEN = set(b"!#$%&'*+-.^_`|~" + string.ascii_letters.encode() + string.digits.encode())
AUTHORITY = set(b"-._~%!$&'()*+;=:[]" + string.ascii_letters.encode() + string.digits.encode())
TARGET = set(range(0x21, 0x7F)) - {ord("#")}
VALUE = {0x09, *range(0x20, 0x7F), *range(0x80, 0x100)}


def accepted(head):
    return testing.RequestHeadParser().parse(head)["state"] == "done"


@pytest.mark.parametrize(
    ("head", "allowed"),
    [
        (b"G%bT / HTTP/1.1\r\nHost: a\r\n\r\n", TOKEN),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX%bY: z\r\n\r\n", TOKEN | {ord(":")}),  # X: Y: z is a field, too
        (b"GET /x%by HTTP/1.1\r\nHost: a\r\n\r\n", TARGET),
        (b"GET / HTTP/1.1\r\nHost: a%bb\r\n\r\n", AUTHORITY),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: y%bz\r\n\r\n", VALUE),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: 01234567%b89abcdef01234567\r\n\r\n", VALUE),
    ],
    ids=["method", "name", "target", "host", "value", "long value"],
)
def test_a_byte_is_accepted_exactly_where_it_belongs(head, allowed):
    assert {byte for byte in range(256) if accepted(head % bytes([byte]))} == allowed


@for_each_row("size", range(1, 40))
def test_no_byte_of_a_value_escapes_the_check_by_its_place(size):
    for at in range(size):
        value = bytearray(b"\xff\x80\x20\x21\x7e"[at % 5 :] + b"x" * size)[:size]
        value[at] = 0x1F
        assert not accepted(b"GET / HTTP/1.1\r\nHost: a\r\nX:" + bytes(value) + b"\r\n\r\n")
