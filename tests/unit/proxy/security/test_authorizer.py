"""Which key a request brings. Who gets in with it is the matter of tests/proxy/test_keys.py."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


@for_each_row(
    ("fields", "key"),
    [
        ([], ""),
        ([("Accept", "*/*")], ""),
        ([("Authorization", "Bearer k")], "k"),
        ([("AUTHORIZATION", "bEARER   k ")], "k"),
        ([("x-api-key", "k")], "k"),
        ([("X-API-Key", "other"), ("Authorization", "Bearer k")], "k"),
        ([("Authorization", "Basic k")], None),
        ([("Authorization", "")], None),
        ([("Authorization", "Bearer")], None),
        ([("Authorization", "Bearer a"), ("Authorization", "Bearer a")], None),
        ([("x-api-key", "a"), ("x-api-key", "a")], None),
        ([("Authorization", "Basic k"), ("x-api-key", "k")], None),
        ([("x-api-keys", "k"), ("authorizatiom", "Bearer k"), ("api-kez", "k")], ""),
        ([("api-key", "k")], "k"),
        ([("Api-Key", "other"), ("x-api-key", "k")], "k"),
        ([("api-key", "other"), ("Authorization", "Bearer k")], "k"),
        ([("api-key", "a"), ("api-key", "a")], None),
        ([("Authorization", "Basic k"), ("api-key", "k")], None),
        ([("Sec-WebSocket-Protocol", "openai-insecure-api-key.k")], ""),
    ],
)
def test_the_key_of_a_request(fields, key):
    assert testing.key_of(fields) == key


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ([("Sec-WebSocket-Protocol", "realtime, openai-insecure-api-key.k, openai-beta.realtime-v1")], "k"),
        (
            [
                ("sec-websocket-protocol", "realtime"),
                ("Sec-WebSocket-Protocol", "openai-insecure-api-key.k"),
            ],
            "k",
        ),
        ([("Sec-WebSocket-Protocol", "openai-insecure-api-key.a, openai-insecure-api-key.b")], None),
        ([("Sec-WebSocket-Protocol", "openai-insecure-api-key.a")] * 2, None),
        ([("Sec-WebSocket-Protocol", "realtime")], ""),
        ([("Sec-WebSocket-Protocol", "openai-insecure-api-key.")], ""),
        ([("Sec-WebSocket-Protocol", "openai-insecure-api-key.a"), ("Authorization", "Bearer k")], "k"),
        ([("Sec-WebSocket-Protocol", "openai-insecure-api-key.a"), ("api-key", "k")], "k"),
    ],
)
def test_the_key_of_a_websocket(fields, key):
    """Row 28: a page cannot set headers of its WebSocket, so OpenAI's clients send the key so."""
    assert testing.key_of(fields, websocket=True) == key
