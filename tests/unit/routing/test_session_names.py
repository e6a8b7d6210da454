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
