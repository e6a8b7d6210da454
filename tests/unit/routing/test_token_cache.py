"""cpp/routing/token_cache.h: names of beginnings, the bound, and what MakeKey makes of known ids."""

import json

import pytest

from tests.rows import for_each_row
from vllm_router import Router, hash_blocks
from vllm_router import _core_testing as testing


def test_a_text_of_very_many_items_is_named_at_the_first_and_as_a_whole():
    most = testing.MAX_NAMED_ITEMS
    names = testing.named_prefixes("\x1e" * (most + 100))
    assert names == [*range(1, most + 1), most + 100]


# ---- MakeKey


def body(*messages, **members):
    roles = ["system", "user", "assistant", "user", "assistant"]
    chat = [{"role": role, "content": text} for role, text in zip(roles, messages, strict=False)]
    return json.dumps({"model": "m", "messages": chat, **members})


def router(block_size=4, **options):
    return Router(policy="vllm_cache_aware", block_size=block_size, tokenize="worker", **options)


FIRST = ("Be kind.", "Hello, what is the weather like in Oslo today?")
IDS = list(range(100, 140))


def test_known_ids_are_the_blocks():
    with_ids = router()
    before = testing.make_blocks(with_ids, body=body(*FIRST))
    assert before["lacks_ids"]
    assert testing.learn_tokens(with_ids, IDS, body=body(*FIRST))
    after = testing.make_blocks(with_ids, body=body(*FIRST))
    assert not after["lacks_ids"]
    assert after["prompt_tokens"] == len(IDS)
    assert after["usable"] == 9
    assert after["blocks"] == hash_blocks(IDS, 4, lora_name="m").tolist()
    assert (
        after["blocks"]
        == testing.make_blocks(with_ids, body=json.dumps({"model": "m", "prompt": IDS}))["blocks"]
    )


def test_the_next_turns_extend_the_blocks_of_the_first_without_asking():
    with_ids = router()
    testing.learn_tokens(with_ids, IDS, body=body(*FIRST))
    first = testing.make_blocks(with_ids, body=body(*FIRST))["blocks"]
    second_turn = body(*FIRST, "Rain, and 7 degrees. " * 3, "And tomorrow, in the afternoon?")
    second = testing.make_blocks(with_ids, body=second_turn)
    third_turn = body(*FIRST, "Rain, and 7 degrees. " * 3, "And tomorrow, in the afternoon?", "Sun. " * 9)
    third = testing.make_blocks(with_ids, body=third_turn)
    kept = (len(IDS) - 16) // 4  # the last ids may change when the text goes on
    assert not second["lacks_ids"]
    assert second["blocks"][:kept] == first[:kept]
    assert second["blocks"][kept] != first[kept]
    assert third["blocks"][: len(second["blocks"])] == second["blocks"]
    assert len(third["blocks"]) > len(second["blocks"]) > kept
    # Another first turn with the same continuation shares nothing.
    testing.learn_tokens(with_ids, [1, *IDS], body=body("Be brief.", FIRST[1]))
    other = body("Be brief.", FIRST[1], "Rain, and 7 degrees. " * 3, "And tomorrow, in the afternoon?")
    assert not set(testing.make_blocks(with_ids, body=other)["blocks"]) & set(second["blocks"])


def test_ids_of_a_beginning_that_fill_no_block_are_asked_for_anew():
    with_ids = router()
    testing.learn_tokens(with_ids, IDS[:19], body=body(*FIRST))
    longer = testing.make_blocks(with_ids, body=body(*FIRST, "Rain."))
    assert longer["lacks_ids"]
    assert not testing.make_blocks(with_ids, body=body(*FIRST))["lacks_ids"]


@for_each_row(
    ("path", "text"),
    [
        ("", body("Be kind.", [{"type": "image_url", "image_url": {"url": "https://x/a.png"}}])),
        ("", body(*FIRST, documents=[{"text": "x"}])),
        ("/v1/messages", body(*FIRST, [{"type": "image", "source": {"type": "url", "url": "https://x"}}])),
        ("", json.dumps({"system": "Be kind.", "messages": [{"role": "user", "content": "Hello there"}]})),
        ("/v1/responses", json.dumps({"input": "Hello there", "previous_response_id": "resp_1"})),
        ("/v1/responses", json.dumps({"input": "Hello there", "conversation": {"id": "conv_1"}})),
        ("", json.dumps({"instructions": "Be kind.", "input": "Hello there"})),  # no path to render it at
        ("", json.dumps({"query": "Hello there"})),
        ("", json.dumps({"prompt": [1, 2, 3, 4, 5]})),
        ("", json.dumps({"prompt": "abc"})),  # no block
        ("", json.dumps({"messages": []})),
        ("", json.dumps({"messages": [{"role": "user", "content": "x" * (4 << 20)}]})),  # cut
    ],
)
def test_what_a_worker_cannot_be_asked_about(path, text):
    assert not testing.make_blocks(router(), body=text, path=path)["lacks_ids"]


MESSAGES = {"model": "m", "system": "Be kind.", "messages": [{"role": "user", "content": "Hello there"}]}
RESPONSES = {"model": "m", "instructions": "Be kind.", "input": [{"role": "user", "content": "Hello there"}]}


@pytest.mark.parametrize(
    ("path", "request_body", "options"),
    [
        ("/v1/messages", MESSAGES, {"thinking": {"type": "disabled"}, "output_config": {"effort": "low"}}),
        ("/v1/messages", MESSAGES, {"tool_choice": {"type": "none"}}),
        ("/v1/responses", RESPONSES, {"reasoning": {"effort": "low"}, "tool_choice": "none"}),
    ],
)
def test_rendered_ids_are_those_of_equal_options(path, request_body, options):
    with_ids = router()
    plain = json.dumps(request_body)
    other = json.dumps(request_body | options)
    assert testing.learn_tokens(with_ids, IDS, body=plain, path=path)
    known = testing.make_blocks(with_ids, body=plain, path=path)
    assert (known["lacks_ids"], known["blocks"]) == (False, hash_blocks(IDS, 4, lora_name="m").tolist())
    assert testing.make_blocks(with_ids, body=other, path=path)["lacks_ids"]
    assert testing.learn_tokens(with_ids, IDS[1:], body=other, path=path)
    in_another_order = json.dumps(dict(reversed(options.items())) | request_body)
    again = testing.make_blocks(with_ids, body=in_another_order, path=path)
    assert again["blocks"] == hash_blocks(IDS[1:], 4, lora_name="m").tolist()


def test_a_chat_and_a_message_of_one_text_have_ids_of_their_own():
    with_ids = router()
    alike = {"model": "m", "messages": MESSAGES["messages"]}
    assert testing.learn_tokens(with_ids, IDS, body=json.dumps(alike), path="/v1/messages")
    assert testing.make_blocks(with_ids, body=json.dumps(alike), path="/v1/chat/completions")["lacks_ids"]


def test_nothing_is_asked_without_the_option_or_by_other_policies():
    with pytest.warns(UserWarning, match="tokenize has no effect"):
        unaware = Router(policy="prefix_aware", tokenize="worker")
    for other in (Router(policy="vllm_cache_aware"), unaware):
        assert not testing.make_blocks(other, body=body(*FIRST))["lacks_ids"]
