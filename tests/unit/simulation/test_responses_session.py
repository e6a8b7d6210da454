"""cpp/simulation/responses_session.h: what the messages of one WebSocket come to."""

import json

import pytest

from vllm_router import _core_testing as testing

A, B, C = ({"role": "user", "content": text} for text in "abc")


def create(**fields):
    return json.dumps({"type": "response.create", **fields})


def refused(session, message):
    with pytest.raises(ValueError, match="error") as error:
        session.expand(message)
    return json.loads(str(error.value))["error"]


def test_a_message_is_a_streamed_request():
    body = json.loads(testing.ResponsesSession().expand(create(input=[A], tools=[{"name": "f"}], model="m")))
    assert body == {"stream": True, "input": [A], "tools": [{"name": "f"}], "model": "m"}
    assert json.loads(testing.ResponsesSession().expand(create(input="a")))["input"] == [A]


def test_a_continued_response_has_all_that_was_before():
    session = testing.ResponsesSession()
    session.expand(create(input=[A]))
    session.complete("resp_1", json.dumps(B))
    body = json.loads(session.expand(create(input=[C], previous_response_id="resp_1")))
    assert body["input"] == [A, B, C]
    assert "previous_response_id" not in body
    session.complete("resp_2", "")
    body = json.loads(session.expand(create(input=[A], previous_response_id="resp_2")))
    assert body["input"] == [A, B, C, A]
    assert json.loads(session.expand(create(input=[A])))["input"] == [A]  # a conversation of its own


def test_another_response_than_the_last_is_not_found():
    session = testing.ResponsesSession()
    session.expand(create(input=[A]))
    session.complete("resp_1", "")
    for unknown in ("resp_2", ""):
        error = refused(session, create(input=[C], previous_response_id=unknown))
        assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")
    assert refused(testing.ResponsesSession(), create(input=[C], previous_response_id=""))["code"]


@pytest.mark.parametrize("message", ["", "[]", "{}", '{"type": "response.cancel"}', '{"type": 1}'])
def test_what_is_no_request_is_refused(message):
    error = refused(testing.ResponsesSession(), message)
    assert (error["type"], error["code"]) == ("invalid_request_error", None)
    assert "response.create" in error["message"]


def test_input_is_a_text_or_a_list():
    assert "`input`" in refused(testing.ResponsesSession(), create(input=7))["message"]
