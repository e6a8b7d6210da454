"""cpp/proxy/server/server_redis.h: who uses the Redis, and what it is told if there is none."""

import pytest


@pytest.mark.parametrize(
    ("options", "missing"),
    [
        ({"response_cache": True, "response_cache_backend": "redis"}, "response_cache_backend"),
        (
            {"policy": "auto", "kv_index_backend": "redis", "routing": {"kv_index_max_entries": 100}},
            "kv_index_backend",
        ),
    ],
)
def test_a_feature_that_needs_a_redis_names_what_is_missing(harness, options, missing):
    with pytest.raises(ValueError, match=f"{missing} is redis and redis_url is missing; set it"):
        harness.router(harness.worker(), **options)


def test_a_redis_that_nothing_uses_is_not_opened(harness, fake):
    harness.client(harness.router(harness.worker(), redis_url=fake.url)).ask()
    assert fake.connections == []
