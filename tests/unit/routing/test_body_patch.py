"""cpp/routing/body_patch.h: the pieces of a copy; the property test compares with Python's json."""

import json

from tests.rows import for_each_row
from vllm_router._core_testing import splice

BODY = b'{"model":"m","stream":true,"stream_options":{"include_usage":true},"max_tokens":7,"prompt":"hi"}'


def copy(body, *edits):
    pieces, size, removed, _ = splice(body, list(edits))
    joined = b"".join(pieces)
    assert len(joined) == size
    return joined, removed


def test_kept_members_are_views_and_edited_ones_come_first():
    edits = [("insert", "max_tokens", b"1"), ("insert", "stream", b"false"), ("remove", "stream_options")]
    pieces, size, removed, places = splice(BODY, edits)
    assert pieces == [
        b"{",
        b'"max_tokens":1',
        b",",
        b'"stream":false',
        b",",
        b'"model":"m"',
        b",",
        b'"prompt":"hi"',
        b"}",
    ]
    assert (size, removed) == (sum(map(len, pieces)), 3)
    assert [place for place in places if place >= 0] == [BODY.index(b'"model"'), BODY.index(b'"prompt"')]


def test_the_second_insertion_of_a_name_counts():
    edits = [("insert", "a", b"1"), ("insert", "b", b"2"), ("insert_bytes", "a", b"3")]
    assert copy(b'{"c":4}', *edits) == (b'{"b":2,"a":3,"c":4}', 0)


def test_an_object_inside_is_edited_like_the_body():
    body = b'{"a":1,"in":{"x":1.0, "y":1e5,"z":[ ]},"b":2}'
    pieces, _, removed, places = splice(
        body, [("insert_patched", "in", [("insert", "n", b"1"), ("remove", "y")])]
    )
    assert b"".join(pieces) == b'{"in":{"n":1,"x":1.0,"z":[ ]},"a":1,"b":2}'
    assert removed == 1
    assert body.index(b'"x"') in places, "kept bytes are not copied"


@for_each_row(
    "value",
    [
        *(
            b"1.0",
            b"1e5",
            b"-0",
            b"12345678901234567890",
            b"0.1000",
            b"1E-7",
            rb'"\u00e9\/\n"',
            '"é😀"'.encode(),
        ),
        *(b"[ 1 ,2 ]", b'{"b":1, "a":2,"b":3}', b"NaN"),
    ],
)
def test_kept_values_are_not_spelled_anew(value):
    body = b'{"z":' + value + b',"max_tokens":7,"a":' + value + b"}"
    joined, _ = copy(body, ("insert", "max_tokens", b"1"))
    assert joined == b'{"max_tokens":1,"z":' + value + b',"a":' + value + b"}"


def test_a_large_body_is_not_copied():
    body = b'{"max_tokens":7,"prompt":"' + b"x" * 10_000_000 + b'"}'
    pieces, size, _, places = splice(body, [("insert", "max_tokens", b"1")])
    assert size == len(body)
    assert [len(piece) for piece, place in zip(pieces, places, strict=True) if place < 0] == [1, 14, 1, 1]
    assert json.loads(b"".join(pieces))["max_tokens"] == 1
