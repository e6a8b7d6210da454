"""cpp/proxy/admin/replies.h: the forms of a reply, and parameters that a page depends on."""

import json

from tests.fakes.harness import error_of


def test_texts_json_and_errors_have_their_content_types(harness):
    client = harness.client(harness.router())
    assert client.ask("GET", "/liveness").get("content-type") == "text/plain; charset=utf-8"
    assert client.ask("GET", "/list_workers").get("content-type") == "application/json"
    assert error_of(client.ask("GET", "/admin/nothing"))["code"] == "not_found"


def test_a_parameter_is_decoded_and_one_that_is_given_twice_is_rejected(harness):
    client = harness.client(harness.router())
    message = error_of(client.ask("GET", "/admin/drain/status?url=a%20b"))["message"]
    assert 'worker "a b"' in message
    assert json.loads(client.ask("GET", "/admin/drain/status?x=y").body) == {"workers": []}
    twice = client.ask("GET", "/admin/drain/status?url=a&url=b")
    assert (twice.status, "given more than once" in error_of(twice)["message"]) == (400, True)
