"""cpp/http/websocket_protocols.h: the key that OpenAI's clients in browsers send as a subprotocol."""

import pytest

from vllm_router import _core_testing as testing

KEY = "openai-insecure-api-key."


@pytest.mark.parametrize(
    ("value", "key", "rest"),
    [
        ("", "", ""),
        ("realtime", "", "realtime"),
        (KEY + "sk-1", "sk-1", ""),
        (f"realtime, {KEY}sk-1, openai-beta.realtime-v1", "sk-1", "realtime, openai-beta.realtime-v1"),
        (f"{KEY}sk-1,realtime", "sk-1", "realtime"),
        (f" ,, {KEY}sk-1 ,\trealtime ,", "sk-1", "realtime"),
        (f"OpenAI-Insecure-API-Key.K, a.{KEY}x", "K", f"a.{KEY}x"),
        (KEY, "", ""),
        (f"{KEY}a, {KEY}b, c", None, "c"),
        (f"{KEY}a, {KEY}a", None, ""),
    ],
)
def test_a_key_is_read_and_does_not_go_on(value, key, rest):
    assert testing.key_of_protocols(value) == key
    assert testing.protocols_without_keys(value) == rest
