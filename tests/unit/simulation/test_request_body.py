"""cpp/simulation/request_body.cc: bytes to requests, or to a sentence for the client."""

import json

import pytest

from tests.rows import for_each_row
from tests.unit.simulation.apis import chat, parse, refuse, text_of

SCRIPT = json.dumps([{"calls": [{"name": "bash"}]}, {"text": "Second."}, {"text": "Third."}])
TOOLS = [{"type": "function", "function": {"name": "bash"}}]


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


@for_each_row(
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


def test_a_worker_named_star_serves_any_model():
    assert parse("chat", chat("x", model="anything"), name="*").model == "anything"


def test_a_byte_order_mark_is_skipped_as_engines_do():
    body = chat("hi")
    assert text_of(parse("chat", "\ufeff" + json.dumps(body))) == text_of(parse("chat", body))


def test_a_billing_header_is_dropped_as_engines_do():
    def text(*blocks):
        system = [{"type": "text", "text": block} for block in blocks]
        return text_of(parse("messages", {**chat("Hi"), "system": system}))

    assert text("x-anthropic-billing-header: cch=1;", "S") == text("S")
    assert text("S", "x-anthropic") != text("S")


def test_items_without_a_role_are_calls_and_results():
    call = {"type": "function_call", "name": "f", "arguments": "{}", "call_id": "1"}
    result = {"type": "function_call_output", "call_id": "1", "output": "R"}
    text = text_of(parse("responses", {"input": [{"role": "user", "content": "Q"}, call, result]}))
    called = json.dumps(call, separators=(",", ":"))
    assert text == f"<|user|>\nQ\n<|assistant|>\n{called}\n<|tool|>\nR\n<|assistant|>\n"
    assert 'needs a "role"' in refuse("responses", {"input": [{"content": "Q"}]})["message"]


def turns_of(api, *items, **fields):
    """The scripted text at this point of the conversation: "" of the first turn, which only calls."""
    list_name = "input" if api == "responses" else "messages"
    body = {list_name: list(items), "tools": TOOLS, "max_tokens": 9, **fields}
    return parse(api, body, script=SCRIPT).scripted


USER = {"role": "user", "content": "Do it."}
ASSISTANT = {"role": "assistant", "content": "I call."}
RESULTS = {
    "chat": ({"role": "tool", "content": "R"},) * 2,  # of two calls of one response
    "messages": ({"role": "user", "content": [{"type": "tool_result", "content": "R"}]},),
    "responses": ({"type": "function_call_output", "output": "R"},) * 2,
}
CALLS = {
    "chat": (ASSISTANT,),
    "messages": (ASSISTANT,),
    "responses": ({"type": "reasoning"}, {"type": "function_call"}, {"type": "function_call"}),
}


@pytest.mark.parametrize("api", RESULTS)
def test_the_turn_of_a_script_is_the_number_of_responses_since_the_user_spoke(api):
    turn = (*CALLS[api], *RESULTS[api])
    assert turns_of(api, USER) == ""
    assert turns_of(api, USER, *turn) == "Second."
    assert turns_of(api, USER, *turn, *turn) == "Third."
    assert turns_of(api, USER, *turn, *turn, *turn) == "Third."  # the last one repeats
    assert turns_of(api, USER, *turn, ASSISTANT, USER) == ""  # another task
    assert turns_of(api, {"role": "system", "content": "S"}, USER, *turn) == "Second."


def test_a_request_without_tools_gets_a_text_that_its_length_does_not_extend():
    long = parse("chat", chat("Hi", max_tokens=32000), script=SCRIPT)
    short = parse("chat", chat("Hi", max_tokens=5), script=SCRIPT)
    assert (long.scripted, long.answer_tokens, short.answer_tokens) == (None, 64, 5)
    assert parse("chat", chat("Hi", tools=[], max_tokens=32000), script=SCRIPT).scripted is None
    assert parse("completions", {"prompt": "x", "max_tokens": 99}, script=SCRIPT).answer_tokens == 99


def test_a_scripted_turn_is_longer_than_a_small_limit():
    assert parse("chat", chat("Hi", tools=TOOLS, max_tokens=1), script=SCRIPT).answer_tokens == 2  # call, {}
