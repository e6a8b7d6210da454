"""cpp/routing/session_names.h: what agents say of their conversations."""

import pytest

from vllm_router import _core_testing as testing

names = testing.session_names


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([("X-Claude-Code-Session-Id", "s"), ("X-Claude-Code-Agent-Id", "a")], ("s", "", "a")),
        ([("session-id", "s"), ("thread-id", "s")], ("s", "", "")),
        ([("thread-id", "t"), ("x-codex-parent-thread-id", "s"), ("session-id", "s")], ("s", "s", "t")),
        ([("x-session-affinity", "t"), ("x-parent-session-id", "s"), ("x-session-id", "t")], ("t", "s", "")),
        ([("X-User-ID", "u"), ("X-Request-ID", "r"), ("X-Client-Request-ID", "c")], ("", "", "")),
    ],
    ids=["claude_code_subagent", "codex_first_thread", "codex_subagent", "opencode_subagent", "nobody"],
)
def test_each_agents_headers_are_read(headers, found):
    assert names(headers) == names(headers[::-1]) == found


def test_the_best_name_counts_and_of_equal_ones_the_first():
    assert names([("session-id", "b"), ("x-session-id", "a")])[0] == "a"
    assert names([("session-id", "b"), ("x-session-id", " ")])[0] == "b"
    assert names([("x-session-id", " a\t"), ("X-Session-ID", "c")])[0] == "a"
    assert names([("x-session-id", ""), ("x-session-id", "c"), ("session-id", "b")])[0] == "b"


def test_a_name_that_is_too_long_is_none():
    assert names([("x-session-id", "s" * 256)])[0] == "s" * 256
    assert names([("x-session-id", "s" * 257), ("session-id", "b")])[0] == "b"


def written(name):
    """A name as clients write it: small, in capitals, and with the first letter of each word as one."""
    return [name, name.upper(), name.title()]


SESSIONS = [
    "x-session-id", "x-claude-code-session-id", "session-id", "session_id", "x-session-affinity",
    "x-opencode-session", "conversation_id", "x-dynamo-session-id", "x-smg-routing-key",
]  # fmt: skip


@pytest.mark.parametrize("name", SESSIONS)
def test_every_name_of_a_session_counts_in_any_case(name):
    # The others are as long as some of the names, or end as they do.
    others = [("content-type", "c"), ("user-agent", "u"), ("x-order-id", "o"), ("x", "x"), ("d" * 40, "d")]
    for spelling in written(name):
        assert names([*others, (spelling, "s")]) == ("s", "", "")


@pytest.mark.parametrize("name", ["x-parent-session-id", "x-codex-parent-thread-id"])
def test_every_name_of_a_parent_counts_in_any_case(name):
    for spelling in written(name):
        assert names([(spelling, "p")]) == ("", "p", "")


@pytest.mark.parametrize("name", ["x-claude-code-agent-id", "thread-id"])
def test_every_name_of_an_agent_counts_in_any_case(name):
    for spelling in written(name):
        assert names([(spelling, "a")]) == ("", "", "a")
