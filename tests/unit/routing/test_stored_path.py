"""cpp/routing/stored_path.h: which stored response or conversation a request names, and a response is."""

import json

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


@for_each_row(
    ("path", "expected"),
    [
        ("/v1/responses/resp_1", "/v1/responses/resp_1"),
        ("/v1/responses/resp_1/cancel", "/v1/responses/resp_1"),
        ("/v1/responses/resp_1/", "/v1/responses/resp_1"),
        ("/v1/responses/" + "x" * 256, "/v1/responses/" + "x" * 256),
        ("/v1/responses/" + "x" * 257, ""),
        ("/v1/responses/", ""),
        ("/v1/responses", ""),
        ("/v1/responsesx/a", ""),
        ("/v1/responses/compact", ""),
        ("/v1/responses/input_tokens", ""),
        ("/v1/conversations/conv_1", "/v1/conversations/conv_1"),
        ("/v1/conversations/conv_1/items/msg_1", "/v1/conversations/conv_1"),
        ("/v1/conversations/compact", "/v1/conversations/compact"),
        ("/v1/conversations//items", ""),
        ("/v1/conversations", ""),
        ("/v2/responses/a", ""),
        ("", ""),
    ],
)
def test_of_a_path(path, expected):
    assert testing.stored_path_of(path) == expected


def test_what_engines_make_begins_with_its_kind():
    made = ["/v1/responses/resp_1", "/v1/conversations/conv_1"]
    assert [testing.looks_stored(path) for path in made] == [True, True]
    other = [
        "/v1/responses/conv_1",
        "/v1/conversations/resp_1",
        "/v1/responses/render",
        "/v1/conversations/a",
    ]
    assert [testing.looks_stored(path) for path in other] == [False] * 4


def continued(body):
    found = testing.continued_path(json.dumps(body).encode() if isinstance(body, dict) else body)
    return None if found is None else found.decode()


def test_what_a_user_writes_is_no_id():
    body = {"input": 'a "previous_response_id": "no"', "metadata": {"previous_response_id": "no"}}
    assert continued(body) is None
    body["previous_response_id"] = "yes"
    assert continued(body) == "/v1/responses/yes"
    twice = b'{"previous_response_id": "first", "previous_response_id": "last"}'
    assert continued(twice) == "/v1/responses/last", "as in Python's json"
    assert continued(b'{"previous_response_id": "cut') is None
    assert continued(b'["previous_response_id"]') is None
    assert continued(b"previous_response_id") is None


@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize(
    "name",
    [
        "previous_response_id",
        r"\u0070revious_response_id",
        r"previous\u005fresponse_i\u0064",
        "".join(f"\\u{ord(c):04X}" for c in "previous_response_id"),
    ],
)
def test_however_its_name_is_spelled(mark, name):
    body = f'{mark}{{"input": "hi \\u4e2d", "{name}": "resp_1"}}'.encode()
    assert json.loads(body)["previous_response_id"] == "resp_1"
    assert testing.continued_path(body) == b"/v1/responses/resp_1"


@for_each_row(
    ("body", "nothing"),
    [
        ('{"store":false}', True),
        ('{"input": "x", "store" : false, "stream": true}', True),
        ('{"store": true, "store": false}', True),
        ('{"store": false, "store": true}', False),
        ('{"store": true}', False),
        ('{"store": "false"}', False),
        ('{"input": "x"}', False),
        ('{"metadata": {"store": false}}', False),
        ('{"input": "\\"store\\":false"}', False),
        ('{"store": fal', False),
        ("", False),
    ],
)
def test_a_response_that_is_not_stored_says_so_at_the_top(body, nothing):
    assert testing.stores_nothing(body) is nothing


@pytest.mark.parametrize("collection", ["/v1/responses/", "/v1/conversations/"])
def test_a_plain_id_cannot_leave_its_place_in_a_request_line(collection):
    for name in ["resp_4f", "my-own.1", "pair:[::1]:80", "A_" * 100]:
        assert testing.has_plain_id(collection + name), name
    for name in ["", ".", "..", ".x", "a/b", "a b", "a\r\nb", "a\0", "a%2e", "a?b", "a#b", "\u00e9"]:
        assert not testing.has_plain_id(collection + name), name
