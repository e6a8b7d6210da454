"""cpp/proxy/api/response_cache_settings.h: what an operator sets of the response cache."""

from vllm_router import _core_testing as testing
from vllm_router.router_args import FLAGS

DEFAULTS = {
    "response_cache": False,
    "response_cache_capacity": 1000,
    "response_cache_ttl_secs": 300,
    "response_cache_max_memory_bytes": 256 << 20,
    "response_cache_max_response_size": 1 << 20,
    "response_cache_max_stream_buffer_size": 10 << 20,
    "response_cache_max_request_size": 1 << 20,
    "response_cache_capture_memory_bytes": 256 << 20,
    "response_cache_routes": ["/v1/chat/completions", "/v1/completions"],
    "response_cache_temperature_absent": "bypass",
    "response_cache_key_scheme": "canonical",
    "response_cache_key_ignore": [],
    "response_cache_tenant_source": "credential",
    "response_cache_store_headers": [],
    "response_cache_coalesce": "answers",
    "response_cache_coalesce_wait_ms": 30_000,
    "response_cache_coalesce_max_followers": 256,
    "response_cache_coalesce_max_promotions": 2,
    "response_cache_replay_events_per_second": 0,
}


def test_each_has_its_default_and_may_change_while_the_server_runs():
    options = testing.server_options()
    assert {name: options[name]["default"] for name in DEFAULTS} == DEFAULTS
    assert {FLAGS[name].live for name in DEFAULTS} == {"request"}


def test_requests_that_change_weights_are_known():
    paths = testing.server_options()["response_cache_invalidate_on"]["default"]
    assert {"/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/update_weights*", "/wake_up"} <= set(paths)
