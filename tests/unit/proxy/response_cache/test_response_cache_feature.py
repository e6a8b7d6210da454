"""cpp/proxy/response_cache/response_cache_feature.h: a cache that is off may be enabled by other settings."""

import pytest


def test_a_short_key_of_integrity_is_rejected(harness, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x" * 31)
    with pytest.raises(OSError, match=r"31\s+bytes; a secret has at least 32"):
        harness.router(response_cache=True, response_cache_integrity_key_file=str(secret))


def test_a_cache_that_is_off_counts_nothing_and_adds_no_field(harness):
    client = harness.client(harness.router(harness.worker()))
    assert client.ask("POST", "/v1/chat/completions", body=b"{}").get("x-cache") is None
    assert b"router_response_cache" not in client.ask("GET", "/metrics").body
