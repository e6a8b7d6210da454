"""The one table from what went wrong to what a client is told."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

ROWS = testing.error_rows()
STATUS, TYPE, CODE, MESSAGE, RETRY_AFTER = range(5)


def test_every_error_has_its_own_code():
    assert len({row[CODE] for row in ROWS}) == len(ROWS)


@for_each_row("row", ROWS, ids=lambda row: row[CODE])
def test_status_and_type_say_whose_mistake_it_is(row):
    expected = "invalid_request_error" if 400 <= row[STATUS] < 500 else "server_error"
    assert row[TYPE] == expected
    assert row[MESSAGE].endswith(".")


def test_only_what_may_pass_soon_says_when_to_try_again():
    assert {row[STATUS] for row in ROWS if row[RETRY_AFTER]} == {429, 503}
    assert all(row[RETRY_AFTER] for row in ROWS if row[STATUS] == 503)


def test_the_body_is_what_the_openai_client_expects():
    assert json.loads(testing.error_body("No.", "server_error", "no_workers")) == {
        "error": {"message": "No.", "type": "server_error", "param": None, "code": "no_workers"}
    }


@given(st.text(st.characters(codec="utf-8")))
def test_a_message_survives_whatever_it_contains(message):
    assert json.loads(testing.error_body(message, "t", "c"))["error"]["message"] == message


@for_each_row("row", ROWS, ids=lambda row: row[CODE])
def test_anthropics_routes_have_its_form_with_the_same_code(row):
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        body = json.loads(testing.error_body_for(path, row[STATUS], 'say "it"', row[CODE], "req-1"))
        assert (body["type"], body["request_id"]) == ("error", "req-1")
        assert (body["error"]["message"], body["error"]["code"]) == ('say "it"', row[CODE])
        assert body["error"]["type"].endswith(("_error", "_too_large"))
    openai = testing.error_body_for("/v1/responses", row[STATUS], "m", row[CODE], "req-1")
    assert openai == testing.error_body("m", "server_error", row[CODE])
