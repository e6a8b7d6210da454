"""cpp/proxy/admin/own_endpoint.h: a row is all that an endpoint needs to be routed."""

import pytest

from vllm_router import _core_testing as testing

ROUTES = {route["label"]: route for route in testing.routes()}


@pytest.mark.parametrize(
    ("path", "allow", "access"),
    [
        ("/admin/drain", "POST, DELETE", "admin"),
        ("/health", "GET, HEAD", "anybody"),
        ("/finish_session", "POST", "client"),
        ("/workers/{url}", "GET, HEAD, DELETE", "admin"),
    ],
)
def test_methods_and_access_of_a_row_are_those_of_the_route(path, allow, access):
    route = ROUTES[path]
    assert (route["own"], route["allow"], route["access"]) == (True, allow, access)
    assert not route["inference"]


def test_a_row_with_a_name_in_braces_is_every_path_that_goes_on():
    assert testing.find_route("/workers/a/b")["label"] == "/workers/{url}"
    assert testing.find_route("/workers")["label"] == "/workers"
    assert testing.find_route("/workers/")["label"] == "other"


def test_a_page_is_rendered_for_get_and_another_method_is_served(harness):
    client = harness.client(harness.router())
    assert client.ask("GET", "/workers").status == 200
    assert client.ask("POST", "/workers", body=b"{}").status == 400
    assert client.ask("PUT", "/workers", body=b"{}").status == 405
