"""cpp/routing/truncated_json.h: what was cut off made whole. Its twin: tests/models/truncated_json.py."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


def closed(text):
    """`text` made whole; None if that cannot be."""
    data = text if isinstance(text, bytes) else text.encode()
    found = testing.close_json(data)
    return None if found is None else data[: found[0]] + found[1]


@for_each_row(
    ("text", "whole"),
    [
        ("{", "{}"),
        (' {"a', " {}"),
        ('{"a"', "{}"),
        ('{"a":', "{}"),
        ('{"a": ', "{}"),
        ('{"a": "', '{"a": ""}'),
        ('{"a": "on', '{"a": "on"}'),
        ('{"a": "one"', '{"a": "one"}'),
        ('{"a": "one",', '{"a": "one"}'),
        ('{"a": "one", "b', '{"a": "one"}'),
        ('{"a": 12', "{}"),
        ('{"a": 12 ', '{"a": 12}'),
        ('{"a": 12,', '{"a": 12}'),
        ('{"a": tru', "{}"),
        ('{"a": [', '{"a": []}'),
        ('{"a": [1', '{"a": []}'),
        ('{"a": [1,', '{"a": [1]}'),
        ('{"a": [1, {"b": "c', '{"a": [1, {"b": "c"}]}'),
        ('{"a": [[], {}', '{"a": [[], {}]}'),
        ('{"m": [{"role": "user", "content": "Once upo', '{"m": [{"role": "user", "content": "Once upo"}]}'),
    ],
)
def test_what_was_complete_stays_and_the_rest_goes(text, whole):
    assert closed(text) == whole.encode()


def test_a_whole_object_stays_and_so_does_what_comes_behind_it():
    for text in ("{}", '{"a": 1}', '{"a": 1} ', '{"a": 1} and more'):
        assert closed(text) == text.encode()


def test_a_byte_order_mark_stays_in_front():
    assert closed('\ufeff {"a": [1, "on') == '\ufeff {"a": [1, "on"]}'.encode()
    assert closed("\ufeff{") == "\ufeff{}".encode()


@pytest.mark.parametrize(
    "text", ["\ufeff", "\ufeff\ufeff{", "", " ", "[1, ", '"a', "12", "}", '{"a": ]', '{"a": [}']
)
def test_what_is_no_objects_beginning_is_none(text):
    assert closed(text) is None


def test_nesting_has_a_limit():
    assert closed('{"a":' + "[" * 999) is not None
    assert closed('{"a":' + "[" * 1000) is None


ROOM = 1001 + 64  # for what closes it, and the parser's padding


@pytest.mark.parametrize(
    "begin", [b'{"a": "', b'{"a": [{"b": ["c", "', b'{"a": "b"} ', b'{"a": ' + b"[" * 900]
)
def test_a_text_is_made_whole_in_its_place_for_a_while(begin):
    text = begin + b"x" * 4000
    whole, afterwards = testing.make_json_whole(text)
    assert whole == closed(text[:-ROOM])
    assert afterwards == text


@pytest.mark.parametrize("text", [b"x" * 4000, b'{"a": ' + b"[" * 4000])
def test_what_cannot_be_made_whole_is_left_alone(text):
    assert testing.make_json_whole(text) == (b"", text)
