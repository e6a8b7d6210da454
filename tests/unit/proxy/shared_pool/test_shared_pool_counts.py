"""cpp/proxy/shared_pool/shared_pool_counts.h: each word has a series from the start."""

import re


def test_each_error_and_each_result_has_a_series(harness):
    router = harness.router(harness.worker(), policy="kv_logit", shared_cache_type="hicache")
    page = router.server.metrics_text()
    errors = dict(re.findall(r'^vllm_router_shared_cache_errors_total{reason="(\w+)"} (\d+)', page, re.M))
    assert set(errors) == {"connect", "timeout", "http", "json", "not_leader", "layout"}
    keys = dict(re.findall(r'^vllm_router_shared_cache_keys_total{result="(\w+)"} (\d+)', page, re.M))
    assert set(keys) == {"found", "missing", "cached"}
    assert {*errors.values(), *keys.values()} == {"0"}
