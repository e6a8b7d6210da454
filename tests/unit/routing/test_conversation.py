"""cpp/routing/conversation.h: requests of one conversation have one hash, and those of others another."""

import json

import pytest

from vllm_router import _core_testing as testing

SYSTEM = {"role": "system", "content": "Be brief. " * 300}
HELLO = {"role": "user", "content": "Hello!"}
MORE = [{"role": "assistant", "content": "Hello."}, {"role": "user", "content": "And now?"}]


def of(body=None, headers=(), **more):
    return testing.conversation_of(list(headers), body=None if body is None else json.dumps(body), **more)


def chat(*messages, **members):
    return {"model": "m", "messages": list(messages), **members}


def test_all_turns_of_a_chat_have_its_opening():
    first, second = of(chat(SYSTEM, HELLO)), of(chat(SYSTEM, HELLO, *MORE))
    assert first is not None
    assert first == second == of(chat(SYSTEM, HELLO, *MORE, temperature=1))


def test_a_system_prompt_that_is_shared_does_not_make_one_conversation():
    assert of(chat(SYSTEM, HELLO)) != of(chat(SYSTEM, {"role": "user", "content": "Good morning!"}))


@pytest.mark.parametrize(
    "name",
    ["x-session-id", "X-Claude-Code-Session-ID", "session_id", "x-smg-routing-key", "conversation_id"],
)
def test_a_session_in_the_headers_names_it_whatever_the_body_is(name):
    assert of(chat(HELLO), [(name, "s")]) == of(chat(SYSTEM), [(name, " s ")]) == of(session_id="s")
    assert of(chat(HELLO), [(name, "s")]) != of(chat(HELLO), [(name, "t")])


@pytest.mark.parametrize(
    "name", ["x-request-id", "x-correlation-id", "x-trace-id", "x-user-id", "x-tenant-id"]
)
def test_names_of_requests_users_and_tenants_are_none(name):
    assert of(chat(HELLO), [(name, "a")]) == of(chat(HELLO), [(name, "b")]) == of(chat(HELLO))


@pytest.mark.parametrize(
    "members",
    [
        {"session_params": {"session_id": "s"}},
        {"prompt_cache_key": "s"},
        {"conversation": {"id": "s"}},
        {"conversation_id": "s"},
        {"session_id": "s"},
    ],
)
def test_a_name_in_the_body_counts_as_one_in_a_header(members):
    assert of(chat(HELLO, **members)) == of(chat(SYSTEM, HELLO, **members)) == of(session_id="s")


def test_a_user_in_the_body_does_not_name_it():
    assert of(chat(HELLO, user="ann")) == of(chat(HELLO, user_id="bob")) == of(chat(HELLO))


def test_of_a_plain_prompt_the_first_1024_bytes_count():
    def prompt(text):
        return of({"prompt": text}, path="/v1/completions")

    assert prompt("x" * 1024 + "a") == prompt("x" * 1024 + "b") != prompt("x" * 1023 + "b")
    assert of(prompt="x" * 2000) == prompt("x" * 1024)


def test_of_token_ids_the_first_256_count():
    def prompt(ids):
        return of({"prompt": ids}, path="/v1/completions")

    assert prompt([7] * 256 + [1]) == prompt([7] * 256 + [2]) != prompt([7] * 255 + [2])
    assert of(token_ids=[7] * 300) == prompt([7] * 256)


def test_what_says_nothing_has_none():
    assert of() is None
    assert of({"model": "m"}) is None
    assert testing.conversation_of([], body="no JSON") is None
    assert of(session_id="  ") is None
