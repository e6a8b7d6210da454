"""cpp/routing/json_reading.h, by way of its two readers."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


def test_a_name_written_with_escapes_counts_as_what_it_means():
    assert testing.routing_text('{"pr\\u006fmpt": "x"}')["text"] == b"x"
    assert testing.request_fields('{"us\\u0065r": "ann"}')["user"] == "ann"


@pytest.mark.parametrize("array", ["[1 2]", "[1:2]", "[1,,2]", "[,1]", "[1}", "[1,]", '["a":1]', '["a" "b"]'])
def test_elements_are_separated_by_commas(array):
    assert testing.routing_text(f'{{"prompt": {array}}}') is None


@pytest.mark.parametrize(
    "member", ['"a" 1', '"a":1 "b":2', '"a"::1', '"a":]', '"a":"b":1', ',"a":1', '"a":1,']
)
def test_members_are_a_name_a_colon_and_a_value(member):
    assert testing.request_fields(f"{{{member}}}") is None


@for_each_row(
    "value",
    ['{"a":"b":1}', '{"a":]}', '{"a":,}', '{"a"::1}', '["a":1]', "[,1]", "[:1]", "{1}", '{"a":"b":[""}]'],
)
@for_each_row("around", ["%s", '{"x":%s}', "[[%s]]"])
def test_a_raw_value_ends_where_skipping_it_ends(value, around):
    for end in ("}", "}}", "]}", '},"user":"eve"}', '}},"user":"eve"}'):
        body = '{"documents":' + around % value + ',"prompt":"p","x":[{"y":1}]' + end
        skipped = testing.request_fields(body.replace("documents", "untouched"))
        for behind in ' }]"':
            read = testing.request_fields(body, padded=True, with_text=True, behind=behind)
            assert read == skipped, (end, behind)


def test_no_prompt_is_read_of_a_body_that_ends_before_it():
    body = '{"documents":{"a":"b":1},"x":1},"prompt":"p"}'
    assert testing.request_fields(body) is None
    assert testing.routing_text(body) is None
