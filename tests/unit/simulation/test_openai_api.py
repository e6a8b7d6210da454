"""cpp/simulation/openai_api.h: bytes to requests, requests to answers, without sockets."""

import base64
import json
import struct
from typing import Any

import pytest

from vllm_router import _core_testing as testing


def parse(api: str, body: Any, **model: Any) -> testing.SimRequest:
    served = testing.SimModel()
    for name, value in model.items():
        setattr(served, name, value)
    return testing.parse_sim_request(api, body if isinstance(body, str) else json.dumps(body), served)


def refuse(api: str, body: Any, **model: Any) -> dict[str, Any]:
    with pytest.raises(ValueError, match="error") as refused:
        parse(api, body, **model)
    return json.loads(str(refused.value))["error"]


def text_of(request: testing.SimRequest, prompt: int = 0) -> str:
    return testing.text_of_tokens(request.prompts[prompt]).decode()


def chat(*contents: Any, **fields: Any) -> dict[str, Any]:
    roles = ("user", "assistant")
    return {
        "messages": [{"role": roles[i % 2], "content": text} for i, text in enumerate(contents)],
        **fields,
    }


def events(stream: str) -> list[Any]:
    """The data of each event; every event ends with an empty line."""
    assert stream.endswith("\n\n")
    lines = [
        line for event in stream[:-2].split("\n\n") for line in event.split("\n") if line.startswith("data: ")
    ]
    return [line[6:] if line == "data: [DONE]" else json.loads(line[6:]) for line in lines]


def test_a_chat_becomes_text_that_its_next_turn_begins_with():
    first = text_of(parse("chat", chat("Hello")))
    assert first == "<|user|>\nHello\n<|assistant|>\n"
    assert text_of(parse("chat", chat("Hello", "Hi!", "Bye"))).startswith(first + "Hi!\n<|user|>\nBye")


def test_parts_of_text_are_joined_and_other_parts_stand_as_json():
    content = [{"type": "text", "text": "a"}, {"type": "image_url", "image_url": {"url": "data:x"}}]
    assert text_of(parse("chat", chat(content))) == (
        '<|user|>\na{"type":"image_url","image_url":{"url":"data:x"}}\n<|assistant|>\n'
    )


def test_tools_and_tool_calls_are_part_of_the_prompt():
    tools = [{"type": "function", "function": {"name": "f"}}]
    message = {"role": "assistant", "content": None, "tool_calls": [{"id": "1"}]}
    text = text_of(parse("chat", {"messages": [message], "tools": tools}))
    assert text == (
        '<|tools|>\n[{"type":"function","function":{"name":"f"}}]\n<|assistant|>\n[{"id":"1"}]\n<|assistant|>\n'
    )


@pytest.mark.parametrize(
    ("prompt", "tokens"),
    [
        ("abcd", [[0x64636261]]),
        (["abcd", "a"], [[0x64636261], [0x61]]),
        ([1, 2, 3], [[1, 2, 3]]),
        ([[1, 2], [3]], [[1, 2], [3]]),
        ("", [[]]),
    ],
)
def test_a_completion_takes_text_and_token_ids_one_or_many(prompt, tokens):
    assert parse("completions", {"prompt": prompt}).prompts == tokens


@pytest.mark.parametrize(
    ("api", "fields", "tokens", "asked"),
    [
        ("chat", {}, 64, False),
        ("chat", {"max_tokens": 7}, 7, True),
        ("chat", {"max_completion_tokens": 8}, 8, True),
        ("chat", {"max_tokens": None}, 64, False),
        ("completions", {}, 16, False),
        ("completions", {"max_tokens": 1}, 1, True),
        ("responses", {"max_output_tokens": 9}, 9, True),
    ],
)
def test_the_answer_is_as_long_as_asked(api, fields, tokens, asked):
    body = {"chat": chat("x"), "completions": {"prompt": "x"}, "responses": {"input": "x"}}[api]
    request = parse(api, {**body, **fields})
    assert (request.answer_tokens, request.length_was_asked) == (tokens, asked)


def test_an_unasked_answer_is_cut_to_what_the_context_has_left():
    assert parse("completions", {"prompt": "x" * 40}, max_model_len=13).answer_tokens == 3


