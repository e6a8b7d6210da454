"""cpp/routing/routing_text_reader.h: what is no prompt is none, and costs nothing else."""

import json

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


@for_each_row(
    "body",
    [
        '{"messages": "hello"}',
        '{"messages": {"role": "user"}}',
        '{"messages": [1]}',
        '{"messages": [[]]}',
        '{"messages": [{"role": 1, "content": "x"}]}',
        '{"messages": [{"role": "user", "content": 1}]}',
        '{"messages": [{"role": "user", "content": [1]}]}',
        '{"messages": [{"role": "user", "content": "\\ud800"}]}',
        '{"messages": [{"role": "user", "content": "x"}], "system": 1}',
        '{"prompt": [1, "a"]}',
        '{"prompt": [-1]}',
        '{"prompt": [4294967296]}',
        '{"prompt": [1.5]}',
        '{"prompt": [[["a"]]]}',
        '{"prompt": [{}]}',
        '{"prompt": [true]}',
    ],
)
def test_what_no_engine_would_take_is_no_prompt_and_the_rest_of_the_body_counts(body):
    assert testing.routing_text(body) is None
    with_user = json.loads(json.dumps(body))[:-1] + ', "user": "ann"}'
    assert testing.request_fields(with_user)["user"] == "ann"


@for_each_row(
    "body",
    [
        "",
        "[]",
        '"x"',
        '{"messages": [',
        '{"messages": [{"role": "user", "content": "x"}',
        '{"messages": [{"role": "user", "content": "x"}]} x',
        '{"messages": [{"role": "user" "content": "x"}]}',
        '{"messages": [{"role": "user", "content": "x"},]',
        '{"prompt": "x"',
        '{"prompt": [1, 2}',
        b'{"prompt": "\xff"}',
    ],
)
def test_a_body_that_does_not_hold_together_has_no_prompt(body):
    assert testing.routing_text(body) is None


def test_deep_nesting_neither_crashes_nor_counts():
    deep = "[" * 2000 + "]" * 2000
    for member in ("prompt", "messages", "tools", "x"):
        testing.routing_text(f'{{"{member}": {deep}, "prompt": "p"}}')


def test_every_cut_of_a_body_is_answered_without_reading_past_it():
    body = json.dumps(
        {
            "messages": [
                {"role": "system", "content": "Be kind."},
                {
                    "role": "user",
                    "content": [{"type": "image_url", "image_url": {"url": "data:a;base64,AAAA"}}],
                },
                {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{}"}}]},
            ],
            "tools": [{"a": [1, {"b": None}]}],
            "documents": [{"text": "d"}],
        }
    )
    assert testing.routing_text(body) is not None
    for cut in range(len(body)):
        assert testing.routing_text(body[:cut]) is None
        assert testing.routing_text(body[:cut], padded=False) is None
