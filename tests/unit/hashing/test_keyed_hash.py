"""cpp/hashing/keyed_hash.h: the cipher's published example, and names that tell equal from unequal only."""

from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

KEYS = st.binary(min_size=16, max_size=16)
WORDS = st.integers(0, 2**64 - 1)


def rename(key: bytes, values: list[int], domain: int = 1) -> list[int]:
    return testing.rename_values(list(key), domain, values)


def slow_name(key: bytes, domain: int, value: int) -> int:
    """The definition, by another implementation of the cipher."""
    cipher = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
    block = value.to_bytes(8, "little") + domain.to_bytes(8, "little")
    return int.from_bytes(cipher.update(block)[:8], "big")


def test_the_example_of_the_standard():
    # FIPS 197, appendix C.1: the first half of the ciphertext.
    key = bytes.fromhex("000102030405060708090a0b0c0d0e0f")
    plain = bytes.fromhex("00112233445566778899aabbccddeeff")
    value, domain = (int.from_bytes(half, "little") for half in (plain[:8], plain[8:]))
    assert rename(key, [value], domain) == [0x69C4E0D86A7B0430]


@given(KEYS, st.lists(WORDS, max_size=200), WORDS)
def test_each_value_gets_the_name_that_is_defined(key, values, domain):
    assert rename(key, values, domain) == [slow_name(key, domain, value) for value in values]


def test_a_value_s_name_does_not_depend_on_its_neighbours():
    key = bytes(range(16))
    values = list(range(1000))
    assert rename(key, values) == [rename(key, [value])[0] for value in values]


def test_other_keys_and_domains_give_other_names():
    values = list(range(1000))
    names = [rename(bytes([key]) * 16, values, domain) for key in (1, 2) for domain in (1, 2)]
    assert len({name for some in names for name in some}) == 4 * len(values)


def test_keys_are_drawn_by_chance():
    assert len({tuple(testing.draw_key()) for _ in range(100)}) == 100
