"""cpp/proxy/admin/feature.h: what a feature registers is there in every server, on or off."""

import pytest

from tests.fakes.harness import error_of
from vllm_router import _core_testing as testing

PATHS = [
    "/admin/kv-events",
    "/admin/kv-events/push",
    "/admin/kv-index/stats",
    "/ha/status",
]


@pytest.mark.parametrize("path", PATHS)
def test_the_endpoints_of_a_feature_have_routes_of_their_own(path):
    assert testing.find_route(path)["label"] == path
    assert testing.find_route(path)["own"]


def test_an_endpoint_of_a_feature_that_is_off_says_how_it_is_enabled(harness):
    client = harness.client(harness.router(harness.worker()))
    assert "--peer-sync" in error_of(client.ask("GET", "/ha/status"))["message"]
    assert "--kv-events-push" in error_of(client.ask("POST", "/admin/kv-events/push"))["message"]
    assert b'"enabled":false' in client.ask("GET", "/admin/kv-index/stats").body
