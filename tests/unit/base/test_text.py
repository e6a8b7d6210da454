"""cpp/base/text.h."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.prefix_digest import cut
from tests.rows import for_each_row
from vllm_router import _core_testing as testing

ASCII = st.text(st.characters(max_codepoint=127))
BYTES = st.binary()


@given(BYTES)
def test_lower_case_touches_ascii_letters_only(text):
    assert testing.ascii_lower(text) == text.lower()  # bytes.lower() is ASCII by definition


@given(BYTES, BYTES)
def test_texts_are_equal_ignoring_case_when_their_lower_cases_are(a, b):
    assert testing.equals_ignore_case(a, b) == (a.lower() == b.lower())
    assert testing.equals_ignore_case(a, a.swapcase())


def test_only_letters_have_a_case():
    # '@' and '`', '[' and '{' differ in the same bit as 'A' and 'a'.
    assert not testing.equals_ignore_case("@[", "`{")


@given(st.text(" \t\nab\0"))
def test_blanks_are_spaces_and_tabs_at_the_ends(text):
    assert testing.trim_blanks(text).decode() == text.strip(" \t")


@given(st.integers(0, 2**64 - 1), st.integers(0, 5))
def test_decimals_are_digits_that_fit_in_64_bits(value, zeros):
    assert testing.parse_decimal("0" * zeros + str(value)) == value


@pytest.mark.parametrize(
    "bad", ["", "-1", "+1", " 1", "1 ", "1_0", "0x10", "1.0", "٣", "18446744073709551616"]
)
def test_anything_else_is_not_a_decimal(bad):
    assert testing.parse_decimal(bad) is None


@given(st.integers(0, 2**64 - 1))
def test_hex16_is_always_sixteen_digits(value):
    assert testing.hex16(value) == f"{value:016x}"


@given(st.text(st.characters(codec="utf-8")))
def test_a_json_string_reads_back_as_the_text(text):
    quoted = testing.json_quoted(text)
    assert json.loads(quoted) == text
    assert b"\n" not in quoted


POLICIES = ["random", "round_robin", "least_load", "power_of_two", "consistent_hash", "rendezvous_hash"]


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("round-robin", "round_robin"),
        ("ROUND_ROBIN", "round_robin"),
        ("roundrobin", "round_robin"),
        ("least_loaded", "least_load"),
        ("consistant_hash", "consistent_hash"),
        ("power_of_2", "power_of_two"),
    ],
)
def test_the_nearest_name_is_what_a_person_meant(typed, meant):
    assert testing.nearest_name(typed, POLICIES) == meant


@pytest.mark.parametrize("typed", ["", "xyz", "bananas"])
def test_a_name_like_nothing_has_no_nearest(typed):
    assert testing.nearest_name(typed, POLICIES) == ""


def test_without_candidates_nothing_is_near():
    assert testing.nearest_name("random", []) == ""


@given(st.sampled_from(POLICIES))
def test_every_name_is_nearest_to_itself(name):
    assert testing.nearest_name(name, POLICIES) == name
    assert testing.nearest_name(name.upper().replace("_", "-"), POLICIES) == name


@for_each_row("limit", range(12))
@for_each_row("text", ["", "abc", "äöü", "€uro€", "a🙂b🙂", "\x80" * 8])
def test_a_cut_ends_with_a_character(text, limit):
    written = text.encode("latin-1") if text.startswith("\x80") else text.encode()
    found = testing.cut_at_character(written, limit)
    assert found == cut(written, limit)
    if not text.startswith("\x80"):
        assert found.decode() == text[: len(found.decode())]
        assert len(found) > limit - 4 or len(found) == len(written)
