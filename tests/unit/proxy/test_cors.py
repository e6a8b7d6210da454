"""cpp/proxy/cors.h: the table of its header, row by row; over the wire it is tests/proxy/test_cors.py."""

import pytest

from vllm_router import _core_testing as testing

PAGE = "https://ui.example"


def allowed(origins, origin, access="client", preflight=False):
    return testing.cors_fields(origins, origin, access, preflight).get("Access-Control-Allow-Origin")


@pytest.mark.parametrize("preflight", [False, True])
@pytest.mark.parametrize(
    ("origins", "origin", "access", "told"),
    [
        ([], PAGE, "client", "*"),
        ([], PAGE, "admin", None),
        ([], "null", "client", "*"),
        ([], "", "client", None),
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
    assert "Vary" not in testing.cors_fields([], PAGE, "client", False)
    for origin in ("", PAGE, "https://other.example"):
        assert testing.cors_fields([PAGE], origin, "client", False)["Vary"] == "Origin"
        assert testing.cors_fields([PAGE], origin, "client", True)["Vary"].startswith("Origin, Access-")
