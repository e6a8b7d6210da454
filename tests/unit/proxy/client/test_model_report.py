"""cpp/proxy/client/model_report.h: a worker's list of models."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router._core_testing import models_in_report


def listed(*cards):
    return models_in_report(json.dumps({"object": "list", "data": list(cards)}))


def test_cards_as_engines_write_them():
    base = {"id": "m", "object": "model", "created": 1, "owned_by": "vllm", "root": "/m", "parent": None}
    adapter = {"id": "sql", "root": "/lora", "parent": "m", "permission": [{"id": "p"}]}
    assert listed({**base, "max_model_len": 4096}, adapter) == [
        ("m", "", "/m", 4096),
        ("sql", "m", "/lora", 0),
    ]
    assert listed() == []


def test_llama_cpp_tells_its_context_beside():
    assert listed({"id": "m", "meta": {"n_ctx": 8192, "n_ctx_train": 131072}}) == [("m", "", "", 8192)]
    assert listed({"id": "m", "meta": None, "max_model_len": 7}, {"id": "n", "meta": {"n_ctx": "x"}}) == [
        ("m", "", "", 7),
        ("n", "", "", 0),
    ]


@pytest.mark.parametrize(
    "card",
    [
        1,
        None,
        [],
        {},
        {"id": 1},
        {"id": ""},
        {"id": "a\n"},
        {"id": "n" * 257},
        {"name": "a"},
        {"id": {"id": "a"}},
    ],
)
def test_what_is_no_card_is_left_out(card):
    assert listed(card, {"id": "a"}) == [("a", "", "", 0)]


@pytest.mark.parametrize(
    ("more", "row"),
    [
        ({"parent": 1, "root": [], "max_model_len": "9"}, ("a", "", "", 0)),
        ({"parent": "a"}, ("a", "", "", 0)),
        ({"parent": "p\n", "root": "r" * 300, "max_model_len": -1}, ("a", "", "", 0)),
        ({"max_model_len": 2**63}, ("a", "", "", 2**63)),
    ],
)
def test_other_members_of_the_wrong_type_count_as_absent(more, row):
    assert listed({"id": "a", **more}) == [row]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "1", '{"data": {}}', '{"object": "list"}', "<html>", "[" * 5000]
)
def test_what_is_no_report_is_none(text):
    assert models_in_report(text) is None


@given(st.text(max_size=100))
def test_no_text_breaks_it(text):
    assert models_in_report(text) is None or text