@pytest.mark.parametrize(
    ("api", "body", "code", "message"),
    [
        ("chat", "{", 400, "not valid JSON"),
        ("chat", "", 400, "not valid JSON"),
        ("chat", "[1]", 400, "must be a JSON object"),
        ("chat", {}, 400, "`messages` is missing"),
        ("chat", {"messages": []}, 400, "at least one message"),
        ("chat", {"messages": "hi"}, 400, "at least one message"),
        ("chat", {"messages": [{"content": "x"}]}, 400, 'needs a "role"'),
        ("chat", chat("x", max_tokens=0), 400, "`max_tokens` must be an integer from 1"),
        ("chat", chat("x", max_tokens="5"), 400, "`max_tokens` must be an integer"),
        ("chat", chat("x", stream="yes"), 400, "`stream` must be true or false"),
        ("chat", chat("x", stream_options=1), 400, "`stream_options` must be an object"),
        ("chat", chat("x", n=1000), 400, "`n` must be an integer from 1 to 128"),
        ("chat", chat("x", model=3), 400, "`model` must be a string"),
        ("chat", chat("x", model="gpt-9"), 404, "The model `gpt-9` does not exist"),
        ("completions", {}, 400, "`prompt` must be a string"),
        ("completions", {"prompt": []}, 400, "`prompt` must be a string"),
        ("completions", {"prompt": [-1]}, 400, "token ids"),
        ("completions", {"prompt": ["a", 1]}, 400, "an item of `prompt`"),
        ("completions", {"prompt": ["a"] * 1025}, 400, "at most 1024"),
        ("embeddings", {"input": "x", "encoding_format": "hex"}, 400, '"float" or "base64"'),
        ("detokenize", {"tokens": "x"}, 400, "list of token ids"),
        (
            "completions",
            {"prompt": "x" * 800, "max_tokens": 800},
            400,
            "maximum context length is 999 tokens",
        ),
        ("completions", {"prompt": "x" * 4000}, 400, "1000 in the prompt"),
    ],
)
def test_a_bad_request_is_refused_with_a_sentence(api, body, code, message):
    error = refuse(api, body, max_model_len=999)
    assert error["code"] == code
    assert message in error["message"]
    assert error["param"] is None


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("{", "Bad Request"),
        (chat("x", max_tokens="5"), "Bad Request"),
        (chat("x", stream_options={"include_usage": 7}), "Bad Request"),
        (chat("x", max_tokens=0), "BadRequestError"),
        (chat("x", max_tokens=-3), "BadRequestError"),
        (chat("x", max_tokens=1000), "BadRequestError"),
        (chat("x", model="gpt-9"), "NotFoundError"),
    ],
)
def test_a_wrong_type_is_another_error_than_a_wrong_value(body, kind):
    assert refuse("chat", body, max_model_len=999)["type"] == kind


def test_an_error_on_the_anthropic_path_has_its_shape():
    with pytest.raises(ValueError, match="error") as refused:
        parse("messages", {"model": "x", "messages": []})
    assert json.loads(str(refused.value))["type"] == "error"
    assert json.loads(str(refused.value))["error"]["type"] == "not_found_error"


def test_a_worker_named_star_serves_any_model():
    assert parse("chat", chat("x", model="anything"), name="*").model == "anything"


def test_a_chat_answer_has_the_shape_of_vllm():
    request = parse("chat", chat("Hello", max_tokens=3, n=2))
    answer = json.loads(testing.sim_answer(request, 'id"1', 16))
    prompt = b"<|user|>\nHello\n<|assistant|>\n"
    assert answer == {
        "id": 'chatcmpl-id"1',
        "object": "chat.completion",
        "created": 1700000000,
        "model": "simulated-model",
        "choices": [
            {
                "index": index,
                "message": {"role": "assistant", "content": testing.response_text(prompt, 3, index)},
                "logprobs": None,
                "finish_reason": "length",
                "stop_reason": None,
            }
            for index in range(2)
        ],
        "system_fingerprint": "sim-1",
        "usage": {
            "prompt_tokens": 8,
            "total_tokens": 14,
            "completion_tokens": 6,
            "prompt_tokens_details": {"cached_tokens": 16},
        },
    }


def test_an_unasked_length_finishes_with_stop():
    answer = json.loads(testing.sim_answer(parse("completions", {"prompt": ["a", "b"]}), "1", 0))
    assert [choice["finish_reason"] for choice in answer["choices"]] == ["stop", "stop"]
    assert answer["object"] == "text_completion"
    assert answer["choices"][1]["text"] == testing.response_text(b"b", 16)


