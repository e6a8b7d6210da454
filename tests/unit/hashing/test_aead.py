"""cpp/hashing/aead.h against the AESGCM of `cryptography`."""

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

KEY = bytes(range(32))
numbers = st.integers(0, 2**64 - 1)
keys = st.binary(min_size=32, max_size=32)


def nonce(number):
    return bytes(4) + number.to_bytes(8, "little")


@given(keys, numbers, st.binary(max_size=60), st.binary(max_size=300))
def test_it_seals_as_another_implementation_does_and_opens_again(key, number, head, text):
    message = testing.aead_seal(key, number, head, text)
    assert message == head + AESGCM(key).encrypt(nonce(number), text, head)
    assert testing.aead_open(key, number, len(head), message) == head + text


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 1 << 20])
def test_messages_of_any_size(size):
    text = bytes(place % 251 for place in range(size))
    message = testing.aead_seal(KEY, 7, b"head", text)
    assert message == b"head" + AESGCM(KEY).encrypt(nonce(7), text, b"head")
    assert testing.aead_open(KEY, 7, 4, message) == b"head" + text


def test_every_changed_bit_and_every_cut_is_refused():
    message = testing.aead_seal(KEY, 7, b"head", b"a text of some bytes")
    for place in range(len(message)):
        for bit in range(8):
            changed = bytearray(message)
            changed[place] ^= 1 << bit
            assert testing.aead_open(KEY, 7, 4, bytes(changed)) is None, (place, bit)
    for length in range(len(message)):
        assert testing.aead_open(KEY, 7, 4, message[:length]) is None, length
    assert testing.aead_open(KEY, 7, 4, message + b"\0") is None
    assert testing.aead_open(KEY, 7, 4, message) is not None  # a refusal leaves nothing behind


def test_another_key_number_or_head_is_refused():
    message = testing.aead_seal(KEY, 7, b"head", b"text")
    for bit in range(256):
        other = (int.from_bytes(KEY, "big") ^ 1 << bit).to_bytes(32, "big")
        assert testing.aead_open(other, 7, 4, message) is None
    for bit in range(64):
        assert testing.aead_open(KEY, 7 ^ 1 << bit, 4, message) is None
    for head_bytes in (0, 1, 3, 5, 8, 9, 1000):
        assert testing.aead_open(KEY, 7, head_bytes, message) is None


def test_numbers_give_other_bytes():
    sealed = {testing.aead_seal(KEY, number, b"", b"text")[:4] for number in range(100)}
    assert len(sealed) == 100
