"""cpp/routing/routing_text.h: the canonical text of each kind of request; random ones: tests/property."""

import json

import pytest

from tests.models.routing_text import digest, routing_text
from tests.rows import for_each_row
from vllm_router import Router
from vllm_router import _core_testing as testing

RS, US, GS = "\x1e", "\x1f", "\x1d"
SYSTEM = {"role": "system", "content": "You are helpful."}
HELLO = {"role": "user", "content": "Hello!"}
OSLO = {"role": "user", "content": "Weather in Oslo?"}
PIXEL = "iVBORw0KGgo="


def read(body, path=""):
    """Text, ids or None; equal to the twin's."""
    found = testing.routing_text(json.dumps(body), path)
    result = None if found is None else found.get("token_ids", found.get("text"))
    assert result == routing_text(body, path)
    return result.decode() if isinstance(result, bytes) else result


AGENT = {"model": "m", "tools": [{"name": "f"}], "messages": [SYSTEM, HELLO]}
CLAUDE = {"model": "m", "tools": [{"name": "f"}], "system": "S", "messages": [HELLO]}


@pytest.mark.parametrize(("body", "path"), [(AGENT, ""), (CLAUDE, "/v1/messages")], ids=["chat", "messages"])
def test_tools_stand_where_the_models_template_has_them(body, path):
    texts = {
        order: testing.routing_text(json.dumps(body), path, tools=order)
        for order in ("first", "after", "auto")
    }
    assert texts["first"]["text"] == routing_text(body, path, tools_first=True) != texts["after"]["text"]
    assert texts["after"]["text"] == texts["auto"]["text"] == routing_text(body, path)
    assert [texts[order]["lacks_tool_order"] for order in texts] == [False, False, True]


def test_the_opening_of_a_conversation_does_not_change_when_the_order_is_learned():
    """The key of a session would, in the middle of it."""
    fleet = Router("consistent_hash", ["http://w1:8000"])
    before = testing.make_key(fleet, body=json.dumps(AGENT))["hash_key"]
    testing.learn_tool_order(fleet, "m", "first")
    assert before.startswith("opening:")
    assert testing.make_key(fleet, body=json.dumps(AGENT))["hash_key"] == before


def chat(*messages, **rest):
    return read({"model": "m", "messages": list(messages)} | rest)


CALL = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": '{"city":"Oslo"}'}}
FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {}}}
CAT = {"type": "image_url", "image_url": {"url": "https://x/cat.png"}}


@pytest.mark.parametrize(
    ("text", "xxh3"),
    [
        (chat(SYSTEM, HELLO), 0xB55AE666A363AA9E),
        (chat(SYSTEM, HELLO, {"role": "assistant", "content": "Hi."}, OSLO), 0xCEB16E9428F8B9C7),
        (
            chat(
                SYSTEM,
                {"role": "user", "content": [{"type": "text", "text": "What is this?"}, CAT]},
                tools=[FUNCTION],
            ),
            0x8EF0AABDA61B3C72,
        ),
        (
            chat(
                OSLO,
                {"role": "assistant", "content": None, "tool_calls": [CALL]},
                {"role": "tool", "tool_call_id": "c1", "content": "4 C"},
            ),
            0x1E7EF72EF9927CD4,
        ),
    ],
)
def test_the_published_vectors(text, xxh3):
    assert testing.xxh3(text.encode()) == xxh3


def test_an_image_given_inline_is_known_by_its_digest():
    assert digest(PIXEL) == "xxh3:8b6ea3ab907ddde446fb1e0007b78770"
    inline = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PIXEL}}
    anthropic = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}}
    for part in (inline, anthropic):
        assert chat({"role": "user", "content": [part]}) == f"{RS}user{GS}image:{digest(PIXEL)}"


def test_openai_anthropic_and_responses_say_the_same_in_one_text():
    openai = read({"messages": [SYSTEM, HELLO]}, "/v1/chat/completions")
    blocks = [{"type": "text", "text": "You are helpful.", "cache_control": {"type": "ephemeral"}}]
    assert read({"system": "You are helpful.", "messages": [HELLO]}, "/v1/messages") == openai
    assert read({"messages": [HELLO], "system": blocks}, "/v1/messages") == openai
    assert read({"instructions": "You are helpful.", "input": "Hello!"}, "/v1/responses") == openai
    assert read({"instructions": "You are helpful.", "input": [HELLO]}, "/v1/responses") == openai


def test_the_next_turn_extends_the_text():
    first = chat(SYSTEM, HELLO, tools=[FUNCTION], cache_salt="s")
    second = chat(
        SYSTEM, HELLO, {"role": "assistant", "content": "Hi."}, OSLO, tools=[FUNCTION], cache_salt="s"
    )
    assert second.startswith(first)


