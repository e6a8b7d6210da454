"""cpp/routing/json_scanner.h: stepping over values, and what strings and numbers mean."""

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.growth import assert_linear
from tests.rows import for_each_row
from vllm_router._core_testing import is_json_number, json_elements, skip_json_value, unescaped_json


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (b'"a" ', 3),
        (rb'"a\\" ', 5),
        (rb'"a\"" ', 5),
        (b'{"a": ["}", {}]}, 7', 16),
        (b"[[[]]]]", 6),
        (b"-1.5e3,", 6),
        (b"true}", 4),
        (b"  null ]", 6),
        (b"[" + b" " * 100 + b"]x", 102),
    ],
)
def test_a_value_ends_where_a_parser_says(text, end):
    assert skip_json_value(text) == end


@for_each_row("text", [b"", b"  ", b'"a', rb'"a\"', b"[1, 2", b'["]', b'{"a": {}', b"17", b",", b"}", b":"])
def test_a_value_that_does_not_end_is_none(text):
    assert skip_json_value(text) is None


@for_each_row("before", range(70))
def test_brackets_are_seen_wherever_they_stand_in_a_block(before):
    # Text without brackets or quotes is passed over 32 bytes at a time.
    for inside in (b"[]", b'"]"', b"{}"):
        text = b"[" + b"1" * before + b"," + inside + b"]"
        assert skip_json_value(text + b"}") == len(text)


def test_neither_depth_nor_escapes_cost_more_than_their_length():
    def skip(text):
        assert skip_json_value(text) == len(text) - 1

    assert_linear(skip, lambda n: b"[" * n * 32_000 + b"]" * n * 32_000 + b" ")
    assert_linear(skip, lambda n: b'"' + rb"\"" * n * 16_000 + rb"\\" * n * 16_000 + b'" ')


@given(st.text(alphabet="-+.eE0123456789", max_size=8))
def test_a_number_is_one_by_the_grammar(text):
    grammar = re.fullmatch(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", text)
    assert is_json_number(text.encode()) == bool(grammar)


@given(st.text(max_size=12), st.booleans())
def test_a_string_means_what_python_reads(text, ascii_only):
    if any("\ud800" <= c <= "\udfff" for c in text):
        return
    assert unescaped_json(json.dumps(text, ensure_ascii=ascii_only)[1:-1].encode()) == text.encode()


@pytest.mark.parametrize(
    "text", [rb"\x", rb"\u12", rb"\u12g4", rb"\ud800", rb"\udc00", rb"\ud800\u0041", b"\\"]
)
def test_a_bad_escape_means_nothing(text):
    assert unescaped_json(text) is None


def test_elements_are_views_up_to_the_limit():
    assert json_elements(b'[1, "a,]" , [2,3],{"b":[]}]', 9) == [b"1", b'"a,]"', b"[2,3]", b'{"b":[]}']
    assert json_elements(b"[1, 2, 3", 2) == [b"1", b"2"], "the rest is not looked at"
    assert json_elements(b"[ ]", 2) == []
    for damaged in (b"", b"{}", b"[1 2]", b"[1,]", b"[,1]", b"[1"):
        assert json_elements(damaged, 9) is None
