"""cpp/routing/body_map.h: members and spans, one by one; the property test compares with Python's json."""

import pytest

from tests.growth import assert_linear
from tests.rows import for_each_row
from vllm_router._core_testing import find_member, member_holds, read_body_map


def names(body):
    problem, _, found = read_body_map(body)
    assert problem == "none"
    return [name for name, *_ in found]


def test_members_are_in_order_with_their_spans_and_types():
    #       0         10        20        30
    body = rb'{ "a" : 1.0,"\u0062":[1, {"c":2}] , "n":null}'
    problem, at, found = read_body_map(body)
    assert (problem, at) == ("none", len(body))
    assert found == [
        (b"a", b"1.0", "number", b"a", 8),
        (b"b", b'[1, {"c":2}]', "array", rb"\u0062", 21),
        (b"n", b"null", "null", b"n", 40),
    ]


@for_each_row(
    ("value", "kind"),
    [
        *((b"null", "null"), (b"true", "true"), (b"false", "false"), (b'"x"', "string"), (b"{}", "object")),
        *((b"-0.5e-7", "number"), (b"12345678901234567890", "number")),
        *(
            (b"NaN", "other"),
            (b"tru", "other"),
            (b"nul", "other"),
            (b"01", "other"),
            (b"+1", "other"),
            (b"0x1", "other"),
        ),
    ],
)
def test_the_type_is_that_of_the_spelling(value, kind):
    assert read_body_map(b'{"a":' + value + b"}")[2][0][2] == kind


@for_each_row(
    "body",
    [
        *(
            b"",
            b" ",
            b"[]",
            b"7",
            b'"a"',
            b"{",
            b"}",
            b"{]",
            b'{"a"}',
            b'{"a":}',
            b'{"a":1',
            b'{"a":1,}',
            b'{,"a":1}',
        ),
        *(
            b'{"a":1 "b":2}',
            b'{"a":1,,"b":2}',
            b'{"a":1}}',
            b'{"a":1} x',
            b'{"a":1}{"a":1}',
            b'{"a" 1}',
            b"{a:1}",
        ),
        *(
            b'{"a":1]',
            b'{"a":"x}',
            b'{"a":[1}',
            b'{"a":1"b"}',
            b'{"a":1:2}',
            b'{"a":1[2]}',
            b'{"a\\":1}',
            b"{'a':1}",
        ),
        *(
            b'\xef\xbb\xbf\xef\xbb\xbf{"a":1}',
            b' \xef\xbb\xbf{"a":1}',
            '{"a":1}'.encode("utf-16"),
            '{"a":1}'.encode("utf-16-le"),
            b'{"a":1}\0',
        ),
    ],
)
def test_damage_between_members_is_no_object(body):
    problem, at, found = read_body_map(body)
    assert (problem, found) == ("not_an_object", [])
    assert 0 <= at <= len(body)


@pytest.mark.parametrize(
    "body", [b'{"a":[},"b":1}', b'{"a":tru,"b":1}', rb'{"a":"\x","b":1}', b'{"a":{7},"b":1}']
)
def test_damage_inside_a_value_is_left_to_the_worker(body):
    assert names(body) == [b"a", b"b"]


def test_where_reading_stopped_is_told():
    assert read_body_map(b'{"a":1,"b" 2}')[:2] == ("not_an_object", 11)


def test_of_several_members_the_last_is_found_under_any_spelling():
    body = rb'{"a":1,"\u0061":2,"b":{"a":3}}'
    assert names(body) == [b"a", b"a", b"b"]
    assert find_member(body, "a") == b"2"
    assert find_member(body, "c") is None


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        *(
            (rb'"push"', True),
            (rb'"p\u0075sh"', True),
            (rb'"\u0070\u0075\u0073\u0068"', True),
            (b'"PUSH"', False),
        ),
        *(
            (rb'"push\u0020"', False),
            (rb'"p\ush"', False),
            (b"push", False),
            (b'["push"]', False),
            (b'""', False),
        ),
    ],
)
def test_a_string_holds_its_text_under_any_spelling(value, holds):
    assert member_holds(b'{"a":' + value + b"}", "a", "push") == holds


def test_a_name_whose_escapes_mean_no_text_equals_no_name():
    assert read_body_map(rb'{"\ud800":1}')[2][0][0] is None
    assert read_body_map(b'{"' + rb"\u0061" * 171 + b'":1}')[2][0][0] is None, (
        "longer than any name of an engine"
    )
    assert read_body_map(b'{"' + b"a" * 5000 + b'":1}')[2][0][0] == b"a" * 5000


def test_more_members_than_any_engine_knows_are_too_many():
    def body(count):
        return b"{" + b",".join(b'"a":1' for _ in range(count)) + b"}"

    assert len(names(body(1024))) == 1024
    assert read_body_map(body(1025))[0] == "too_many_members"
    assert read_body_map(body(100_000))[:2] == read_body_map(body(1025))[:2], "it stops at the same byte"


@pytest.mark.parametrize(
    "filling", [b"[" * 8 + b"]" * 8, rb'"\\\"",', b'{"a":"b"},', b"1,", b'"' + b"x" * 5000 + b'",']
)
def test_anything_costs_time_by_its_length(filling):
    def body(n):
        size = n * 64 * 1024
        if filling.startswith(b"[["):
            return b'{"a":' + b"[" * (size // 2) + b"]" * (size // 2) + b',"b":2}'
        return b'{"a":[' + filling * (size // len(filling)) + b'1],"b":2}'

    def read(text):
        assert names(text) == [b"a", b"b"]

    assert_linear(read, body)


def test_a_byte_order_mark_in_front_is_skipped():
    """Row 18: as Python's json does; what stands behind it keeps its place."""
    body = b'\xef\xbb\xbf {"a":1}'
    assert read_body_map(body) == ("none", len(body), [(b"a", b"1", "number", b"a", 9)])
