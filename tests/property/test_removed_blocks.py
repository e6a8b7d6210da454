"""cpp/events/removed_blocks.h against its slow twin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.removed_blocks import RemovedBlocks
from vllm_router import _core_testing as testing

NAMES = st.one_of(st.integers(0, 5), st.sampled_from([2**64 - 1, 2**63]))


@pytest.mark.parametrize("parts", [1, 3])
@given(most=st.integers(0, 5), steps=st.lists(st.tuples(NAMES, st.integers(0, 99)), max_size=40))
def test_it_finds_what_the_slow_twin_finds(parts, most, steps):
    removed, twin = testing.RemovedBlocks(most), RemovedBlocks(most)
    for name, value in steps:
        block = ((value, value + 1), [value + part for part in range(parts)])
        removed.add(name, *block)
        twin.add(name, block)
        assert len(removed) == len(twin.blocks)
        for each in range(8):
            assert removed.find(each) == twin.find(each)
        assert removed.find(name) == twin.find(name)
