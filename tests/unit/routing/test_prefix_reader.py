"""cpp/routing/prefix_reader.h: hostile bodies, and the same answer however the body is read."""

import json

import pytest

from vllm_router import _core_testing as testing

BODY = json.dumps(
    {
        "model": "m",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "image", "source": {}}]},
            {"content": [{"text": "Be kind.", "type": "text"}], "role": "system"},
            {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]},
        ],
        "prompt": "p",
        "tools": [{"a": [1, {"b": None}]}],
    }
)


def test_every_cut_of_a_body_is_answered_without_reading_past_it():
    assert testing.prefix_anchor(BODY) == ("S", b"Be kind.")
    for cut in range(len(BODY)):
        assert testing.prefix_anchor(BODY[:cut]) is None
        assert testing.prefix_anchor(BODY[:cut], padded=False) is None


def test_the_digest_beside_a_routing_text_is_the_digest_alone():
    assert testing.prefix_anchor(BODY, with_text=True) == testing.prefix_anchor(BODY)


@pytest.mark.parametrize(
    "messages",
    [
        '[{"role": "user" "content": "x"}]',
        '[{"role": "user", "content": ["x" "y"]}]',
        '[{"role": "user", "content": "x"} {"role": "user"}]',
        '[{"role": "user", "content": [{"type": "text", "text": 5}]}]',
        '[{"role": 7, "content": "x"}]',
        '[["role"]]',
    ],
)
def test_messages_that_do_not_hold_together_have_no_anchor(messages):
    assert testing.prefix_anchor(f'{{"messages": {messages}}}') is None


def test_deep_nesting_neither_crashes_nor_counts():
    deep = "[" * 2000 + "]" * 2000
    for member in ("prompt", "messages", "system", "x"):
        testing.prefix_anchor(f'{{"{member}": {deep}, "prompt": "p"}}')


def test_strings_that_are_mostly_escapes_fit_where_they_are_unescaped():
    # Each string is read once, so what is unescaped never outgrows the body.
    name = "\\u0061" + "b" * 400
    part = f'{{"{name}": 1, "type": "text", "text": "{name}"}}'
    message = f'{{"{name}": 1, "content": [{part}, {part}], "role": "user"}}'
    anchor = testing.prefix_anchor(f'{{"messages": [{", ".join([message] * 200)}]}}')
    assert anchor == ("M", ("a" + "b" * 400).encode() * 2)


def test_a_role_that_changes_after_its_content_was_passed_over_leaves_no_anchor():
    twice = (
        '{"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": "b", "role": "system"}]}'
    )
    assert testing.prefix_anchor(twice) is None


@pytest.mark.parametrize("bad", ['"prompt": [1, "a"]', '"input": [{"role": 1}]', '"messages": [5]'])
def test_what_is_broken_counts_for_nothing_where_a_better_form_or_the_same_once_more_is_there(bad):
    good = '"messages": [{"role": "user", "content": "x"}]'
    assert testing.prefix_anchor(f"{{{bad}, {good}}}") == ("M", b"x")
    if "messages" not in bad:
        assert testing.prefix_anchor(f"{{{good}, {bad}}}") == ("M", b"x")
    assert testing.prefix_anchor(f'{{"system": 5, {good}, "system": "s"}}') == ("S", b"s")
    assert testing.prefix_anchor(f'{{"system": "s", {good}, "system": 5}}') is None


@pytest.mark.parametrize("torn", ['"input": [[1, 2], [3:],]]', '"prompt": [1 2]', '"messages": [{"role"]}'])
def test_nobody_reads_on_behind_a_value_that_does_not_hold_together(torn):
    # What follows the body in its buffer must not decide: here it would close what was left open.
    body = f'{{{torn}, "messages": [{{"role": "user", "content": "x"}}]'
    for padded in (False, True):
        assert testing.prefix_anchor(body + "}", padded=padded) is None
        assert testing.prefix_anchor(body, padded=padded) is None
