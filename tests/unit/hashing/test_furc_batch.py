"""cpp/hashing/furc_batch.h: many hashes at once are what each is for itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models import hashing as slow
from vllm_router import _core_testing as testing

FURC = testing.HashFunction.furc


@given(st.binary(max_size=40), st.lists(st.binary(max_size=30), max_size=150))
def test_a_batch_is_each_ring_hash_for_itself(stem, suffixes):
    assert testing.furc_batch(stem, suffixes) == [
        testing.ring_hash(FURC, stem + suffix) for suffix in suffixes
    ]


@pytest.mark.parametrize("session", [32926929, 33171668, 34480087, 39379899])
def test_a_batch_draws_again_where_the_first_place_does_not_exist(session):
    # One in 2^23 texts, whose first draw has all bits set: in wide vectors, narrow ones, and in a last lane.
    stem, last = f"session:{session}:".encode(), b"http://w0:8000"
    expected = slow.ring_hash("furc", stem + last)
    for before in (0, 1, 7, 8, 40, 63, 100):
        assert testing.furc_batch(stem, [b"http://w1:8000"] * before + [last])[-1] == expected
