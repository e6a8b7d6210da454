"""cpp/index/run.h."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing


@given(st.integers(0, 300), st.integers(0, 300), st.integers(0, 300))
def test_the_common_prefix_of_two_chains_is_found(common, more, other):
    a = np.concatenate([np.arange(1, common + 1), np.arange(1000, 1000 + more)]).astype(np.uint64)
    b = np.concatenate([np.arange(1, common + 1), np.arange(5000, 5000 + other)]).astype(np.uint64)
    assert testing.common_prefix(a, b) == common


@pytest.mark.parametrize("owner", [0, 1, 4095])
@pytest.mark.parametrize("cuts", [(0, 0, 5), (16384, 16384, 16384), (1, 2, 3)])
def test_a_holder_keeps_owner_and_cuts_in_one_word(owner, cuts):
    assert testing.holder(owner, cuts) == (False, owner, *cuts, True)
