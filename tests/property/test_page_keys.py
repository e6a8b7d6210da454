"""cpp/hashing/page_keys.h against its slow twin."""

from hypothesis import given
from hypothesis import strategies as st

from tests.models.page_keys import page_keys
from vllm_router import _core_testing as testing


@given(ids=st.lists(st.integers(0, 2**32 - 1), max_size=40), tokens=st.integers(1, 9), pairs=st.booleans())
def test_pages_have_the_keys_of_the_slow_twin(ids, tokens, pairs):
    assert testing.page_keys(ids, tokens, pairs) == page_keys(ids, tokens, pairs)
