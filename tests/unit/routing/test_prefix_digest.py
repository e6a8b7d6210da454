"""cpp/routing/prefix_digest.h: the documented digests, and where they come from in each kind of body."""

import hashlib
import json

import pytest

from tests.rows import for_each_row
from vllm_router import Router
from vllm_router import _core_testing as testing

ROUTER = Router("prefix_aware")
KIND = "You are a helpful assistant."


def digest(body=None, router=ROUTER, **parts):
    if body is not None:
        parts["body"] = body if isinstance(body, str | bytes) else json.dumps(body)
    found = testing.make_key(router, **parts)["prefix_digest"]
    return None if found is None else found.hex()


def chat(*messages, model="llama-3", **more):
    return {
        "model": model,
        "messages": [{"role": role, "content": text} for role, text in messages],
    } | more


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (
            chat(("system", KIND), ("user", "Hi")),
            "542e8d8551bb38da2f00b1ff6716b42cfc811b892fafb8d353ba167bc6ce4784",
        ),
        (chat(("user", KIND)), "9bc41fce027072873e1c57116d3b2ded58a200ca0e77e188ef40990a27176196"),
        (chat(("user", "Hello!")), "55febedd492d8bedfd4f02feeb171f59537b8d11fae499a2bef1056188f26dd5"),
        (
            chat(("user", "Hello!"), model="qwen-3"),
            "3984b77437c1c901b38cbc1e256447c49e4b436d56a00b60447461d42ab5b875",
        ),
        (
            chat(("system", 1023 * "a" + "é")),
            "aa7e5e89d950b9301c940995df13645dc03b7d4be3dc99f5f456fc4de6935492",
        ),
        (chat(("system", 1023 * "a")), "aa7e5e89d950b9301c940995df13645dc03b7d4be3dc99f5f456fc4de6935492"),
        (
            {"model": "llama-3", "prompt": [1, 2, 3, 4]},
            "ecccb81c1cecda2736ab07496c72b472239c6b1a41241e5b57a27194c1db3df0",
        ),
    ],
)
def test_the_documented_digests(body, expected):
    assert digest(body) == expected


def test_one_system_prompt_has_one_digest_in_every_api():
    wanted = digest(chat(("system", KIND)))
    user = [{"role": "user", "content": "Hi"}]
    parts = [{"type": "text", "text": KIND[:9]}, {"type": "text", "text": KIND[9:]}]
    for body in (
        chat(("user", "Hi"), ("developer", KIND)),
        {"model": "llama-3", "messages": user, "system": KIND},
        {"model": "llama-3", "system": parts, "messages": user},
        {"model": "llama-3", "system": [{**part, "cache_control": {}} for part in parts], "messages": user},
        {"model": "llama-3", "instructions": KIND, "input": "Hi"},
        {"model": "llama-3", "input": [{"role": "system", "content": KIND}, *user]},
        {"model": "llama-3", "input": [{"type": "input_text", "role": "developer", "content": parts}]},
        {"messages": [{"content": parts, "role": "system"}, *user], "model": "llama-3"},
    ):
        assert digest(body) == wanted


def test_one_first_message_has_one_digest_in_every_api():
    wanted = digest(chat(("user", "Hello!")))
    for body in (
        chat(("user", "Hello!"), ("assistant", "Hi."), ("user", "More")),
        chat(("system", ""), ("user", "Hello!")),
        chat(("user", "Hello!"), system="", instructions=[]),
        {"model": "llama-3", "prompt": "Hello!"},
        {"model": "llama-3", "prompt": ["Hello!", "other"]},
        {"model": "llama-3", "input": "Hello!"},
        {"model": "llama-3", "input": ["Hello!"]},
        {
            "model": "llama-3",
            "input": [{"type": "item_reference", "id": "x"}, {"role": "user", "content": "Hello!"}],
        },
        {"model": "llama-3", "text": "Hello!"},
        {"model": "llama-3", "query": "Hello!"},
    ):
        assert digest(body) == wanted
    assert digest(prompt="Hello!", model="llama-3") == wanted
    assert digest(prompt="Hello!") != wanted


def test_token_ids_are_named_by_as_many_whole_ones_as_fit():
    four = Router("prefix_aware", max_prefix_length=19)
    wanted = digest({"model": "llama-3", "prompt": [1, 2, 3, 4]})
    for ids in ([1, 2, 3, 4], [1, 2, 3, 4, 5], [1, 2, 3, 4, 2**40]):
        assert digest({"model": "llama-3", "prompt": ids}, four) == wanted
        assert digest({"model": "llama-3", "prompt": [ids, [7]]}, four) == wanted
        assert digest({"model": "llama-3", "input_ids": ids}, four) == wanted
    assert digest(token_ids=[1, 2, 3, 4], model="llama-3") == wanted
    assert digest({"model": "llama-3", "prompt": [1, 2, 3]}, four) != wanted
    # Ids beside a body without a prompt, as select(body, token_ids=…) has them.
    assert digest({"model": "llama-3"}, token_ids=[1, 2, 3, 4]) == wanted


@for_each_row(
    "body",
    [
        "",
        "[]",
        "{",
        "{}",
        '{"model": "m"}',
        '{"prompt": ""}',
        '{"prompt": []}',
        '{"messages": []}',
        '{"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}]}',
        '{"messages": [{"role": "user", "content": null}]}',
        '{"messages": [{"content": "no role"}]}',
        '{"messages": [{"role": "user", "content": 5}]}',
        '{"messages": [{"role": "user", "content": "\\ud800"}]}',
        '{"messages": "x"}',
        '{"prompt": [1, "a"]}',
        '{"prompt": [-1]}',
        '{"prompt": [4294967296]}',
        '{"prompt": [{}]}',
        '{"prompt": "x", "system": 1}',
    ],
)
def test_without_text_there_is_no_digest(body):
    assert digest(body) is None


def test_a_model_is_its_bytes_and_none_is_empty():
    for written, model in (('"modèle"', "modèle"), ('"mod\\u00e8le"', "modèle"), ("5", ""), ("null", "")):
        expected = hashlib.sha256(f"{model}\0Mx".encode()).hexdigest()
        assert digest(f'{{"prompt": "x", "model": {written}}}') == expected
    assert digest('{"prompt": "x"}') == hashlib.sha256(b"\0Mx").hexdigest()


def test_of_members_that_are_there_twice_the_last_counts():
    assert testing.prefix_anchor('{"prompt": "a", "prompt": "b"}') == ("M", b"b")
    assert testing.prefix_anchor('{"system": "a", "system": "", "prompt": "p"}') == ("M", b"p")
    twice = '{"messages": [{"role": "user", "content": "a", "role": "system", "content": "b"}]}'
    assert testing.prefix_anchor(twice) == ("S", b"b")


def test_a_text_shorter_than_its_first_character_is_cut_to_nothing_and_still_a_text():
    assert testing.prefix_anchor('{"prompt": "é"}', 1) == ("M", b"")
    assert testing.prefix_anchor('{"prompt": [5]}', 3) == ("T", b"")


def test_the_text_around_the_prefix_changes_nothing():
    base = chat(("system", KIND), ("user", "Hi"))
    wanted = digest(base)
    assert digest({**base, "user": "ann", "temperature": 1, "prompt": "x", "tools": [{}]}) == wanted
    assert digest(dict(reversed(base.items()))) == wanted
    assert digest(json.dumps(base, indent=3)) == wanted
    assert digest(base, headers=[("X-Session-ID", "s")]) == wanted
