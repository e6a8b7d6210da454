"""cpp/proxy/response_cache/response_cache_metrics.h: a cache in memory has no families of Redis."""

from tests.fakes.prometheus_text import parse


def families(router):
    return parse(router.server.metrics_text())


def test_only_a_cache_that_is_on_has_families(harness):
    assert not any("response_cache" in name for name in families(harness.router(harness.worker())))
    page = families(harness.router(harness.worker(), response_cache=True))
    assert page["continuum_cache_backend_type"].value(backend="memory") == 1
    assert page["continuum_response_cache_entries"].value() == 0
    assert not any("redis" in name for name in page)
