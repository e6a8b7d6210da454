"""cpp/routing/cache_control.h, row by row: which requests get a marker, and where."""

import json
import re
from pathlib import Path

import pytest

from tests.growth import assert_linear
from tests.rows import for_each_row
from vllm_router._core_testing import add_cache_control

METRICS = Path(__file__).parents[3] / "docs/reference/metrics.md"
MARKER = b',"cache_control":{"type":"ephemeral"}'


def marked_messages(count):
    part = {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}}
    return [{"role": "user", "content": [part]}] * count


@pytest.mark.parametrize("system", ["hi", [{"type": "text", "text": "hi"}]])
@pytest.mark.parametrize("spaced", [False, True])
def test_the_api_takes_four_in_a_request(system, spaced):
    separators = (", ", " : ") if spaced else (",", ":")
    for count, result in ((0, "added"), (3, "added"), (4, "limit"), (5, "limit")):
        body = json.dumps(
            {"messages": marked_messages(count), "system": system}, separators=separators
        ).encode()
        found, edited = add_cache_control(body)
        assert found == result
        assert edited.count(b'"cache_control"') == min(count + 1, max(count, 4))
    # Those of tools and of a text's value count; those inside a text do not.
    tools = [{"name": "t", "cache_control": {"type": "ephemeral"}}] * 4
    assert add_cache_control(json.dumps({"tools": tools, "system": "x"}).encode())[0] == "limit"
    text = json.dumps({"system": json.dumps({"cache_control": 1}) * 9}).encode()
    assert add_cache_control(text)[0] == "added"


@pytest.mark.parametrize(
    "body",
    [
        *(
            b'{"system":"a","system":"b"}',
            b'{"x":1,"x":1,"system":"a"}',
            rb'{"s\u0079stem":"a"}',
            rb'{"a\/":1,"system":"a"}',
        ),
        b'{"system":[{"type":"text","text":"a","text":"b"}]}',
        rb'{"system":[{"type":"text","text":"a","c\u0061che_control":{}}]}',
        b'{"system":[{"type":"text","text":"a"},{"x":1,"x":2}]}',
    ],
)
def test_what_parsers_may_read_differently_stays(body):
    assert add_cache_control(body) == ("odd_names", body)


@for_each_row(
    "body",
    [
        *(
            b"",
            b"[]",
            b"7",
            b'"system"',
            b'{"system":"a"',
            b'{"system":"a"}}',
            b'{"system":"a",}',
            b"\xef\xbb\xbf\xef\xbb\xbf{}",
        ),
        *('{"system":"a"}'.encode("utf-16"), b"--x\r\n\r\nsystem", b"\x1f\x8b"),
        *(
            b'{"system":[{"type":"text","text":"a"]}',
            b'{"system":[{"type":"text","text":"a"} 7]}',
            b'{"system":[}]}',
        ),
        *(b'{"system":[{"type":"text","text":"a",}]}', b'{"system":[,]}'),
        b"{" + b",".join(b'"m%d":1' % i for i in range(1024)) + b',"system":"a"}',
        b'{"system":[' + b",".join([b'{"type":"text","text":"a"}'] * 1025) + b"]}",
    ],
)
def test_what_is_no_object_or_too_much_of_one_stays(body):
    assert add_cache_control(body) == ("unreadable", body)


def test_as_many_blocks_as_there_may_be():
    body = b'{"system":[' + b",".join([b'{"type":"text","text":"a"}'] * 1024) + b"]}"
    assert add_cache_control(body) == ("added", body[:-3] + MARKER + body[-3:])


def test_it_is_added_to_a_copy_from_which_members_are_removed():
    body = b'{"a":1,"system":"hi","b":2,"model":"m"}'
    block = b'"system":[{"type":"text","text":"hi"' + MARKER + b"}]"
    for removed, copy in (
        (["a"], b"{" + block + b',"b":2,"model":"m"}'),
        (["b"], b'{"a":1,' + block + b',"model":"m"}'),
        (["a", "b", "model"], b"{" + block + b"}"),
        (["system"], b'{"a":1,"b":2,"model":"m"}'),
    ):
        assert add_cache_control(body, removed) == ("added", copy)


@pytest.mark.parametrize("filling", [b"x" * 2, b'\\"', rb"\n", b" " * 2])
def test_a_long_prompt_costs_one_pass(filling):
    def add(body):
        result, copy = add_cache_control(body)
        assert result == "added"
        assert len(copy) == len(body) + len(b'[{"type":"text","text":' + MARKER + b"}]")

    assert_linear(add, lambda n: b'{"system":"' + filling * n * 32_000 + b'x"}')


def test_the_results_are_the_labels_of_the_metric():
    table = re.search(r"`cache_control_total`.*", METRICS.read_text(encoding="utf-8"))
    assert table
    for result in ("added", "present", "limit", "no_text", "odd_names", "unreadable"):
        assert re.search(rf"\b{result}\b", table[0])


@pytest.mark.parametrize(
    "body",
    [
        b'{"cache_control":{"type":"ephemeral"},"system":"hi"}',
        b'{"cache_control":null,"system":[{"type":"text","text":"a"}]}',
        b'{"system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral","ttl":"1h"}}]}',
        b'{"system":[{"type":"text","text":"a","cache_control":null}]}',
        b'{"system":[{"cache_control":{},"type":"text","text":"a"},{"type":"text","text":"b"}]}',
        b'{"system":[{"type":"text","text":"b"},{"cache_control":{}}]}',
    ],
)
def test_a_client_that_marks_its_prompt_has_decided(body):
    assert add_cache_control(body) == ("present", body)
