"""cpp/hashing/murmur.h, by the hash that is made of its steps."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models import hashing as slow
from vllm_router import _core_testing as testing


@given(st.binary(max_size=300), st.integers(0, 2**64 - 1))
def test_murmur_agrees_with_the_slow_twin(data, seed):
    assert testing.murmur64a(data, seed) == slow.murmur64a(data, seed)
