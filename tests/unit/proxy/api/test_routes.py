"""The table of paths, and which of them is meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

ROUTES = testing.routes()
INFERENCE = [
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/generate",
    "/inference/v1/generate",
    "/rerank",
    "/v1/rerank",
    "/v1/responses",
    "/v1/responses/input_tokens",
    "/v1/responses/compact",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/score",
    "/v1/score",
    "/v2/rerank",
    "/classify",
    "/pooling",
    "/v2/embed",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/audio/speech",
    "/invocations",
    "/tokenize",
    "/detokenize",
]


def test_every_route_has_its_own_label():
    labels = [route["label"] for route in ROUTES]
    assert len(set(labels)) == len(labels)


def test_a_route_is_answered_here_or_by_a_worker():
    assert [route["label"] for route in ROUTES if route["inference"]] == INFERENCE
    assert not any(route["own"] and route["inference"] for route in ROUTES)
    assert all(bool(route["allow"]) == route["own"] for route in ROUTES)
    assert all(route["inference"] for route in ROUTES if route["generates"])
    assert all(route["computes"] for route in ROUTES if route["generates"])
    at_once = {"/tokenize", "/detokenize", "/v1/messages/count_tokens", "/v1/responses/input_tokens"}
    assert {route["label"] for route in ROUTES if route["inference"] and not route["computes"]} == at_once


@for_each_row("route", ROUTES, ids=lambda route: route["label"])
def test_a_path_finds_the_route_named_after_it(route):
    assert testing.find_route(route["label"])["label"] == route["label"]


@for_each_row(
    ("path", "label"),
    [
        ("/workers/http%3A%2F%2Fa%3A8000", "/workers/{url}"),
        ("/workers/", "other"),
        ("/admin", "/admin/{path}"),
        ("/admin/", "/admin/{path}"),
        ("/admin/drain/", "/admin/{path}"),
        ("/admin/reload/", "/admin/{path}"),
        ("/administration", "other"),
        ("/v1/models/", "other"),
        ("/v1/models/org/a%20b", "/v1/models/{id}"),
        ("/V1/models", "other"),
        ("/v1/chat/completions/x", "other"),
        ("/v1/responses/compact/x", "/v1/responses/{id}"),
        ("/v1/responses/resp_1/input_items", "/v1/responses/{id}"),
        ("/v1/responses/", "other"),
        ("/v1/conversations/conv_1", "/v1/conversations/{id}"),
        ("/v1/conversations/conv_1/items/msg_1", "/v1/conversations/{id}"),
        ("/v1/conversations/", "other"),
        ("/v1/conversation", "other"),
        ("//", "other"),
        ("/.", "other"),
        ("", "other"),
    ],
)
def test_nearly_the_same_path_is_another(path, label):
    assert testing.find_route(path)["label"] == label


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E)))
def test_any_path_has_one_of_the_labels(path):
    assert testing.find_route("/" + path)["label"] in {route["label"] for route in ROUTES}


@pytest.mark.parametrize(
    ("allow", "method", "allowed"),
    [
        ("GET, HEAD", "GET", True),
        ("GET, HEAD", "HEAD", True),
        ("GET, HEAD", "POST", False),
        ("GET, HEAD", "get", False),
        ("GET, HEAD", "GE", False),
        ("GET, HEAD", "", False),
        ("POST", "POST", True),
        ("", "GET", False),
    ],
)
def test_a_method_is_allowed_when_it_is_in_the_list(allow, method, allowed):
    assert testing.method_allowed(allow, method) is allowed


def test_two_routes_have_anthropics_errors():
    own = [route["label"] for route in ROUTES if route["anthropic"]]
    assert own == ["/v1/messages", "/v1/messages/count_tokens"]
