"""cpp/simulation/chat_api.h: responses of chats and completions, whole and streamed."""

import json

import pytest

from tests.unit.simulation.apis import chat, events, parse, scripted
from vllm_router import _core_testing as testing


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
                "token_ids": None,
            }
            for index in range(2)
        ],
        "system_fingerprint": "sim-1",
        "prompt_token_ids": None,
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


def test_tool_calls_stand_in_the_message():
    request = parse(
        "chat", chat("Hi", tools=[{}]), script=scripted("Zwölf \n", ("bash", {"command": 'ls "ä"'}), "f")
    )
    choice = json.loads(testing.sim_answer(request, "1", 0))["choices"][0]
    assert choice["finish_reason"] == "tool_calls"
    first, second = choice["message"]["tool_calls"]
    assert choice["message"]["content"] == "Zwölf \n"
    assert (first["type"], first["function"]["name"]) == ("function", "bash")
    assert json.loads(first["function"]["arguments"]) == {"command": 'ls "ä"'}
    assert second["function"] == {"name": "f", "arguments": "{}"}
    assert first["id"] != second["id"]


def test_a_message_of_calls_alone_has_no_content():
    request = parse("chat", chat("Hi", tools=[{}]), script=scripted("", "f"))
    assert json.loads(testing.sim_answer(request, "1", 0))["choices"][0]["message"]["content"] is None


def test_a_stream_of_tool_calls_comes_to_the_same():
    request = parse(
        "chat", chat("Hi", tools=[{}]), script=scripted("Zwölf", ("bash", {"command": 'ls "ä"'}), "f")
    )
    whole = json.loads(testing.sim_answer(request, "1", 0))["choices"][0]
    content, calls = "", []
    got = events(testing.sim_stream(request, "1", 0))[:-1]
    for delta in (event["choices"][0]["delta"] for event in got):
        content += delta.get("content", "")
        for call in delta.get("tool_calls", []):
            if "id" in call:
                assert call["index"] == len(calls)
                calls.append({name: value for name, value in call.items() if name != "index"})
            else:
                calls[call["index"]]["function"]["arguments"] += call["function"]["arguments"]
    assert content == whole["message"]["content"]
    assert calls == whole["message"]["tool_calls"]
    assert got[-1]["choices"][0]["finish_reason"] == "tool_calls"
    assert len(got) > 8  # arguments come in pieces
