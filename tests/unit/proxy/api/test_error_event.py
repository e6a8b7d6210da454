"""cpp/proxy/api/error_event.h: errors as the last events of a stream."""

import json

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
DONE = b"data: [DONE]\n\n"


def event(path, status, body):
    events = testing.error_events(path, status, body if isinstance(body, str) else json.dumps(body))
    assert events.endswith(b"\n\n")
    assert events.count(b"\n") == (3 if path in (MESSAGES, RESPONSES) else 4)
    return events


def data(events):
    return json.loads(events.split(b"data: ", 1)[1].split(b"\n")[0])


def test_an_error_of_the_router_in_each_form():
    body = testing.error_body("No workers.", "server_error", "no_workers").decode()
    error = json.loads(body)["error"]
    assert event(CHAT, 503, body) == b"data: " + body.encode() + b"\n\n" + DONE
    assert data(event(MESSAGES, 503, body)) == {
        "type": "error",
        "error": {"type": "overloaded_error", "message": "No workers."},
    }
    assert data(event(RESPONSES, 503, body)) == {
        "type": "error",
        "code": "no_workers",
        "message": "No workers.",
        "param": None,
        "sequence_number": 0,
        "error": error,
    }
    assert event(MESSAGES, 503, body).startswith(b"event: error\ndata: {")
    assert event(RESPONSES, 503, body).startswith(b"event: error\ndata: {")


@for_each_row(
    ("status", "name"),
    [
        (400, "invalid_request_error"),
        (401, "authentication_error"),
        (403, "permission_error"),
        (404, "not_found_error"),
        (408, "timeout_error"),
        (413, "request_too_large"),
        (429, "rate_limit_error"),
        (500, "api_error"),
        (502, "api_error"),
        (503, "overloaded_error"),
        (504, "timeout_error"),
        (529, "overloaded_error"),
    ],
)
def test_anthropic_s_names_of_errors(status, name):
    assert data(event(MESSAGES, status, {"error": {"message": "m"}}))["error"] == {
        "type": name,
        "message": "m",
    }


@for_each_row("path", [CHAT, MESSAGES, RESPONSES])
@for_each_row(
    ("body", "message"),
    [
        ({"error": {"message": 'a "b"\n\nc', "code": 400}}, 'a "b"\n\nc'),
        ({"object": "error", "message": "m", "code": 400}, "m"),
        ({"error": "m"}, "m"),
        ({"detail": "m"}, "m"),
        ({"detail": [{"loc": ["body"]}]}, None),
        ({"error": None}, None),
        ({}, None),
        ("", None),
        ("data: x\n\n", None),
        ("[1]", None),
        ('{"error": {"message": "m"', None),
        ("{" + '"a": 1, ' * 2000 + '"error": {"message": "m"}}', None),
    ],
)
def test_what_a_worker_says_is_kept_and_one_event(path, body, message):
    """Row 35: whatever it is, the stream has one error, on one line."""
    said = data(event(path, 418, body))
    error = said if path == RESPONSES else said["error"]
    assert error["message"] == (message or "The worker responded with status 418 and no event stream.")


def test_json_on_several_lines_becomes_one():
    body = json.dumps({"error": {"message": "m", "code": 1}}, indent=2).replace("\n", "\r\n")
    assert data(event(CHAT, 400, body)) == {"error": {"message": "m", "code": 1}}
    anthropics = {"type": "error", "error": {"type": "x", "message": "m"}, "request_id": "r"}
    assert data(event(MESSAGES, 400, json.dumps(anthropics, indent=2))) == anthropics


def test_a_whole_response_is_the_one_event_where_the_api_has_that():
    body = json.dumps({"choices": []}, indent=2)
    events = testing.whole_as_events(CHAT, body)
    assert data(events) == {"choices": []}
    assert events.endswith(DONE)
    for path, text in ((MESSAGES, body), (RESPONSES, body), (CHAT, ""), (CHAT, "[1]"), (CHAT, "text")):
        assert testing.whole_as_events(path, text) == b""


@pytest.mark.parametrize("path", [CHAT, MESSAGES, RESPONSES])
def test_a_stream_that_broke_off_has_the_same_error_and_no_end(path):
    body = testing.error_body_for(path, 503, "m", "worker_drained", "r").decode()
    assert testing.error_events(path, 503, body).removesuffix(DONE) == testing.error_event(path, 503, body)


def test_the_code_and_the_request_id_of_anthropics_form_pass():
    body = testing.error_body_for(MESSAGES, 503, "m", "worker_drained", "req-1")
    assert testing.error_event(MESSAGES, 503, body.decode()) == b"event: error\ndata: " + body + b"\n\n"