@pytest.mark.parametrize("usage", [True, False])
def test_a_chat_stream_says_role_tokens_reason_usage_and_done(usage):
    request = parse("chat", chat("Hello", max_tokens=3, stream=True, stream_options={"include_usage": usage}))
    got = events(testing.sim_stream(request, "1", 0))
    assert got.pop() == "[DONE]"
    assert {(event["id"], event["object"], event["created"], event["model"]) for event in got} == {
        ("chatcmpl-1", "chat.completion.chunk", 1700000000, "simulated-model")
    }
    if usage:
        last = got.pop()
        assert last["choices"] == []
        assert last["usage"]["prompt_tokens"] == 8
        assert last["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
    deltas = [event["choices"][0]["delta"] for event in got]
    assert deltas[0] == {"role": "assistant", "content": ""}
    assert "".join(delta.get("content", "") for delta in deltas) == testing.response_text(
        b"<|user|>\nHello\n<|assistant|>\n", 3
    )
    assert [event["choices"][0]["finish_reason"] for event in got] == [None] * 4 + ["length"]
    # As from vLLM, only the last one says who it was.
    assert [event.get("system_fingerprint") for event in got] == [None] * 4 + ["sim-1"]


def test_every_choice_of_a_stream_has_its_own_events():
    request = parse("completions", {"prompt": ["a", "b"], "max_tokens": 2, "n": 2, "stream": True})
    texts = ["", "", "", ""]
    for event in events(testing.sim_stream(request, "1", 0))[:-1]:
        texts[event["choices"][0]["index"]] += event["choices"][0]["text"]
    assert texts == [testing.response_text(prompt, 2, choice) for prompt in (b"a", b"b") for choice in (0, 1)]


def test_a_responses_stream_counts_its_events_and_ends_with_the_whole():
    request = parse("responses", {"input": "Hello", "instructions": "Be brief.", "max_output_tokens": 2})
    assert text_of(request).startswith("<|system|>\nBe brief.\n<|user|>\nHello\n")
    got = events(testing.sim_stream(request, "1", 0))
    assert [event["sequence_number"] for event in got] == list(range(len(got)))
    text = "".join(event["delta"] for event in got if event["type"] == "response.output_text.delta")
    assert got[-1]["type"] == "response.completed"
    assert got[-1]["response"]["output"][0]["content"][0]["text"] == text
    assert got[-1]["response"] == json.loads(testing.sim_answer(request, "1", 0))


def test_an_anthropic_stream_opens_and_closes_its_block():
    request = parse(
        "messages", {"messages": [{"role": "user", "content": "Hi"}], "system": "S", "max_tokens": 2}
    )
    got = events(testing.sim_stream(request, "1", 0))
    assert [event["type"] for event in got] == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    whole = json.loads(testing.sim_answer(request, "1", 0))
    assert whole["content"][0]["text"] == "".join(event["delta"]["text"] for event in got[2:4])
    assert got[5]["delta"]["stop_reason"] == whole["stop_reason"] == "max_tokens"


def test_embeddings_say_the_same_in_floats_and_in_base64():
    body = {"input": ["a", "b"], "dimensions": 5}
    floats = json.loads(testing.sim_answer(parse("embeddings", body), "1", 0))["data"]
    coded = json.loads(
        testing.sim_answer(parse("embeddings", {**body, "encoding_format": "base64"}), "1", 0)
    )["data"]
    for plain, packed in zip(floats, coded, strict=True):
        numbers = struct.unpack("<5f", base64.b64decode(packed["embedding"], validate=True))
        assert plain["embedding"] == pytest.approx(numbers)
        assert all(-1 <= number < 1 for number in numbers)
    assert floats[0]["embedding"] != floats[1]["embedding"]


def test_tokenize_and_detokenize_are_each_others_inverse():
    answer = json.loads(testing.sim_answer(parse("tokenize", {"prompt": 'Hello "world"'}), "1", 0))
    assert (answer["count"], answer["max_model_len"], answer["token_strs"]) == (4, 131072, None)
    back = json.loads(testing.sim_answer(parse("detokenize", {"tokens": answer["tokens"]}), "1", 0))
    assert back == {"prompt": 'Hello "world"'}


def test_tokenize_sees_a_chat_as_the_chat_api_does():
    assert parse("tokenize", chat("Hello")).prompts == parse("chat", chat("Hello")).prompts


def test_a_byte_order_mark_is_skipped_as_engines_do():
    """Row 18"""
    body = chat("hi")
    assert text_of(parse("chat", "\ufeff" + json.dumps(body))) == text_of(parse("chat", body))
