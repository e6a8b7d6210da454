"""Browsers: what pages of other origins may do."""

import pytest

from tests.fakes.harness import error_of
from tests.fakes.wire import response

PAGE = ("Origin", "https://chat.example")
OTHER = ("Origin", "https://evil.example")
NAMED = {"cors_allowed_origins": ["https://chat.example", "http://localhost:3000"]}


def preflight(client, target, origin, method="POST"):
    return client.ask(
        "OPTIONS",
        target,
        origin,
        ("Access-Control-Request-Method", method),
        ("Access-Control-Request-Headers", "authorization,content-type,x-session-id"),
    )


def cors_of(message):
    return {
        name.lower(): value
        for name, value in message.fields
        if name.lower().startswith("access-control-") or name.lower() == "vary"
    }


ANY = {"access-control-allow-origin": "*", "access-control-expose-headers": "*"}


def test_no_page_may_read_where_no_origins_are_named(harness):
    """mending row 8: without --cors-allowed-origins every page was told that it may."""
    worker = harness.worker(
        lambda connection, _: connection.send(
            response(200, b"{}", ("Access-Control-Allow-Origin", "*"), ("Vary", "Accept"))
        )
    )
    client = harness.client(harness.router(worker))
    assert cors_of(preflight(client, "/v1/chat/completions", PAGE)) == {}
    assert worker.requests == []
    assert cors_of(client.ask("POST", "/v1/chat/completions", PAGE, body=b"{}")) == {"vary": "Accept"}
    assert cors_of(client.ask("GET", "/liveness", PAGE)) == {}


def test_any_page_may_call_where_any_origin_is_allowed(harness):
    worker = harness.worker(
        lambda connection, _: connection.send(
            response(200, b"{}", ("Access-Control-Allow-Origin", "https://x"), ("Vary", "Accept"))
        )
    )
    client = harness.client(harness.router(worker, cors_allowed_origins=["*"]))
    asked = preflight(client, "/v1/chat/completions", PAGE)
    assert asked.status == 200
    assert cors_of(asked) == {
        "access-control-allow-origin": "*",
        "access-control-allow-methods": "*",
        "access-control-allow-headers": "*, authorization",
        "access-control-max-age": "3600",
    }
    assert worker.requests == []
    answer = client.ask("POST", "/v1/chat/completions", PAGE, body=b"{}")
    assert cors_of(answer) == {**ANY, "vary": "Accept"}
    assert cors_of(client.ask("GET", "/liveness", PAGE)) == ANY


def test_only_named_origins_are_told_that_they_may(harness):
    worker = harness.worker(
        lambda connection, _: connection.send(
            response(200, b"{}", ("Access-Control-Allow-Origin", "*"), ("Vary", "Accept"))
        )
    )
    client = harness.client(harness.router(worker, **NAMED))
    asked = preflight(client, "/v1/chat/completions", PAGE)
    assert cors_of(asked) == {
        "vary": "Origin, Access-Control-Request-Method, Access-Control-Request-Headers",
        "access-control-allow-origin": "https://chat.example",
        "access-control-allow-methods": "GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS",
        "access-control-allow-headers": "authorization,content-type,x-session-id",
        "access-control-max-age": "3600",
    }
    answer = client.ask("POST", "/v1/chat/completions", PAGE, body=b"{}")
    assert answer.get("access-control-allow-origin") == "https://chat.example"
    assert answer.get("access-control-expose-headers") == "*"
    assert answer.all("vary") == ["Accept", "Origin"]

    refused = preflight(client, "/v1/chat/completions", OTHER)
    assert (refused.status, list(cors_of(refused))) == (200, ["vary"])
    answer = client.ask("POST", "/v1/chat/completions", OTHER, body=b"{}")
    assert answer.get("access-control-allow-origin") is None
    assert answer.all("vary") == ["Accept", "Origin"]


def test_who_is_no_browser_gets_nothing_of_it_and_the_workers_own(harness):
    worker = harness.worker(
        lambda connection, _: connection.send(response(200, b"{}", ("Access-Control-Allow-Origin", "x")))
    )
    client = harness.client(harness.router(worker))
    assert cors_of(client.ask("GET", "/x")) == {"access-control-allow-origin": "x"}
    assert cors_of(client.ask("GET", "/liveness")) == {}


