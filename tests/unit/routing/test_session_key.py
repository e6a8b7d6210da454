"""cpp/routing/session_key.h: the ranks of docs/reference/policies.md, and vectors."""

import json

import pytest

from vllm_router import _core_testing as testing

FURC = testing.HashFunction.furc
HELLO = b'{"model":"llama-3","messages":[{"role":"user","content":"Hello!"}]}'
RANKS = ["x-session-id", "x-user-id", "x-tenant-id", "x-request-id", "x-correlation-id", "x-trace-id"]
CHAT = "/v1/chat/completions"


def finder(**options):
    return testing.SessionKeyFinder(**options)


def key(request=None, **options):
    """(key, source) of a request given as the keywords of find()."""
    return finder(**options).find(**(request or {}))[:2]


def of_body(body, **options):
    return key({"body": json.dumps(body).encode()}, **options)


def digest(raw, function=FURC):
    return f"request_hash:{testing.ring_hash(function, raw):016x}"


def test_headers_rank_as_in_the_seed():
    sent = [(name, f"v{i}") for i, name in enumerate(RANKS)]
    for first in range(len(RANKS)):
        expected = f"header:{RANKS[first]}:v{first}"
        assert key({"headers": sent[first:]}) == (expected, "session")
        assert key({"headers": sent[first:][::-1]}) == (expected, "session")


def test_headers_with_similar_names_are_others():
    sent = [("x-session-i", "1"), ("x-session-idd", "2"), ("x_session_id", "3"), ("", "4"), ("x" * 500, "5")]
    assert key({"headers": sent}) == ("", "missing")


def test_find_in_headers_and_has_header_agree_with_find():
    for sent in ([], [("x-trace-id", "t")], [("x-trace-id", " ")]):
        expected = key({"headers": sent})[0]
        assert finder().find_in_headers(sent) == expected
        assert finder().has_header(sent) == bool(expected)


def test_the_body_is_parsed_only_when_no_header_decides():
    body = json.dumps({"user": "u"}).encode()
    assert finder().find(body=body) == ("user:u", "session", True)
    assert finder().find(body=body, headers=[("x-user-id", "h")]) == ("header:x-user-id:h", "session", False)


def test_agents_and_their_apis_name_a_conversation_by_members_of_the_body():
    claude = {"user_id": json.dumps({"device_id": "d", "session_id": "a"})}
    body = {"metadata": claude, "prompt_cache_key": "b", "conversation": {"id": "c"}, "conversation_id": "d"}
    body["user"] = "e"
    for name, session in zip(list(body), "abcd", strict=False):
        assert of_body(body) == (f"session:{session}", "session")
        assert of_body(body, compat=True) == ("user:e", "session")
        del body[name]
    assert of_body(body) == ("user:e", "session")
    assert of_body({"conversation": "c", "user": "e"}) == ("session:c", "session")
    assert of_body({**body, "session_params": {"session_id": "p"}, "metadata": claude})[0] == "session:p"


TURNS = [
    {"role": "user", "content": "Hello!"},
    {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "ls", "arguments": "{}"}}]},
    {"role": "tool", "content": "README.md"},
    {"role": "user", "content": "Read it."},
]
ITEMS = [
    {"role": "user", "content": "Hello!"},
    {"type": "reasoning", "summary": []},
    {"type": "function_call", "name": "ls", "arguments": "{}"},
    {"type": "function_call_output", "output": "README.md"},
]


@pytest.mark.parametrize(
    ("path", "before", "member", "turns"),
    [
        (CHAT, {"tools": [{"name": "ls"}]}, "messages", TURNS),
        ("/v1/messages", {"system": "Be kind."}, "messages", TURNS),
        ("/v1/responses", {"instructions": "Be kind."}, "input", ITEMS),
        (
            "",
            {},
            "contents",
            [{"parts": [{"text": "Hello!"}]}, {"role": "model", "parts": [{"text": "Hi."}]}],
        ),
    ],
)
def test_all_turns_of_a_conversation_have_the_key_of_its_opening(path, before, member, turns):
    def of_turn(count, *, first=turns[0], **more):
        body = {"model": "m", member: [first, *turns[1:count]], **before, **more}
        return of_body_at(path, body)

    opening = of_turn(1)
    assert (opening[0].partition(":")[0], opening[1]) == ("opening", "body")
    assert {of_turn(count, temperature=count / 10) for count in range(1, len(turns) + 1)} == {opening}
    assert (
        of_turn(2, first={**turns[0], "role": "user", "content": "Hi!", "parts": [{"text": "Hi!"}]})
        != opening
    )
    assert of_turn(2, tools=[{"name": "rm"}]) != opening
    assert of_turn(2, user="ann") == ("user:ann", "session")


