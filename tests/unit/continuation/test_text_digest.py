"""cpp/continuation/text_digest.h: the hash of a text that comes in pieces, by its formula."""

from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

PRIME = 2**61 - 1


def digest_of(text):
    value = 0
    for byte in text:
        value = (value * testing.TEXT_DIGEST_RADIX + byte + 1) % PRIME
    return len(text), value


def test_an_empty_text_has_the_digest_zero():
    assert testing.text_digest([]) == (0, 0)
    assert testing.text_digest([b"", b""]) == (0, 0)


def test_the_radix_is_a_number_below_the_prime():
    assert 2**32 < testing.TEXT_DIGEST_RADIX < PRIME


def test_leading_zeros_count():
    assert len({testing.text_digest([b"\0" * size])[1] for size in range(100)}) == 100


@given(st.lists(st.binary(max_size=20), max_size=8))
def test_a_digest_is_of_the_text_and_not_of_its_pieces(pieces):
    assert (
        testing.text_digest(pieces) == testing.text_digest([b"".join(pieces)]) == digest_of(b"".join(pieces))
    )


@given(st.binary(min_size=1, max_size=40), st.data())
def test_one_changed_byte_changes_the_hash(text, data):
    at = data.draw(st.integers(0, len(text) - 1))
    other = bytearray(text)
    other[at] ^= data.draw(st.integers(1, 255))
    assert testing.text_digest([text])[1] != testing.text_digest([bytes(other)])[1]
