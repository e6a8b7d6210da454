"""cpp/response_cache/stored_response.h: what was stored comes back whole, or not at all."""

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

KEY, OTHER = b"k" * 32, b"o" * 32
SECRET = b"s" * 32
FIELDS = b"content-type: application/json\r\n"


def encode(body=b'{"choices":[]}', *, secret=b"", fields=FIELDS, expires=2_000, is_stream=False):
    return testing.encode_stored(KEY, is_stream, 1_000, expires, 7, None, fields, body, secret)


def decode(blob, *, key=KEY, secret=b"", now=1_999):
    return testing.decode_stored(key, blob, secret, now)


@given(st.binary(max_size=300), st.booleans(), st.booleans())
def test_what_was_stored_comes_back(body, is_stream, is_signed):
    secret = SECRET if is_signed else b""
    blob = encode(body, secret=secret, is_stream=is_stream)
    assert decode(blob, secret=secret) == (is_stream, 1_000, 2_000, 7, None, FIELDS, body)
    assert len(blob) == 80 + len(FIELDS) + len(body) + (32 if is_signed else 8)


def test_its_form_is_documented():
    blob = encode(b"{}")
    assert blob[:8] == b"VRC1" + bytes([1, 0]) + struct.pack("<H", 0)
    assert struct.unpack_from("<QQII", blob, 8) == (1_000, 2_000, 7, 2**32 - 1)
    assert blob[32:64] == KEY
    assert struct.unpack_from("<IIQ", blob, 64) == (len(FIELDS), 0, 2)
    assert blob[80:-8] == FIELDS + b"{}"


@pytest.mark.parametrize("secret", [b"", SECRET])
def test_no_changed_byte_and_no_part_is_used(secret):
    blob = encode(secret=secret)
    for at in range(len(blob)):
        for bit in (1, 128):
            changed = bytearray(blob)
            changed[at] ^= bit
            with pytest.raises(ValueError, match="DATA_LOSS"):
                decode(bytes(changed), secret=secret)
        with pytest.raises(ValueError, match="DATA_LOSS"):
            decode(blob[:at], secret=secret)
    with pytest.raises(ValueError, match="DATA_LOSS"):
        decode(blob + b"x", secret=secret)


def test_a_blob_under_another_key_is_not_used():
    with pytest.raises(ValueError, match="of another key"):
        decode(encode(), key=OTHER)


def test_an_expired_one_is_none():
    assert decode(encode(), now=1_999)
    with pytest.raises(ValueError, match=r"NOT_FOUND.*expired"):
        decode(encode(), now=2_000)


def test_only_what_was_signed_with_this_key_is_used():
    with pytest.raises(ValueError, match="not signed"):
        decode(encode(), secret=SECRET)
    with pytest.raises(ValueError, match="signed, but"):
        decode(encode(secret=SECRET))
    with pytest.raises(ValueError, match="checksum"):
        decode(encode(secret=SECRET), secret=b"t" * 32)


@pytest.mark.parametrize(
    "fields",
    [b"content-type: a", b"no colon\r\n", b": empty\r\n", b"a: b\r\n\r\n", b"a: b\nc: d\r\n", b"a: \0\r\n"],
)
def test_header_lines_that_would_end_a_head_are_not_used(fields):
    with pytest.raises(ValueError, match="malformed header lines"):
        decode(encode(fields=fields))
