"""cpp/proxy/api/json_text.h: JSON as other programs write it."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("number", "text"),
    [
        ("1E0", "1.0"),
        ("2.5E-1", "0.25"),
        ("-0.0", "-0.0"),
        ("1e3", "1000.0"),
        ("1E300", "1e+300"),
        ("1e-9", "1e-09"),
        ("12", "12"),
    ],
)
def test_numbers_are_plain(number, text):
    """mending row 32: they were 1E0 and 2.5E-1."""
    assert testing.json_text(number) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_number_reads_back_as_nearly_the_same(number):
    # Boost.JSON reads the last digit of very small and very large numbers wrongly.
    assert float(testing.json_text(json.dumps(number))) == pytest.approx(number, rel=1e-14, abs=0)


@given(VALUES)
def test_it_reads_back_as_the_same(value):
    assert json.loads(testing.json_text(json.dumps(value))) == value
