"""cpp/proxy/admin/fleet_call.h: how the arguments of calls that change the fleet are read."""

import json

import pytest


def removed(harness, query):
    """The URL that /remove_worker understands from a query."""
    client = harness.client(harness.router())
    answer = client.ask("POST", f"/remove_worker?{query}")
    return answer.body.decode() if answer.status == 200 else json.loads(answer.body)["error"]["message"]


@pytest.mark.parametrize(
    "query",
    [
        "url=http://a:1",
        "url=http%3A%2F%2Fa%3A1",
        "url=http%3a%2f%2fa%3a1",
        "x=y&url=http://a:1",
        "url=http://a:1&x=y",
        "&&url=http://a:1&",
        "url2=http://b:2&url=http://a:1",
    ],
)
def test_the_url_is_found_in_the_query_and_decoded(harness, query):
    assert "http://a:1" in removed(harness, query)


@pytest.mark.parametrize("query", ["url", "url=", "Url=http://a", "xurl=http://a", ""])
def test_a_query_without_a_usable_url_says_what_is_missing(harness, query):
    assert "'url' is missing" in removed(harness, query)


@pytest.mark.parametrize("value", ["%4", "%4g", "%", "http://a%zz"])
def test_a_url_that_is_badly_encoded_is_quoted_back(harness, value):
    assert f"'url' is \"{value}\", which has a '%' without two hexadecimal digits" in removed(
        harness, f"url={value}"
    )


def test_of_two_urls_none_is_dropped_silently(harness):
    assert "'url' is given more than once" in removed(harness, "url=http://a:1&x=y&url=http://a:1")


def test_a_plus_is_a_blank_in_a_query_and_itself_in_a_path(harness):
    client = harness.client(harness.router())
    assert "a b" in removed(harness, "url=a+b")
    assert "a+b" in json.loads(client.ask("GET", "/workers/a+b").body)["error"]
