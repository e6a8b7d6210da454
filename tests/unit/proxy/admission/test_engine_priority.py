"""cpp/proxy/admission/engine_priority.h: what an engine gets, and what the client's own member becomes."""

import json

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

BODY = b'{"model": "m", "prompt": "hi"}'
OWN = b'{"prompt": "hi", "priority": -999, "n": 1}'


@for_each_row(
    ("engine", "of_class", "body", "expected"),
    [
        ("vllm", "batch", BODY, b'{"model": "m", "priority":10,"prompt": "hi"}'),
        ("vllm", "interactive", BODY, b'{"model": "m", "priority":-10,"prompt": "hi"}'),
        ("vllm", "default", BODY, BODY),
        ("sglang", "batch", BODY, b'{"model": "m", "priority":-10,"prompt": "hi"}'),
        ("sglang-low-first", "batch", BODY, b'{"model": "m", "priority":10,"prompt": "hi"}'),
        ("vllm batch=7", "batch", b'{"messages":[]}', b'{"priority":7,"messages":[]}'),
        ("vllm", "batch", OWN, OWN),
        ("vllm client=clamp", "batch", OWN, OWN.replace(b"-999", b"10")),
        ("sglang client=clamp", "batch", OWN, OWN),
        ("vllm client=clamp", "batch", OWN.replace(b"-999", b"11"), OWN.replace(b"-999", b"11")),
        ("sglang client=clamp", "batch", OWN.replace(b"-999", b"999"), OWN.replace(b"-999", b"-10")),
        ("vllm client=clamp", "default", OWN.replace(b"-999", b'"0"'), OWN.replace(b"-999", b"0")),
        ("vllm client=clamp", "batch", OWN.replace(b"-999", b"-1e9"), OWN.replace(b"-999", b"10")),
        ("vllm client=replace", "default", OWN, OWN.replace(b"-999", b"0")),
        ("vllm client=replace", "batch", b"[1]", b"[1]"),
        ("vllm", "batch", b'{"input": 1}', b'{"input": 1}'),
    ],
)
def test_what_the_engine_gets(engine, of_class, body, expected):
    assert testing.priority_edits(body, f"engine {engine}", of_class) == expected


@pytest.mark.parametrize("spelling", ["priority", "pri\\u006frity"])
def test_no_second_member_of_the_name_escapes_the_clamp(spelling):
    body = f'{{"priority": 50, "prompt": "hi", "{spelling}": -50}}'.encode()
    made = json.loads(
        testing.priority_edits(body, "engine vllm client=clamp", "batch"),
        object_pairs_hook=lambda pairs: pairs,
    )
    assert [value for name, value in made if name == "priority"] == [10, 10]
