"""cpp/http/query.h: what a parameter of a query says."""

from urllib.parse import parse_qsl, quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("model=a", (b"a", "a")),
        ("x=1&model=org%2Fa+b&y", (b"org/a b", "org%2Fa+b")),
        ("m%6fdel=a", (b"a", "a")),
        ("model=a&model=b", (b"b", "b")),
        ("model=", (b"", "")),
        ("model=a%zz", None),
        ("model=a&model=%z", (b"a", "a")),
        ("model", None),
        ("models=a&Model=b", None),
        ("", None),
    ],
)
def test_the_last_one_of_the_name_that_can_be_decoded(query, found):
    assert testing.find_query_parameter(query, "model") == found


PAIRS = st.lists(st.tuples(st.sampled_from(["model", "x", ""]), st.text(max_size=5)), max_size=4)


@given(PAIRS)
def test_it_reads_what_python_reads(pairs):
    query = "&".join(f"{name}={testing.percent_encoded(value)}" for name, value in pairs)
    expected = dict(parse_qsl(query, keep_blank_values=True)).get("model")
    found = testing.find_query_parameter(query, "model")
    assert (found[0].decode() if found else None) == expected


@given(st.text(max_size=20))
def test_it_encodes_as_python_does(text):
    assert testing.percent_encoded(text) == quote(text, safe="")
