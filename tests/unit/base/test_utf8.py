"""cpp/base/utf8.h: text that protobuf and JSON take, whatever a client sent."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing


@given(st.text())
def test_text_stays_as_it_is(text):
    assert testing.valid_utf8(text.encode()) == text.encode()


@given(st.binary(max_size=40))
def test_any_bytes_become_text(data):
    text = testing.valid_utf8(data).decode()
    assert len(text) <= len(data)


@pytest.mark.parametrize(
    "data",
    [
        b"\x80",  # continues nothing
        b"\xc0\xaf",  # overlong
        b"\xe0\x80\x80",
        b"\xed\xa0\x80",  # a surrogate
        b"\xf4\x90\x80\x80",  # past U+10FFFF
        b"\xe2\x82",  # cut off
        b"\xff",
    ],
)
def test_each_byte_of_what_is_no_character_is_replaced(data):
    assert testing.valid_utf8(b"a" + data + b"b").decode() == "a" + "\ufffd" * len(data) + "b"
