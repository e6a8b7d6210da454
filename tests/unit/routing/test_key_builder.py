"""cpp/routing/key_builder.h: what is read of a request, for each policy."""

import json

import pytest

from tests.rows import for_each_row
from vllm_router import Router
from vllm_router import _core_testing as testing

HASH = ["consistent_hash", "rendezvous_hash"]
LOAD = ["least_load", "power_of_two"]
BLIND = ["random", "round_robin"]


def router(policy="least_load", **options):
    return Router(policy, ["http://w1:8000", "http://w2:8000", "http://w3:8000"], **options)


def body(**members):
    return json.dumps(members).encode()


@pytest.mark.parametrize("policy", BLIND + LOAD)
def test_policies_without_a_session_never_need_the_body(policy):
    assert not testing.needs_body(router(policy), [])


@pytest.mark.parametrize("policy", HASH)
def test_hash_policies_need_the_body_only_when_no_header_has_the_key(policy):
    fleet = router(policy)
    assert testing.needs_body(fleet, [])
    assert testing.needs_body(fleet, [("content-type", "application/json"), ("x-session-id", " ")])
    assert not testing.needs_body(fleet, [("accept", "*/*"), ("X-Session-ID", "s")])
    assert not testing.needs_body(fleet, [("x-claude-code-session-id", "s")])
    with_own_header = router(policy, hash_key_headers=["X-Shop"])
    assert testing.needs_body(with_own_header, [("x-session-id", "s")])
    assert not testing.needs_body(with_own_header, [("x-shop", "s")])


@pytest.mark.parametrize("policy", BLIND)
def test_nothing_is_read_for_a_policy_that_needs_nothing(policy):
    key = testing.make_key(router(policy), headers=[("x-session-id", "s")], body=body(user="u", max_tokens=5))
    assert key == {
        "hash_key": "",
        "source": "missing",
        "prompt_tokens": 1,
        "expected_output": 256,
        "prefix_digest": None,
        "prompt": None,
        "scope": 0,
        "framed": False,
    }


@pytest.mark.parametrize("policy", HASH)
def test_hash_policies_get_the_session_key(policy):
    fleet = router(policy)
    assert testing.make_key(fleet, headers=[("x-user-id", "u")])["hash_key"] == "header:x-user-id:u"
    assert testing.make_key(fleet, body=body(user="u"))["hash_key"] == "user:u"
    assert testing.make_key(fleet, prompt="p")["source"] == "body"
    assert testing.make_key(fleet)["source"] == "missing"


TEXT = ["prefix_hash"]


def prompt_of(fleet, **request):
    key = testing.make_key(fleet, **request)
    prompt, scope = key["prompt"], key["scope"]
    return None if prompt is None else (prompt[:scope], prompt[scope:], key["framed"])


@pytest.mark.parametrize("policy", TEXT)
def test_text_policies_need_the_body_whatever_the_headers_say(policy):
    assert testing.needs_body(router(policy), [("x-session-id", "s")])


@pytest.mark.parametrize("policy", TEXT)
def test_text_policies_get_the_prompt_behind_the_name_of_its_model(policy):
    fleet = router(policy)
    chat = [{"role": "user", "content": "Hi"}]
    text = b"\x1euser\x1fHi"
    assert prompt_of(fleet, body=body(messages=chat)) == (b"", text, True)
    assert prompt_of(fleet, body=body(messages=chat, model="m")) == (b"m\0", text, True)
    assert prompt_of(fleet, body=body(prompt="Hi", model="m")) == (b"m\0", b"Hi", False)
    assert prompt_of(fleet, body=body(text="Hi"), path="/generate") == (b"", b"Hi", False)
    assert prompt_of(fleet, prompt="Hi") == (b"", b"Hi", False)
    assert prompt_of(fleet, prompt="Hi", model="m") == (b"m\0", b"Hi", False)
    assert prompt_of(fleet, token_ids=[5, 6]) == ([], [5, 6], False)
    scope, ids, _ = prompt_of(fleet, token_ids=[5, 6], model="m")
    assert (len(scope), ids) == (16, [5, 6])
    assert prompt_of(fleet, body=body(prompt=[5, 6], model="m")) == (scope, [5, 6], False)
    assert prompt_of(fleet, token_ids=[5, 6], model="n")[0] != scope
    assert prompt_of(fleet, body=b"{") is None
    assert prompt_of(fleet) is None


@pytest.mark.parametrize("policy", TEXT)
def test_a_salt_keeps_prompts_apart(policy):
    fleet = router(policy)
    scope, text, _ = prompt_of(fleet, body=body(prompt="Hi", model="m", cache_salt="s"))
    assert (scope, text) == (b"m\x1es\0", b"Hi")
    plain, _, _ = prompt_of(fleet, body=body(prompt=[1], model="m"))
    assert prompt_of(fleet, body=body(prompt=[1], model="m", cache_salt="s"))[0] != plain
    salted = body(messages=[{"role": "user", "content": "Hi"}], cache_salt="s")
    assert prompt_of(fleet, body=salted) == (b"", b"\x1econtext\x1fcache_salt=s\x1euser\x1fHi", True)


