"""cpp/proxy/peer_sync/peer_sync_feature.h: options that cannot be used are rejected at the start."""

import pytest


def test_an_index_that_keeps_no_strides_is_rejected(harness, redis):
    with pytest.raises(ValueError, match="made without peer_sync_stride_tokens"):
        harness.router(policy="auto", peer_sync=redis.url)


def test_a_short_secret_is_rejected(harness, redis, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("x" * 15)
    with pytest.raises(OSError, match=r"15\s+bytes; a secret has at least 16"):
        harness.router(peer_sync=redis.url, peer_sync_secret_file=str(secret))


def test_a_url_that_cannot_be_used_is_named(harness):
    with pytest.raises(ValueError, match="peer_sync"):
        harness.router(peer_sync="http://not-a-redis:1")
