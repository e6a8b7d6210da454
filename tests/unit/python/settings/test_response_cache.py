"""vllm_router.settings.response_cache: routes, members, headers, prefixes of keys, durations."""

import re
from typing import Any

import pytest

from tests.rows import for_each_row
from vllm_router import Router
from vllm_router.router_args import FLAGS, RouterArgs
from vllm_router.settings.kinds import Unfit
from vllm_router.settings.response_cache import (
    invalidating_path,
    kept_header,
    key_prefix_of,
    seconds_of,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1500ms", 1.5), ("90s", 90), ("5m", 300), ("5 m", 300), ("1.5h", 5400), ("30d", 2_592_000), ("0s", 0)],
)
def test_a_duration_has_a_number_and_a_unit(text: str, seconds: float) -> None:
    assert seconds_of(text) == seconds
    assert isinstance(seconds_of(text), type(seconds))


@for_each_row(
    "text",
    ["", "5", "m", "5 minutes", "5M", "-5m", "+5m", "1h30m", "5  m", " 5m", "5m ", "5.m", "1e3s", "\u0665m"],
)
def test_what_is_no_duration(text: str) -> None:
    assert seconds_of(text) is None


@pytest.mark.parametrize("prefix", ["cr:resp:", "a", "!" * 64, "blue{}:", "cr:kvidy:", "vs:"])
def test_a_prefix_of_keys(prefix: str) -> None:
    assert FLAGS["response_cache_redis_key_prefix"].check(prefix) == prefix


@for_each_row(
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


STORED = {"response_cache": True, "response_cache_backend": "redis", "redis_url": "redis://r:6379"}
A, B = "http://gpu-0:8000", "http://gpu-1:8000"


def prefix(*urls: str, **settings: Any) -> str:
    return str(
        RouterArgs(worker_urls=list(urls), **STORED, **settings).server_options()[
            "response_cache_redis_key_prefix"
        ]
    )


@pytest.mark.parametrize(
    "same",
    [
        (B, A),
        (A, B, A),
        (f"{A}/", B),
        ("HTTP://GPU-0:8000", B),
        (f"{A}@0", f"{A}@1", B),
        (f"{B}@3", A),
    ],
)
def test_routers_of_one_fleet_share_responses_in_whatever_order_they_name_it(same: tuple[str, ...]) -> None:
    """Row 20 of the third list."""
    assert prefix(*same) == prefix(A, B)
    assert re.fullmatch(r"cr:resp:[0-9a-f]{16}:", prefix(A, B))


def test_fleets_with_one_redis_have_keys_of_their_own() -> None:
    """Row 20 of the third list: each was sent the other's responses, where their models had one name."""
    two_stages = RouterArgs(prefill_urls=[(A, None)], decode_urls=[B], vllm_pd_disaggregation=True, **STORED)
    prefixes = [prefix(A), prefix(B), prefix(A, B), prefix("https://gpu-0:8000"), prefix(f"{A}/v2")]
    assert len({*prefixes, prefix(A, B, peer_sync_fleet="blue"), "cr:resp:"}) == 7
    assert key_prefix_of(two_stages) == prefix(A, B)
    assert prefix("http://gpu-0") == prefix("http://gpu-0:80") != prefix("https://gpu-0")


def test_a_name_tells_a_fleet_apart_whatever_workers_it_has() -> None:
    assert prefix(A, peer_sync_fleet="blue") == prefix(B, peer_sync_fleet="blue") == "cr:resp:blue:"
    assert prefix(A, response_cache_redis_key_prefix="blue:") == "blue:"
    # As files for Continuum Router have it, whichever fleet they are of.
    assert prefix(A, response_cache_redis_key_prefix="cr:resp:") == prefix(A)
    assert RouterArgs(worker_urls=[A], peer_sync_fleet="blue", **STORED).warnings() == []


def test_addresses_that_other_machines_have_as_well_are_warned_of() -> None:
    local = RouterArgs(worker_urls=["http://127.0.0.1:8000", "http://localhost:8001"], **STORED)
    assert any("set --peer-sync-fleet to this one's name" in sentence for sentence in local.warnings())
    named = RouterArgs(worker_urls=["http://127.0.0.1:8000"], peer_sync_fleet="blue", **STORED)
    assert named.warnings() == []
    assert RouterArgs(worker_urls=[A, "http://127.0.0.1:8000"], **STORED).warnings() == []


def test_a_fleet_that_nothing_tells_from_others_does_not_start() -> None:
    """Row 20 of the third list: workers that are discovered have no name before."""
    with pytest.raises(ValueError, match="set peer_sync_fleet to the fleet's name, the same on all"):
        Router(worker_urls=[]).serve(**STORED)
