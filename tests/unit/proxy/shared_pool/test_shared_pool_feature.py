"""cpp/proxy/shared_pool/shared_pool_feature.h: its options, and what it adds to a page and to the metrics."""

import json

import pytest


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"shared_cache_layout": "{"}, "shared_cache_layout cannot be used: it is no JSON object"),
        ({"shared_cache_url": ["mooncake"]}, "mooncake"),
        ({"shared_cache_url": ["name://mooncake"]}, "URL of a Mooncake master's HTTP port"),
    ],
)
def test_options_that_cannot_be_used_are_rejected(harness, options, complaint):
    with pytest.raises(ValueError, match=complaint):
        harness.router(harness.worker(), policy="kv_logit", shared_cache_type="hicache", **options)


def test_a_server_without_a_pool_says_nothing_of_one(harness):
    client = harness.client(harness.router(harness.worker()))
    assert "shared_pool" not in json.loads(client.ask("GET", "/admin/kv-events").body)
    assert b"shared_cache" not in client.ask("GET", "/metrics").body


def test_a_pool_adds_its_state_to_the_page_of_kv_events(harness):
    router = harness.router(harness.worker(), policy="kv_logit", shared_cache_type="hicache")
    client = harness.client(router)
    pool = json.loads(client.ask("GET", "/admin/kv-events").body)["shared_pool"]
    assert (pool["type"], pool["urls"], pool["hits"], pool["paused"]) == ("hicache", [], 0, False)
    assert b"shared_cache_keys_total" in client.ask("GET", "/metrics").body
