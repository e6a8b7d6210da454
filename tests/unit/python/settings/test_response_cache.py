"""vllm_router.settings.response_cache: routes, members, headers, prefixes of keys, durations."""

import pytest

from vllm_router import _core_testing as testing
from vllm_router.router_args import FLAGS
from vllm_router.settings.kinds import Unfit
from vllm_router.settings.response_cache import (
    CACHED_ROUTES,
    IGNORED_MEMBERS,
    invalidating_path,
    kept_header,
    seconds_of,
)


def test_routes_and_members_are_those_of_the_core() -> None:
    assert list(CACHED_ROUTES) == testing.cacheable_routes()
    assert list(IGNORED_MEMBERS) == testing.ignorable_members()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1500ms", 1.5), ("90s", 90), ("5m", 300), ("5 m", 300), ("1.5h", 5400), ("30d", 2_592_000), ("0s", 0)],
)
def test_a_duration_has_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds
    assert isinstance(seconds_of(text), type(seconds))


@pytest.mark.parametrize(
    "text",
    ["", "5", "m", "5 minutes", "5M", "-5m", "+5m", "1h30m", "5  m", " 5m", "5m ", "5.m", "1e3s", "\u0665m"],
)
def test_what_is_no_duration(text: str) -> None:
    assert seconds_of(text) is None


@pytest.mark.parametrize("prefix", ["cr:resp:", "a", "!" * 64, "blue{}:", "cr:kvidy:", "vs:"])
def test_a_prefix_of_keys(prefix: str) -> None:
    assert FLAGS["response_cache_redis_key_prefix"].check(prefix) == prefix


@pytest.mark.parametrize(
    ("prefix", "sentence"),
    [
        ("", "must be 1 to 64 visible ASCII characters such as cr:resp:"),
        ("a" * 65, "must be 1 to 64 visible ASCII characters"),
        ("a b", "must be 1 to 64 visible ASCII characters"),
        ("\u00e4:", "must be 1 to 64 visible ASCII characters"),
        *((f"cr:{sign}", "must be a text without the pattern characters") for sign in "*?[]\\"),
        *(
            (other, "would also remove keys that begin with cr:kvidx: or vr:")
            for other in ("c", "cr:", "cr:kvidx:", "cr:kvidx:w:", "v", "vr:", "vr:{blue}:")
        ),
    ],
)
def test_what_is_no_prefix_of_keys(prefix: str, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        FLAGS["response_cache_redis_key_prefix"].check(prefix)


@pytest.mark.parametrize("name", ["Set-Cookie", "content-length", "Proxy-Status", "X-Request-Id", "a b", ""])
def test_what_may_not_be_kept_with_a_response(name: str) -> None:
    assert kept_header("X-Model-Version") == "X-Model-Version"
    if name:
        with pytest.raises(Unfit):
            kept_header(name)


@pytest.mark.parametrize("path", ["", "wake_up", "/", "/*", "*", "/a?b", "/a*b", "/%61", "/a b"])
def test_what_is_no_path_that_invalidates(path: str) -> None:
    assert invalidating_path("/update_weights*") == "/update_weights*"
    with pytest.raises(Unfit):
        invalidating_path(path)


@pytest.mark.parametrize("name", ["X-Tenant-ID", "x_tenant"])
def test_a_header_of_tenants(name: str) -> None:
    assert FLAGS["response_cache_tenant_header"].check(name) == name
    for wrong in ("", "X Tenant", "X-Tenant:", f"{name},x", 7):
        with pytest.raises(ValueError, match="must be the name of a header such as X-Tenant-ID"):
            FLAGS["response_cache_tenant_header"].check(wrong)
