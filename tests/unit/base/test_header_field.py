"""cpp/base/header_field.h."""

from vllm_router import _core_testing as testing

FIELDS = [("Host", "a"), ("X-Session-ID", "one"), ("x-session-id", "two"), ("Empty", "")]


def test_a_field_is_found_in_any_case():
    assert testing.find_header(FIELDS, "hOsT") == b"a"


def test_the_first_of_several_fields_counts():
    assert testing.find_header(FIELDS, "x-session-id") == b"one"


def test_an_empty_value_is_a_value():
    assert testing.find_header(FIELDS, "empty") == b""


def test_a_missing_field_is_a_miss_even_when_a_name_begins_like_it():
    assert testing.find_header(FIELDS, "X-Session") is None
    assert testing.find_header([], "Host") is None