def test_tools_stand_behind_the_lead_and_what_shapes_the_template_before_it():
    text = chat(
        SYSTEM, {"role": "developer", "content": "Rules."}, HELLO, SYSTEM, tools=[FUNCTION], cache_salt="s"
    )
    assert text == (
        f"{RS}context{US}cache_salt=s{RS}system{US}You are helpful.{RS}developer{US}Rules."
        f'{RS}tools{US}[{{"type":"function","function":{{"name":"f","parameters":{{}}}}}}]'
        f"{RS}user{US}Hello!{RS}system{US}You are helpful."
    )
    assert chat(HELLO, tools=[]) == chat(HELLO) == f"{RS}user{US}Hello!"


def test_a_string_equals_a_list_of_one_text():
    assert chat({"role": "user", "content": [{"type": "text", "text": "Hello!"}]}) == chat(HELLO)


@for_each_row(
    ("message", "item"),
    [
        ({"role": "user", "name": "ann", "content": "x"}, f"{RS}user:ann{US}x"),
        (
            {"role": "assistant", "content": "x", "reasoning_content": "hm"},
            f"{RS}assistant{GS}reasoning:hm{US}x",
        ),
        ({"content": "x", "reasoning": "hm", "role": "assistant"}, f"{RS}assistant{GS}reasoning:hm{US}x"),
        (
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}]},
            f"{RS}assistant{GS}reasoning:hm",
        ),
        (
            {
                "role": "assistant",
                "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {"a": [1, 2]}}],
            },
            f'{RS}assistant{GS}call:f:{{"a":[1,2]}}',
        ),
        (
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "t",
                        "content": [
                            {"type": "text", "text": "4"},
                            {"type": "image", "source": {"type": "url", "url": "http://x/y"}},
                            {"type": "text", "text": " C"},
                        ],
                    }
                ],
            },
            f"{RS}user{GS}result:4 C{GS}image:http://x/y",
        ),
        (
            {"role": "assistant", "function_call": {"name": "f", "arguments": "{}"}},
            f"{RS}assistant{GS}call:f:{{}}",
        ),
        (
            {"role": "user", "content": [{"type": "odd", "a": [1, {"b": "c d"}]}]},
            f'{RS}user{GS}other:{{"type":"odd","a":[1,{{"b":"c d"}}]}}',
        ),
        (
            {
                "role": "user",
                "content": [{"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}],
            },
            f"{RS}user{GS}audio:{digest('AAAA')}",
        ),
        (
            {"role": "user", "content": [{"type": "file", "file": {"file_id": "f-1"}}]},
            f"{RS}user{GS}file:f-1",
        ),
        (
            {"role": "user", "content": [CAT | {"uuid": "cat-7"}]},
            f"{RS}user{GS}image:cat-7",
        ),
        ({"role": "user", "content": None}, f"{RS}user"),
        ({"role": "user", "content": []}, f"{RS}user"),
    ],
)
def test_parts_of_messages(message, item):
    assert chat(message) == item


@pytest.mark.parametrize("part", [{"type": "image", "source": {}}, {"type": "input_image"}])
def test_media_are_known_by_uuid_then_data_then_url_then_file_id_in_whatever_order(part):
    """mending row 54: the last member of the object won."""
    members = {"file_id": "f-1", "url" if "source" in part else "image_url": "https://x/a.png"}
    more = {"data": "AAAA", "uuid": "cat-7"} if "source" in part else {"file_data": "AAAA", "uuid": "cat-7"}
    expected = ["f-1", "https://x/a.png", digest("AAAA"), "cat-7"]
    for count, identity in enumerate(expected, 1):
        some = list((members | more).items())[:count]
        for order in (some, some[::-1]):
            given = part | ({"source": dict(order)} if "source" in part else dict(order))
            assert chat({"role": "user", "content": [given]}) == f"{RS}user{GS}image:{identity}"


def test_items_of_responses():
    text = read(
        {
            "input": [
                {
                    "type": "message",
                    "role": "user",
                    "content": [{"type": "input_text", "text": "Weather in Oslo?"}],
                },
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
                {
                    "type": "function_call",
                    "call_id": "c",
                    "name": "get_weather",
                    "arguments": '{"city":"Oslo"}',
                },
                {"type": "function_call_output", "call_id": "c", "output": "4 C"},
                {"type": "item_reference", "id": "i"},
            ]
        },
        "/v1/responses",
    )
    assert text == (
        f"{RS}user{US}Weather in Oslo?{RS}assistant{GS}reasoning:hm"
        f'{RS}assistant{GS}call:get_weather:{{"city":"Oslo"}}{RS}tool{GS}result:4 C'
        f'{RS}{GS}other:{{"type":"item_reference","id":"i"}}'
    )


