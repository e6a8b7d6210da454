"""cpp/routing/response_id.h: which stored response a request names, and a response is."""

import json

import pytest

from vllm_router import _core_testing as testing

# As vLLM 0.32 writes them.
CREATED = (
    b"event: response.created\n"
    b'data: {"response":{"id":"resp_4f","created_at":1,"instructions":null},"sequence_number":0,'
    b'"type":"response.created"}\n\n'
)


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/v1/responses/resp_1", "resp_1"),
        ("/v1/responses/resp_1/cancel", "resp_1"),
        ("/v1/responses/resp_1/", "resp_1"),
        ("/v1/responses/" + "x" * 256, "x" * 256),
        ("/v1/responses/" + "x" * 257, ""),
        ("/v1/responses/", ""),
        ("/v1/responses", ""),
        ("/v2/responses/a", ""),
    ],
)
def test_of_a_path(path, expected):
    assert testing.response_id_of_path(path) == expected


def test_what_a_user_writes_is_no_id():
    body = {"input": 'a "previous_response_id": "no"', "metadata": {"previous_response_id": "no"}}
    assert testing.previous_response_id(json.dumps(body).encode()) is None
    body["previous_response_id"] = "yes"
    assert testing.previous_response_id(json.dumps(body).encode()) == b"yes"
    twice = b'{"previous_response_id": "first", "previous_response_id": "last"}'
    assert testing.previous_response_id(twice) == b"last", "as in Python's json"
    assert testing.previous_response_id(b'{"previous_response_id": "cut') is None
    assert testing.previous_response_id(b'["previous_response_id"]') is None
    assert testing.previous_response_id(b"previous_response_id") is None


def test_of_a_stream_as_soon_as_it_is_whole():
    assert testing.response_id_of(CREATED, True) == b"resp_4f"
    whole = CREATED.index(b"resp_4f") + len(b'resp_4f"')
    assert testing.response_id_of(CREATED[:whole], True) == b"resp_4f"
    assert testing.response_id_of(CREATED[: whole - 1], True) is None
    assert testing.response_id_of(CREATED, False) is None


def test_of_a_response():
    assert testing.response_id_of(b'{"id":"resp_4f","output":[{"id":"msg_1"}]}', False) == b"resp_4f"
    assert testing.response_id_of(b'{"output":[{"id":"msg_1"}]', False) is None
    assert testing.response_id_of(b"", False) is None


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
    """Row 18: as Python's json reads it."""
    body = f'{mark}{{"input": "hi \\u4e2d", "{name}": "resp_1"}}'.encode()
    assert json.loads(body)["previous_response_id"] == "resp_1"
    assert testing.previous_response_id(body) == b"resp_1"


@pytest.mark.parametrize(
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


def test_a_plain_id_cannot_leave_its_place_in_a_request_line():
    assert all(testing.is_plain_id(name) for name in ["resp_4f", "my-own.1", "pair:[::1]:80", "A_" * 100])
    for name in ["", ".", "..", ".x", "a/b", "a b", "a\r\nb", "a\0", "a%2e", "a?b", "a#b", "\u00e9"]:
        assert not testing.is_plain_id(name), name
