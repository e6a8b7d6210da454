"""cpp/proxy/api/cors.h: the table of its header, row by row; over the wire it is tests/proxy/test_cors.py."""

import pytest

from tests.rows import for_each_row
from vllm_router import _core_testing as testing

PAGE = "https://ui.example"


def allowed(origins, origin, access="client", preflight=False):
    return testing.cors_fields(origins, origin, access, preflight).get("Access-Control-Allow-Origin")


@for_each_row("preflight", [False, True])
@for_each_row(
    ("origins", "origin", "access", "told"),
    [
        ([], PAGE, "client", None),
        ([], PAGE, "admin", None),
        ([], "null", "client", None),
        (["*"], PAGE, "client", "*"),
        (["*"], PAGE, "admin", None),
        (["*"], "null", "client", "*"),
        (["*"], "", "client", None),
        (["*", PAGE], PAGE, "admin", PAGE),
        (["*", PAGE], "https://other.example", "client", "*"),
        (["*", PAGE], "https://other.example", "admin", None),
        ([PAGE], PAGE, "client", PAGE),
        ([PAGE], PAGE, "admin", PAGE),
        ([PAGE], "https://other.example", "client", None),
        ([PAGE], "https://ui.example.evil", "client", None),
        ([PAGE], "http://ui.example", "client", None),
        ([PAGE], "null", "client", None),
        (["http://a", PAGE], PAGE, "client", PAGE),
    ],
)
def test_who_is_told_that_it_may(origins, origin, access, told, preflight):
    assert allowed(origins, origin, access, preflight) == told


def test_vary_says_that_the_origin_matters_where_it_does():
    for origins in ([], ["*"]):
        assert "Vary" not in testing.cors_fields(origins, PAGE, "client", False)
    for origin in ("", PAGE, "https://other.example"):
        assert testing.cors_fields([PAGE], origin, "client", False)["Vary"] == "Origin"
        assert testing.cors_fields([PAGE], origin, "client", True)["Vary"].startswith("Origin, Access-")


@for_each_row(
    ("origins", "fields", "cross_site"),
    [
        ([], [], False),
        ([], [("User-Agent", "curl")], False),
        ([], [("Origin", PAGE)], True),
        ([], [("Origin", "null")], True),
        ([], [("Origin", "")], True),
        (["*"], [("Origin", PAGE)], True),
        (["*"], [("Origin", "*")], True),
        ([PAGE], [("Origin", PAGE)], False),
        ([PAGE], [("oRIGIN", PAGE), ("Sec-Fetch-Site", "cross-site")], False),
        ([PAGE], [("Origin", PAGE), ("Origin", "https://evil.example")], True),
        ([PAGE], [("Origin", "https://UI.example")], True),
        ([], [("Sec-Fetch-Site", "cross-site")], True),
        ([], [("Sec-Fetch-Site", "same-site")], True),
        ([], [("sec-fetch-site", "Cross-Site")], True),
        ([], [("Sec-Fetch-Site", "something new")], True),
        ([], [("Sec-Fetch-Site", "same-origin")], False),
        ([], [("Sec-Fetch-Site", "none")], False),
        ([], [("Sec-Fetch-Site", "none"), ("Sec-Fetch-Site", "cross-site")], True),
        ([], [("Sec-Fetch-Site", "same-origin"), ("Origin", "http://router.example")], True),
    ],
)
def test_which_requests_a_browser_made_for_a_page_of_another_site(origins, fields, cross_site):
    assert testing.cors_is_cross_site(origins, fields) == cross_site


@pytest.mark.parametrize(
    ("origins", "origin", "methods", "headers"),
    [
        ([PAGE], PAGE, "GET, DELETE", "content-type, authorization"),
        (["*"], PAGE, "*", "*, authorization"),
        (["*", PAGE], PAGE, "GET, DELETE", "content-type, authorization"),
        ([PAGE], "https://other.example", None, None),
    ],
)
def test_a_preflight_is_granted_the_methods_of_its_path(origins, origin, methods, headers):
    fields = testing.cors_fields(origins, origin, "client", True)
    assert fields.get("Access-Control-Allow-Methods") == methods
    assert fields.get("Access-Control-Allow-Headers") == headers
    assert ("Access-Control-Max-Age" in fields) == (methods is not None)