@for_each_row(
    ("body", "path", "prompt"),
    [
        ({"prompt": "Once"}, "/v1/completions", "Once"),
        ({"prompt": ["Once", "Twice"]}, "/v1/completions", "Once"),
        ({"prompt": [1, 2, 4294967295]}, "/v1/completions", [1, 2, 4294967295]),
        ({"prompt": [[1, 2], [3]]}, "/v1/completions", [1, 2]),
        ({"text": "Once", "input_ids": None}, "/generate", "Once"),
        ({"input_ids": [[5, 6], [7]]}, "/generate", [5, 6]),
        ({"input": "Once"}, "/v1/embeddings", "Once"),
        ({"input": ["Once"]}, "/v1/embeddings", "Once"),
        ({"query": "Once", "documents": ["a"]}, "/rerank", "Once"),
        ({"text": {"format": {"type": "text"}}, "input": "Hello!"}, "/v1/responses", f"{RS}user{US}Hello!"),
        ({"prompt": "", "messages": None}, "", ""),
        ({"prompt": []}, "", ""),
        ({"messages": []}, "", ""),
        ({"model": "m"}, "", None),
        ({}, "", None),
    ],
)
def test_prompts_without_roles_are_the_text_themselves(body, path, prompt):
    assert read(body, path) == prompt


@pytest.mark.parametrize(
    ("body", "prompt"),
    [
        ({"prompt_token_ids": [7, 8, 9]}, [7, 8, 9]),
        ({"queries": ["Once", "Twice"], "documents": ["a"]}, "Once"),
        ({"text_1": "Once", "text_2": ["a", "b"]}, "Once"),
        (
            {"data_1": [{"content": [{"type": "text", "text": "Once"}, CAT]}], "data_2": "a"},
            f"{US}Once{GS}image:https://x/cat.png",
        ),
        ({"query": {"content": [{"type": "text", "text": "Once"}]}, "documents": ["a"]}, f"{US}Once"),
        ({"prompt_embeds": PIXEL}, f"{GS}embeds:{digest(PIXEL)}"),
        ({"prompt_embeds": [PIXEL, "AAAA"]}, f"{GS}embeds:{digest(PIXEL)}"),
        ({"prompt": "Once", "prompt_embeds": PIXEL}, "Once"),
    ],
)
def test_prompts_of_scores_of_embeddings_and_of_ids_are_read(body, prompt):
    """mending row 40: bodies without `messages`, `prompt` or `input` had no text."""
    assert read(body) == prompt


@pytest.mark.parametrize("instruction", ["systemInstruction", "system_instruction"])
def test_gemini_contents_read_like_messages(instruction):
    """mending row 40: `contents` had no text."""
    parts = [
        {"text": "What is this?"},
        {"inlineData": {"mimeType": "image/png", "data": PIXEL}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://x/a.pdf"}},
    ]
    asked = {
        "contents": [{"role": "user", "parts": parts}],
        instruction: {"parts": [{"text": "You are helpful."}]},
    }
    text = testing.routing_text(json.dumps(asked))["text"].decode()
    assert text == (
        f"{RS}system{US}You are helpful."
        f"{RS}user{US}What is this?{GS}image:{digest(PIXEL)}{GS}file:https://x/a.pdf"
    )
    call = {"functionCall": {"name": "f", "args": {"a": 1}}}
    asked["contents"] += [
        {"role": "model", "parts": [call]},
        {"role": "user", "parts": [{"functionResponse": {"a": 2}}]},
    ]
    longer = testing.routing_text(json.dumps(asked))["text"].decode()
    assert longer == (
        f'{text}{RS}model{GS}call:f:{{"a":1}}{RS}user{GS}other:{{"functionResponse":{{"a":2}}}}'
    )


def test_messages_win_over_other_forms_wherever_they_stand():
    for body in ({"prompt": "p", "messages": [HELLO]}, {"messages": [HELLO], "prompt": "p"}):
        assert read(body) == f"{RS}user{US}Hello!"


def test_the_text_is_cut_at_the_limit():
    body = json.dumps({"messages": [SYSTEM, HELLO, {"role": "user", "content": "x" * 1000}]})
    whole = testing.routing_text(body)["text"]
    for limit in (0, 1, 20, len(whole) - 1, len(whole), len(whole) + 1):
        assert testing.routing_text(body, limit=limit)["text"] == whole[:limit]


def test_media_and_the_salt_are_told():
    found = testing.routing_text(
        json.dumps(
            {
                "cache_salt": "s",
                "messages": [{"role": "user", "content": [CAT, CAT, {"type": "text", "text": "x"}]}],
            }
        )
    )
    assert (found["media"], found["cache_salt"]) == (2, b"s")


def test_blanks_and_escapes_mean_nothing():
    plain = '{"tools":[{"a":"b c"}],"messages":[{"role":"user","content":"é\\n"}]}'
    spaced = (
        ' { "tools" : [ {\n"a" : "b c" } ] , '
        '"messages" : [ { "content" : "\\u00e9\\u000a" , "role" : "us\\u0065r" } ] } '
    )
    assert testing.routing_text(plain) == testing.routing_text(spaced)


def test_json_keeps_the_escapes_it_came_with():
    found = testing.routing_text('{"messages": [], "tools": [{"n": "\\u00e9"}], "cache_salt": "\\u00e9"}')
    assert found["text"].decode() == f'{RS}context{US}cache_salt=é{RS}tools{US}[{{"n":"\\u00e9"}}]'
