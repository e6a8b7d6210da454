"""cpp/routing/prompt_walker.h: both readers find the prompt in the same members and shapes."""

import json

import pytest

from vllm_router import _core_testing as testing

ITEM = {"role": "user", "content": "Hi"}


def read(body):
    """What the reader of routing texts and the reader of prefixes make of it."""
    body = body if isinstance(body, str) else json.dumps(body)
    return testing.routing_text(body, path="/v1/chat/completions"), testing.prefix_anchor(body)


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [ITEM]},
        {"input": [ITEM]},
        {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]},
        {"prompt": "Hi"},
        {"prompt": ["Hi", "and another"]},
        {"prompt": [["Hi"], ["and another"]]},
        {"query": {"content": "Hi"}},
        {"query": {"content": ["Hi"]}},
        {"queries": [{"content": {"type": "text", "text": "Hi"}}, {"content": "and another"}]},
    ],
)
def test_a_prompt_has_one_of_these_shapes(body):
    text, anchor = read(body)
    assert text["text"].endswith(b"Hi")
    assert anchor == ("M", b"Hi")


@pytest.mark.parametrize("ids", [[1, 2], [[1, 2], [3]]])
def test_ids_are_a_prompt_too_and_of_several_lists_the_first_counts(ids):
    text, anchor = read({"prompt": ids})
    assert text["token_ids"] == [1, 2]
    assert anchor[0] == "T"


@pytest.mark.parametrize(
    "system", [{"system": "S"}, {"instructions": ["S"]}, {"systemInstruction": {"parts": [{"text": "S"}]}}]
)
def test_a_system_text_of_its_own_is_content(system):
    text, anchor = read({"messages": [ITEM]} | system)
    assert text["text"] == b"\x1esystem\x1fS\x1euser\x1fHi"
    assert anchor == ("S", b"S")


@pytest.mark.parametrize(
    "body",
    [
        {"messages": ITEM},
        {"messages": [ITEM, 1]},
        {"input": [[ITEM]]},
        {"prompt": ["Hi", 1]},
        {"prompt": [[["Hi"]]]},
        {"prompt": [ITEM]},
        {"prompt": [None]},
        {"input_ids": [1, -1]},
        {"query": {"content": 1}},
    ],
)
def test_anything_else_is_no_prompt(body):
    assert read(body) == (None, None)


@pytest.mark.parametrize("worse", [{"contents": "Hi"}, {"prompt": None}, {"text": 1}, {"query": True}])
def test_a_member_that_cannot_hold_a_prompt_counts_as_absent(worse):
    other = {"prompt_embeds": "AAAA"}
    assert read(worse | other) == read(other)


@pytest.mark.parametrize("name", ["messages", "prompt", "system"])
def test_of_a_member_that_is_repeated_the_last_counts(name):
    values = {"messages": [[{"role": "user", "content": "no"}], [ITEM]]}.get(name, ["no", "Hi"])
    rest = '"messages": [{"role": "user", "content": "x"}]' if name == "system" else '"user": "u"'
    first, last = (f'"{name}": {json.dumps(value)}' for value in values)
    assert read(f"{{{first}, {last}, {rest}}}") == read(f"{{{last}, {rest}}}")
