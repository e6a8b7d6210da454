"""cpp/continuation/choice_event.h: what an event of a stream says, and where."""

import json

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

ROLE = {"role": "assistant", "content": ""}


def read(event):
    return testing.read_choice_event(event if isinstance(event, str) else json.dumps(event))


def chat(delta, **choice):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": None, **choice}]}


def texts_of(event):
    """(kind, call, text, repeats)"""
    return [(kind, call, text, repeats) for _, kind, call, _, text, repeats in read(event)[1]]


def test_a_completion_has_its_text_and_the_head_as_spelled():
    choice = '{"index":2,"text":"\\u00e9\\n","finish_reason":null}'
    event = f'{{"id" : "cmpl-1", "created":7,"model":"m","choices":[{choice}]}}'
    choices, texts, call_ids, *head = read(event)
    assert choices == [(2, "", "", False)]
    assert texts == [(0, "content", 0, '"\\u00e9\\n"', "é\n", False)]
    assert call_ids == []
    assert head == ['"cmpl-1"', "7", '"m"']


def test_the_head_may_be_missing():
    assert read({"choices": []}) == ([], [], [], "", "", "")
    assert read({"choices": [], "id": None, "usage": {"total_tokens": 3}}) == ([], [], [], "", "", "")


def test_a_role_and_an_end():
    assert read(chat(ROLE))[0] == [(0, '"assistant"', "", False)]
    assert read(chat({}, finish_reason="stop"))[0] == [(0, "", '"stop"', False)]
    assert read({"choices": [{"finish_reason": "length"}]})[0] == [(0, "", '"length"', False)]


@for_each_row(
    ("delta", "texts"),
    [
        ({}, []),
        ({"content": None, "reasoning": None}, []),
        ({"content": "b", "reasoning": "a"}, [("reasoning", 0, "a", False), ("content", 0, "b", False)]),
        ({"refusal": "no", "content": "b"}, [("content", 0, "b", False), ("refusal", 0, "no", False)]),
        ({"reasoning_content": "a"}, [("reasoning", 0, "a", False)]),
        (
            {"reasoning": "a", "reasoning_content": "a"},
            [("reasoning", 0, "a", False), ("reasoning", 0, "a", True)],
        ),
        (
            {"tool_calls": [{"index": 1, "id": "x", "function": {"arguments": "{", "name": "f"}}]},
            [("tool_name", 1, "f", False), ("tool_arguments", 1, "{", False)],
        ),
        ({"tool_calls": [{"index": 0, "id": "x"}, {"index": 1, "function": None}]}, []),
        (
            {"content": "a", "function_call": None, "annotations": [], "audio": {}, "x": False, "y": ""},
            [("content", 0, "a", False)],
        ),
    ],
)
def test_the_texts_of_a_delta_in_the_order_of_parsers(delta, texts):
    assert texts_of(chat(delta)) == texts


def test_ids_of_tool_calls():
    event = chat({"tool_calls": [{"index": 0, "id": "call_1"}, {"index": 3, "id": None}]})
    assert read(event)[2] == [(0, 0, '"call_1"')]


@for_each_row("details", [{"logprobs": {"content": []}}, {"token_ids": [1]}, {"token_ids": []}])
def test_details_of_the_whole_text(details):
    assert read(chat({"content": "a"}, **details))[0] == [(0, "", "", True)]
    assert read(chat({"content": "a"}, **dict.fromkeys(details)))[0] == [(0, "", "", False)]


def test_several_choices():
    event = {"choices": [{"index": 1, "text": "a"}, {"index": 0, "text": "b"}]}
    choices, texts, *_ = read(event)
    assert [choice[0] for choice in choices] == [1, 0]
    assert [(text[0], text[4]) for text in texts] == [(0, "a"), (1, "b")]


@for_each_row(
    "event",
    [
        "",
        "[DONE]",
        "[]",
        "{}",
        '{"choices":null}',
        '{"choices":{}}',
        '{"choices":[7]}',
        '{"choices":[{"index":-1}]}',
        '{"choices":[{"index":"0"}]}',
        '{"choices":[{"text":7}]}',
        '{"choices":[{"text":"\\ud800"}]}',
        '{"choices":[{"text":"a","text":"b"}]}',
        '{"choices":[],"error":{"message":"x"}}',
        '{"choices":[{"text":"a","delta":{"content":"b"}}]}',
        '{"choices":[{"message":{"content":"a"}}]}',
        '{"choices":[{"delta":[]}]}',
        '{"choices":[{"delta":{"content":7}}]}',
        '{"choices":[{"delta":{"audio":{"data":"x"}}}]}',
        '{"choices":[{"delta":{"speech":"x"}}]}',
        '{"choices":[{"delta":{"reasoning":"a","reasoning_content":"b"}}]}',
        '{"choices":[{"delta":{"tool_calls":{}}}]}',
        '{"choices":[{"delta":{"tool_calls":[{"function":{"name":"f"}}]}}]}',
        '{"choices":[{"delta":{"tool_calls":[{"index":128}]}}]}',
        '{"choices":[{"delta":{"tool_calls":[{"index":0,"function":[]}]}}]}',
        '{"type":"content_block_delta"}',
    ],
)
def test_an_event_of_another_shape_is_not_read(event):
    assert read(event) is None


def test_choices_are_bounded():
    assert read({"choices": [{"index": index} for index in range(127)]}) is not None
    assert read({"choices": [{"index": index} for index in range(128)]}) is None