def test_the_prompt_is_cut_at_its_limit_and_the_scope_is_not_counted():
    fleet = router("prefix_hash", routing_text_limit=1024)
    for request in (
        {"prompt": "x" * 2000, "model": "model"},
        {"prompt": "x" * 2000},
        {"body": body(prompt="x" * 2000, model="model")},
    ):
        assert prompt_of(fleet, **request)[1] == b"x" * 1024
    chat = body(messages=[{"role": "user", "content": "x" * 2000}], model="model")
    assert prompt_of(fleet, body=chat) == (b"model\0", b"\x1euser\x1f" + b"x" * 1018, True)
    with pytest.raises(ValueError, match=r"routing_text_limit is 1000; .* between 1024 and 1073741824"):
        router("prefix_hash", routing_text_limit=1000)


def test_tokens_of_a_prompt_are_counted_from_what_is_matched():
    fleet = router("prefix_hash")
    chat = body(messages=[{"role": "user", "content": "x" * 394}], unread="y" * 4000)
    assert testing.make_key(fleet, body=chat)["prompt_tokens"] == 100
    assert testing.make_key(fleet, body=body(prompt=[1] * 77))["prompt_tokens"] == 77
    image = {"type": "image_url", "image_url": {"url": "https://x/a.png"}}
    with_image = body(messages=[{"role": "user", "content": [image]}])
    assert testing.make_key(fleet, body=with_image)["prompt_tokens"] > 256


def test_options_of_the_key_reach_it():
    sent = [("x-correlation-id", "c"), ("x-request-id", "r"), ("session-id", "s")]
    request = {"headers": sent[:2], "path": "/v1/chat/completions"}
    chat = {"body": body(session_params={"session_id": "p"}), "path": "/v1/chat/completions"}

    def key(request, **options):
        return testing.make_key(router("consistent_hash", **options), **request)["hash_key"]

    assert key(request) == "header:x-request-id:r"
    assert key(request, hash_key_order="reference") == "header:x-correlation-id:c"
    assert key({"headers": sent}) == "header:session-id:s"
    assert key({"headers": sent}, session_header_aliases=False) == "header:x-request-id:r"
    assert key({"headers": sent}, consistent_hash_compat=True) == "header:x-correlation-id:c"
    assert key({"headers": sent}, hash_key_headers=["X-Correlation-ID"]) == "header:x-correlation-id:c"
    assert key(chat) == "session:p"
    assert key(chat, consistent_hash_compat=True) == "request:p"
    digest = testing.ring_hash(testing.HashFunction.xxh3, b"p")
    assert key({"prompt": "p"}, hash_function="xxh3") == f"request_hash:{digest:016x}"


@for_each_row("policy", LOAD)
@for_each_row(
    ("request_", "tokens"),
    [
        ({}, 1),
        ({"prompt": ""}, 1),
        ({"prompt": "x"}, 1),
        ({"prompt": "x" * 4}, 1),
        ({"prompt": "x" * 5}, 2),
        ({"prompt": "é" * 4}, 2),  # bytes, not characters
        ({"body": b"x" * 401}, 101),
        ({"body_bytes": 400}, 100),  # known from Content-Length before the body is at hand
        ({"body_bytes": 2**40}, 2**32 - 1),
        ({"token_ids": []}, 1),
        ({"token_ids": [7] * 9}, 9),
        ({"token_ids": [7] * 9, "prompt": "x" * 400, "body": b"x" * 400}, 9),
        ({"prompt": "x" * 40, "body": b"x" * 400}, 10),
    ],
)
def test_prompt_tokens_are_ids_or_a_quarter_of_the_bytes(policy, request_, tokens):
    assert testing.make_key(router(policy), **request_)["prompt_tokens"] == tokens


@pytest.mark.parametrize(
    ("members", "output"),
    [
        ({}, 256),
        ({"max_tokens": 64}, 64),
        ({"max_tokens": 0}, 0),
        ({"max_tokens": 100_000}, 256),
        ({"max_completion_tokens": 7, "max_tokens": 64}, 7),
        ({"max_tokens": "64"}, 256),
        ({"metadata": {"max_tokens": 64}}, 256),
    ],
)
def test_expected_output_is_the_requests_own_limit_up_to_the_mean(members, output):
    assert testing.make_key(router("least_load"), body=body(**members))["expected_output"] == output


def test_a_large_body_is_not_parsed_for_its_limit_alone():
    small = body(prompt="x" * 60_000, max_tokens=5)
    large = body(prompt="x" * 70_000, max_tokens=5)
    assert testing.make_key(router("least_load"), body=small)["expected_output"] == 5
    assert testing.make_key(router("least_load"), body=large)["expected_output"] == 256