def of_body_at(path, body, **options):
    return key({"body": json.dumps(body).encode(), "path": path}, **options)


@pytest.mark.parametrize(
    "body",
    [
        {"prompt": "Once"},
        {"prompt": [1, 2]},
        {"messages": [{"role": "system", "content": "Be kind."}, TURNS[1]]},
        {"input": [ITEMS[3]], "previous_response_id": "r"},
    ],
)
def test_without_a_users_opening_the_key_is_the_digest_of_the_body(body):
    assert of_body_at(CHAT, body) == (digest(json.dumps(body).encode()), "body")


@pytest.mark.parametrize(
    ("request_", "options", "key_string", "furc", "point"),
    [
        ({"headers": [("X-Session-ID", "abc")]}, {}, "header:x-session-id:abc", 1770962, "543d9eea8d6f5317"),
        (
            {"headers": [("X-Session-ID", "conversation-12345")]},
            {},
            "header:x-session-id:conversation-12345",
            427258,
            "70213e269ee10eb2",
        ),
        (
            {"headers": [("X-Correlation-ID", "corr-001"), ("X-Request-ID", "req-789")]},
            {},
            "header:x-request-id:req-789",
            5735937,
            "4f8e98b2f70e0524",
        ),
        (
            {"headers": [("X-Correlation-ID", "corr-001"), ("X-Request-ID", "req-789")]},
            {"compat": True},
            "header:x-correlation-id:corr-001",
            7095979,
            "75ca81747ea5991e",
        ),
        (
            {"body": b'{"session_params":{"session_id":"conversation-12345"}}', "path": CHAT},
            {},
            "session:conversation-12345",
            3492762,
            "392628d52028defd",
        ),
        (
            {"body": b'{"session_params":{"session_id":"conversation-12345"}}', "path": CHAT},
            {"compat": True},
            "request:conversation-12345",
            4535462,
            "1b29273bb9f9db89",
        ),
        ({"body": b'{"user":"user-67890"}'}, {}, "user:user-67890", 2841289, "0bf0e4e297f556d0"),
        (
            {"headers": [("X-User-ID", "user-456")]},
            {},
            "header:x-user-id:user-456",
            2244113,
            "671c72bf1a57461f",
        ),
        (
            {"headers": [("X-Tenant-ID", "tenant-xyz")]},
            {},
            "header:x-tenant-id:tenant-xyz",
            7054215,
            "417e59d50a0b64b6",
        ),
        ({"body": HELLO}, {"fallback": "body"}, "request_hash:45341b7a824b0d89", 1014237, "a761052e59e947b8"),
    ],
)
def test_keys_and_their_points_are_pinned_by_the_vectors(request_, options, key_string, furc, point):
    assert key(request_, **options)[0] == key_string
    assert testing.furc_hash(key_string) == furc
    assert f"{testing.ring_hash(FURC, key_string):016x}" == point


def test_members_of_the_body_rank_after_headers():
    body = {"session_params": {"session_id": "a"}, "user": "b", "session_id": "c", "user_id": "d"}
    assert of_body(body) == ("session:a", "session")
    del body["session_params"]
    assert of_body(body) == ("user:b", "session")
    del body["user"]
    assert of_body(body) == ("session:c", "session")
    del body["session_id"]
    assert of_body(body) == ("user:d", "session")
    request = {"body": json.dumps(body).encode(), "headers": [("x-trace-id", "t")]}
    assert key(request) == ("header:x-trace-id:t", "session")


def test_a_member_that_names_nobody_is_passed_over():
    assert of_body({"user": " ", "session_id": None, "user_id": 5}) == ("user:5", "session")


def test_compat_keeps_the_reference_key_of_chats_with_a_session():
    body = json.dumps({"session_params": {"session_id": "conversation-12345"}}).encode()
    assert key({"body": body, "path": CHAT}) == ("session:conversation-12345", "session")
    assert key({"body": body, "path": CHAT}, compat=True) == ("request:conversation-12345", "session")
    for path in ("", "/v1/completions", "/v1/responses"):
        assert key({"body": body, "path": path}, compat=True) == ("session:conversation-12345", "session")


def test_compat_digests_a_chat_session_that_is_longer_than_100_bytes():
    for session, expected in [("é" * 50, "request:" + "é" * 50), ("x" * 101, digest(b"x" * 101))]:
        body = json.dumps({"session_params": {"session_id": session}}).encode()
        assert key({"body": body, "path": CHAT}, compat=True) == (expected, "session")
