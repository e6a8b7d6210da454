"""Bytes per token against their slow twin."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.bytes_per_token import BytesPerToken
from vllm_router import _core_testing as testing

SIZES = st.integers(0, 10**7)


@given(st.lists(st.tuples(SIZES, SIZES), max_size=40))
def test_the_mean_agrees_with_the_twin(reports):
    learned, twin = testing.BytesPerToken(), BytesPerToken()
    for report in reports:
        learned.learn(*report)
        twin.learn(*report)
        assert learned.value == pytest.approx(twin.value, rel=1e-3)
        assert 1 <= learned.value <= 16
