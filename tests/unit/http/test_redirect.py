"""cpp/http/redirect.h: a worker's Location, as the client has to call it."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing


@for_each_row(
    ("location", "told"),
    [
        ("http://gpu-0:8000/v1/models", "https://llm.example/v1/models"),
        ("HTTP://GPU-0:8000/v1/models?a=b#c", "https://llm.example/v1/models?a=b#c"),
        ("https://gpu-0:8000/v1/models", "https://llm.example/v1/models"),
        ("//gpu-0:8000/v1/models", "https://llm.example/v1/models"),
        ("http://gpu-0:8000", "https://llm.example/"),
        ("http://gpu-0:8000?a=/b", "https://llm.example/?a=/b"),
        ("http://gpu-0:80/v1", None),
        ("http://gpu-0:80001/v1", None),
        ("http://gpu-0/v1", None),
        ("http://gpu-0:8000@evil/v1", None),
        ("http://user@gpu-0:8000/v1", None),
        ("http://gpu-1:8000/v1", None),
        ("ftp://gpu-0:8000/v1", None),
        ("/v1/models", None),
        ("v1/models", None),
        ("?http://gpu-0:8000/", None),
        ("", None),
    ],
)
def test_the_workers_own_url_becomes_the_routers(location, told):
    assert testing.router_location(location) == told


@for_each_row(
    ("location", "told"),
    [
        ("http://gpu-0:8000/a/b/v1", "https://llm.example/v1"),
        ("http://gpu-0:8000/a/b", "https://llm.example/"),
        ("http://gpu-0:8000/a/b?x", "https://llm.example/?x"),
        ("/a/b/v1/models?x", "/v1/models?x"),
        ("/a/b", "/"),
        ("/a/b//evil.example/", None),  # which browsers would take for a host
        ("/a/b/\\evil.example/", None),
        ("/a/bc", None),
        ("/v1/models", None),
        ("http://gpu-0:8000/a/bc", None),
        ("http://gpu-0:8000/login", None),
        ("http://gpu-0:8000", None),
    ],
)
def test_the_prefix_of_the_workers_paths_is_taken_off(location, told):
    """Row 19: and what is not below it is reached through no path of the router."""
    assert testing.router_location(location, prefix="/a/b") == told


@pytest.mark.parametrize(
    ("location", "tls", "told"),
    [
        ("http://gpu-0/v1", False, "https://llm.example/v1"),
        ("http://gpu-0:80/v1", False, "https://llm.example/v1"),
        ("https://gpu-0/v1", False, "https://llm.example/v1"),
        ("https://gpu-0:443/v1", True, "https://llm.example/v1"),
        ("http://gpu-0/v1", True, "https://llm.example/v1"),
        ("http://gpu-0:8000/v1", False, None),
    ],
)
def test_the_port_of_a_scheme_need_not_be_written(location, tls, told):
    assert testing.router_location(location, authority="gpu-0", tls=tls) == told


@pytest.mark.parametrize(
    ("location", "tls", "scheme", "told"),
    [
        # the scheme of the connection between router and worker says nothing to a client
        ("http://r:30000/v1", False, "https", "https://r:30000/v1"),
        ("https://r:30000/v1", True, "http", "http://r:30000/v1"),
        ("http://r:30000/v1", False, "http", "http://r:30000/v1"),
        # another one is meant
        ("https://r:30000/v1", False, "http", "https://r:30000/v1"),
        ("http://other/v1", False, "https", None),
    ],
)
def test_the_clients_host_is_the_workers_where_it_was_sent_that(location, tls, scheme, told):
    found = testing.router_location(location, client_host="r:30000", router="r:30000", tls=tls, scheme=scheme)
    assert found == told


def test_where_the_router_does_not_know_its_name_the_path_is_enough():
    assert testing.router_location("http://gpu-0:8000/v1?x", router="") == "/v1?x"


@pytest.mark.parametrize(
    ("fields", "tls", "trusted", "called"),
    [
        ([], False, True, ("http", "r:30000")),
        ([], True, True, ("https", "r:30000")),
        (
            ["X-Forwarded-Proto: https", "X-Forwarded-Host: llm.example"],
            False,
            True,
            ("https", "llm.example"),
        ),
        (["X-Forwarded-Proto: https", "X-Forwarded-Host: llm.example"], False, False, ("http", "r:30000")),
        (["X-Forwarded-Proto: HTTPS, http", "X-Forwarded-Host: a:1 , b"], False, True, ("https", "a:1")),
        (["X-Forwarded-Proto: http"], True, True, ("http", "r:30000")),
        (["X-Forwarded-Proto: gopher", "X-Forwarded-Host: "], True, True, ("https", "r:30000")),
        (["X-Forwarded-Host: evil/..@x"], False, True, ("http", "r:30000")),
        (["X-Forwarded-Host: [::1]:80"], False, True, ("http", "[::1]:80")),
    ],
)
def test_by_what_name_the_client_called(fields, tls, trusted, called):
    """Row 19: the proxy in front of the router says so, where it is trusted."""
    head = "\r\n".join(["GET / HTTP/1.1", "Host: r:30000", *fields]) + "\r\n\r\n"
    assert testing.called_as(head, tls, trusted) == called
