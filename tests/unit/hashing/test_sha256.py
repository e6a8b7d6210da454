"""cpp/hashing/sha256.h against hashlib."""

import hashlib
import itertools

from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_pieces_are_hashed_as_if_they_were_one(first, second):
    assert testing.sha256(first, second) == hashlib.sha256(first + second).digest()


def test_short_pieces_and_long_ones_keep_their_order():
    for first, second in itertools.product((0, 1, 255, 256, 257, 1000), repeat=2):
        pieces = b"a" * first, b"b" * second
        assert testing.sha256(*pieces) == hashlib.sha256(b"".join(pieces)).digest()


def test_the_published_vectors():
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert (testing.sha256(b"", b"").hex(), testing.sha256(b"a", b"bc").hex()) == (empty, abc)
    million = testing.sha256(b"a" * 999_999, b"a").hex()
    assert million == "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"
