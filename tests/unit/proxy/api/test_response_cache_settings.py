"""cpp/proxy/api/response_cache_settings.h: what an operator sets of the response cache."""

from vllm_router import _core
from vllm_router import _core_testing as testing
from vllm_router.router_args import FLAGS

OPTIONS = testing.server_options()
NAMES = [name for name in OPTIONS if name.startswith("response_cache")]
LIVE = {
    "response_cache": False,
    "response_cache_ttl_secs": 300,
    "response_cache_capacity": 1000,
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
    "response_cache_tenant_header": "",
    "response_cache_store_headers": [],
    "response_cache_coalesce": "answers",
    "response_cache_coalesce_wait_ms": 30_000,
    "response_cache_coalesce_max_followers": 256,
    "response_cache_coalesce_max_promotions": 2,
    "response_cache_replay_events_per_second": 0,
    "response_cache_invalidate_on": [
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/load_lora_adapter",
        "/unload_lora_adapter",
        "/update_weights*",
        "/start_weight_update",
        "/finish_weight_update",
        "/start_draft_weight_update",
        "/resume_memory_occupation",
        "/wake_up",
        "/collective_rpc",
    ],
}
FIXED = {
    "response_cache_backend": "memory",
    "response_cache_redis_key_prefix": "cr:resp:",
    "response_cache_fallback_capacity": 1000,
    "response_cache_fallback_ttl_secs": 300,
    "response_cache_fallback_to_memory": True,
    "response_cache_lookup_budget_ms": 100,
    "response_cache_store_queue_bytes": 16 << 20,
    "response_cache_integrity_key_file": "",
    "response_cache_health_interval_secs": 30,
}


def test_each_has_its_default():
    assert {name: OPTIONS[name]["default"] for name in NAMES} == {**LIVE, **FIXED}


def test_all_but_the_place_of_responses_may_change_while_the_server_runs():
    assert {name for name in NAMES if FLAGS[name].live == "request"} == LIVE.keys()
    assert {name for name in NAMES if name in _core.Server.live_option_names} == LIVE.keys()


def test_a_request_finds_what_was_set(harness):
    given = {
        "response_cache_ttl_secs": 1.5,
        "response_cache_capacity": 7,
        "response_cache_routes": ["/generate"],
        "response_cache_tenant_header": "x-tenant",
        "response_cache_max_request_size": 2048,
    }
    router = harness.router(harness.worker(), response_cache=True, **given)
    settings = testing.settings(router.server)
    assert settings["response_cache"] is True
    assert {name: settings[name] for name in given} == given


def test_words_are_those_of_the_flags(harness):
    words = {
        "response_cache_temperature_absent": ["bypass", "cache"],
        "response_cache_key_scheme": ["canonical", "seed004"],
        "response_cache_tenant_source": ["credential", "header", "header_credential", "shared"],
        "response_cache_coalesce": ["off", "answers"],
    }
    router = harness.router(harness.worker())
    for name, known in words.items():
        assert OPTIONS[name]["words"] == known
        for number, word in enumerate(known):
            testing.publish_settings(router.server, **{name: word})
            assert testing.settings(router.server)[name] == number
