"""cpp/routing/json_reading.h, by way of its two readers."""

import pytest

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
