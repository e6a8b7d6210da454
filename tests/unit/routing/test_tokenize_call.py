"""cpp/routing/tokenize_call.h: what is asked, and which answers count."""

import json

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

CHAT = {"model": "m", "messages": [{"role": "user", "content": 'Say "hi" 😀'}]}


def call(body, form, padded=True):
    text = body if isinstance(body, str) else json.dumps(body)
    written = testing.write_tokenize_call(text, form, padded)
    return None if written is None else json.loads(written)


@pytest.mark.parametrize("padded", [True, False])
def test_a_chat_is_asked_with_its_generation_prompt(padded):
    assert call(CHAT, "chat", padded) == {**CHAT, "add_generation_prompt": True}


def test_members_that_the_call_knows_go_along_as_they_are():
    more = {
        "tools": [{"type": "function", "function": {"name": "f"}}],
        "chat_template": "x",
        "chat_template_kwargs": {"enable_thinking": False},
        "add_generation_prompt": False,
        "continue_final_message": True,
        "add_special_tokens": True,
        "mm_processor_kwargs": {},
        "media_io_kwargs": {},
    }
    others = {"stream": True, "temperature": 0.5, "user": "ann", "max_tokens": 7, "prompt": "no"}
    assert call({**others, **CHAT, **more}, "chat") == {**CHAT, **more}


@pytest.mark.parametrize(
    ("body", "prompt"),
    [
        ({"prompt": "Hello"}, "Hello"),
        ({"prompt": ["Hello", "Bye"]}, "Hello"),
        ({"text": "Hello"}, "Hello"),
        ({"text": "no", "prompt": "Hello"}, "Hello"),
        ({"prompt": "no", "input": "Hello"}, "Hello"),
        ({"prompt": "no", "input": "Hello", "text": "no"}, "Hello"),
        ({"prompt": 'a"b\\\n😀'}, 'a"b\\\n😀'),
    ],
)
def test_a_prompt(body, prompt):
    assert call(body, "prompt") == {"prompt": prompt}
    assert call({**body, "model": "m", "add_special_tokens": False, "n": 1}, "prompt") == {
        "model": "m",
        "prompt": prompt,
        "add_special_tokens": False,
    }


@pytest.mark.parametrize("body", ["", "[]", "{}", '{"prompt":7}', '{"prompt":["a"', '{"prompt":[[1]]}'])
def test_without_a_prompt_nothing_is_asked(body):
    assert call(body, "prompt") is None


@pytest.mark.parametrize(
    "body",
    [
        '{"messages":[:1],"x":1]}',
        '{"messages":[{}],"tools":{"a":"b":1},"x":1}}',
        '{"messages":[{}],"tools":[,{}],"model":"eve"]}',
        '{"messages":[{}],"tools":{"a":]},"x":1}',
        '{"messages":"m"}6}',
    ],
)
def test_of_what_is_not_one_whole_object_nothing_is_asked(body):
    assert testing.request_fields(body) is None
    assert testing.write_tokenize_call(body, "chat", True) is None
    assert testing.write_tokenize_call(body.replace("messages", "prompt"), "prompt", True) is None


@pytest.mark.parametrize("form", ["messages", "responses"])
@pytest.mark.parametrize("padded", [True, False])
def test_a_render_endpoint_gets_the_request_itself(form, padded):
    body = '{"model": "m",  "system": [], "messages": [], "input": "Hello", "stream": true}'
    assert testing.write_tokenize_call(body, form, padded) == body.encode()
    assert testing.write_tokenize_call("\ufeff" + body, form, padded) == body.encode()


def test_without_messages_nothing_is_asked():
    assert call({"prompt": "Hello"}, "chat") is None


@pytest.mark.parametrize(
    "answer",
    [
        '{"count": 3, "max_model_len": 9, "tokens": [0, 7, 4294967295], "token_strs": null}',
        '{"tokens":[0,7,4294967295]}',
        ' {"tok\\u0065ns" : [ 0 , 7 , 4294967295 ] } ',
        '{"request_id": "7", "token_ids": [0, 7, 4294967295], "features": null, "sampling_params": {"n": 1}}',
    ],
)
def test_ids_are_read(answer):
    assert testing.parse_tokenize_answer(answer) == [0, 7, 2**32 - 1]


@for_each_row(
    ("answer", "why"),
    [
        ("", "not one JSON object"),
        ("[1]", "not one JSON object"),
        ('{"tokens":[1]} {}', "not one JSON object"),
        ('{"tokens":[1],"x":tru}', "not one JSON object"),
        ('{"tokens":[1],}', "not one JSON object"),
        ('{"count":1}', "no 'tokens'"),
        ('{"tokens":"1"}', "not a list"),
        ('{"tokens":[1],"tokens":[1]}', "twice"),
        ('{"tokens":[1],"token_ids":[1]}', "twice"),
        ('{"tokens":[1],"count":2}', "'count' is 2"),
        ('{"tokens":[1],"count":"1"}', "not a whole number"),
        ('{"tokens":[]}', "empty"),
        ('{"tokens":[-1]}', "not a token id"),
        ('{"tokens":[1.0]}', "not a token id"),
        ('{"tokens":[4294967296]}', "not a token id"),
        ('{"tokens":[[1]]}', "not a token id"),
        ('{"tokens":[null]}', "not a token id"),
    ],
)
def test_any_other_answer_is_refused(answer, why):
    with pytest.raises(Exception, match=why):
        testing.parse_tokenize_answer(answer)


def test_as_many_ids_as_the_limit_says():
    most = testing.MAX_TOKENIZED_IDS
    assert len(testing.parse_tokenize_answer('{"tokens":[' + "1," * (most - 1) + "1]}")) == most
    with pytest.raises(Exception, match="more than"):
        testing.parse_tokenize_answer('{"tokens":[' + "1," * most + "1]}")


@pytest.mark.parametrize("padded", [True, False])
def test_a_byte_order_mark_hides_no_prompt(padded):
    assert call("\ufeff" + json.dumps(CHAT), "chat", padded) == {**CHAT, "add_generation_prompt": True}
