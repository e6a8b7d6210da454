"""cpp/routing/prompt_reading.h: what is read of a request for the record, the same under every policy."""

import json

from tests.rows import for_each_row
from vllm_router import Router, hash_blocks
from vllm_router import _core_testing as testing
from vllm_router.router_args import BUILT_POLICIES

CHAT = "/v1/chat/completions"
IDS = list(range(1000, 1050))


def body(*turns, **members):
    messages = [{"role": "user", "content": turn} for turn in turns]
    return json.dumps({"model": "m", "messages": messages, **members}).encode()


def read(policy="round_robin", *, options=None, **request):
    router = Router(policy=policy, worker_urls=["http://a:1"], **(options or {}))
    return testing.read_prompt(router, **request)


def length_of_common_prefix(a, b):
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))


@for_each_row("policy", BUILT_POLICIES)
@for_each_row(
    "request_",
    [
        {"body": body("Tell me of the sea. " * 40, user="ann"), "path": CHAT},
        {
            "body": json.dumps({"model": "m", "prompt": IDS, "session_id": 7}).encode(),
            "path": "/v1/completions",
        },
        {"body": body("x" * 1000, cache_salt="s"), "path": CHAT, "headers": [("X-Session-ID", "abc")]},
        {"body": b"[1, 2", "path": CHAT},
    ],
    ids=["text", "ids", "salt", "broken"],
)
def test_the_policy_changes_nothing(policy, request_):
    blocks, _tokens, session = read(policy, **request_)
    assert (blocks, session) == (read("round_robin", **request_)[0], read("round_robin", **request_)[2])


def test_what_is_read_of_a_chat():
    text = "Tell me of the sea. " * 40  # 800 bytes
    blocks, tokens, session = read(body=body(text, user="ann"), path=CHAT)
    assert len(blocks) == 12  # of 64 bytes
    assert 200 <= tokens <= 205
    assert session == "user:ann"


def test_token_ids_are_blocks_of_ids():
    blocks, tokens, session = read(body=json.dumps({"prompt": IDS}).encode(), path="/v1/completions")
    assert blocks == hash_blocks(IDS, 16).tolist()
    assert (tokens, session) == (50, "")


def test_the_next_turn_begins_with_the_blocks_of_the_one_before():
    first = read(body=body("a" * 500), path=CHAT)[0]
    second = read(body=body("a" * 500, "b" * 500), path=CHAT)[0]
    assert len(first) == 7
    assert length_of_common_prefix(first, second) == len(first) < len(second)


def test_prompts_of_different_models_share_nothing():
    one, other = (json.dumps({"model": model, "prompt": "x" * 640}).encode() for model in "mn")
    assert not set(read(body=one, path="/v1/completions")[0]) & set(
        read(body=other, path="/v1/completions")[0]
    )


def test_blocks_have_the_size_of_the_option():
    for size in (16, 32, 128):
        blocks = read("auto", options={"block_size": size}, prompt="x" * 4096)[0]
        assert len(blocks) == 1024 // size


def test_a_request_without_a_body_has_its_header_s_session_and_an_estimate():
    assert read(headers=[("X-User-ID", "u")], body_bytes=400) == ([], 100, "header:x-user-id:u")