@pytest.mark.parametrize("path", ["/workers", "/add_worker", "/admin/index/stats"])
def test_the_fleet_is_for_named_origins_only(harness, path):
    anybody = harness.client(harness.router(cors_allowed_origins=["*"]))
    named = harness.client(harness.router(**NAMED))
    assert cors_of(preflight(anybody, path, PAGE)) == {}
    assert cors_of(anybody.ask("GET", path, PAGE)) == {}
    assert preflight(named, path, PAGE).get("access-control-allow-origin") == PAGE[1]
    assert named.ask("GET", path, PAGE).get("access-control-allow-origin") == PAGE[1]


def test_a_preflight_needs_no_key_and_a_refusal_can_be_read_by_the_page(harness, tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("sk-one")
    client = harness.client(harness.router(harness.worker(), client_api_key_file=str(keys), **NAMED))
    assert preflight(client, "/v1/chat/completions", PAGE).status == 200
    answer = client.ask("POST", "/v1/chat/completions", PAGE, body=b"{}")
    assert (answer.status, error_of(answer)["code"]) == (401, "missing_api_key")
    assert answer.get("access-control-allow-origin") == PAGE[1]


def test_options_that_are_no_preflight_go_where_they_went(harness):
    worker = harness.worker()
    client = harness.client(harness.router(worker))
    assert client.ask("OPTIONS", "/x").body == b"hello"
    assert client.ask("OPTIONS", "/x", PAGE).body == b"hello"
    assert client.ask("OPTIONS", "/workers").status == 405


def may_call(client, method, path, headers):
    """What a browser concludes from the response to its preflight (Fetch, 4.8), for a page that is named."""
    answer = client.ask(
        "OPTIONS",
        path,
        PAGE,
        ("Access-Control-Request-Method", method),
        ("Access-Control-Request-Headers", headers),
    )
    granted = {name.strip().lower() for name in (answer.get("access-control-allow-headers") or "").split(",")}
    methods = {name.strip() for name in (answer.get("access-control-allow-methods") or "").split(",")}
    return (
        answer.get("access-control-allow-origin") == PAGE[1]
        and (method in methods or method in ("GET", "HEAD", "POST"))
        and set(headers.split(",")) <= granted
    )


STAINLESS = ",".join(
    f"x-stainless-{name}"
    for name in [
        "arch",
        "lang",
        "os",
        "package-version",
        "retry-count",
        "runtime",
        "runtime-version",
        "timeout",
    ]
)
OPENAI = "authorization,content-type," + STAINLESS
ANTHROPIC = "anthropic-dangerous-direct-browser-access,anthropic-version,content-type,x-api-key," + STAINLESS


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("POST", "/v1/chat/completions", OPENAI),
        ("GET", "/v1/models", OPENAI),
        ("DELETE", "/v1/responses/resp_1", OPENAI),
        ("POST", "/v1/messages", ANTHROPIC + ",anthropic-beta"),
        ("POST", "/v1/chat/completions", "api-key,content-type"),
        ("POST", "/v1/chat/completions", "content-type,x-claude-code-session-id,x-session-id"),
        ("PUT", "/anything", "x-my-own"),
        ("DELETE", "/workers/http%3A%2F%2Fa", "authorization"),
        ("POST", "/admin/drain", "authorization,content-type"),
    ],
)
def test_a_named_page_may_call_with_what_its_sdk_sends(harness, method, path, headers):
    """Row 26: a named origin was granted two headers and two methods, so no SDK worked in a browser."""
    worker = harness.worker()
    client = harness.client(harness.router(worker, **NAMED))
    assert may_call(client, method, path, headers)
    assert worker.requests == []


def test_methods_that_a_path_does_not_take_and_pages_that_are_not_named_are_granted_nothing(harness):
    client = harness.client(harness.router(harness.worker(), **NAMED))
    assert not may_call(client, "DELETE", "/v1/models", OPENAI)
    assert not may_call(client, "TRACE", "/v1/chat/completions", OPENAI)
    asked = client.ask(
        "OPTIONS",
        "/v1/messages",
        OTHER,
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", ANTHROPIC),
    )
    assert list(cors_of(asked)) == ["vary"]


def test_a_named_page_may_read_what_a_response_says_beside_its_body(harness):
    """Row 26: SDKs wait as long as Retry-After says, and show request-id."""
    worker = harness.worker(lambda connection, _: connection.send(response(429, b"", ("Retry-After", "7"))))
    client = harness.client(harness.router(worker, disable_retries=True, **NAMED))
    answer = client.ask("POST", "/v1/messages", PAGE, body=b"{}")
    assert (answer.status, answer.get("retry-after")) == (429, "7")
    assert answer.get("access-control-expose-headers") == "*"
