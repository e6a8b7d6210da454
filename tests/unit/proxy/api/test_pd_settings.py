"""cpp/proxy/api/pd_settings.h: what an operator sets of requests that two workers serve."""

from vllm_router import _core_testing as testing
from vllm_router.router_args import FLAGS

DEFAULTS = {
    "bootstrap_port": 8998,
    "pd_transfer_timeout_secs": 30,
    "pd_prefill_timeout_secs": 0,
    "pd_handoff_limit_ms": 10_000,
    "pd_grace_ms": 500,
    "pd_orphan": "reject",
    "pd_orphan_max": 64,
    "pd_cancel_prefill": "auto",
    "pd_on_prefill_loss": "503",
    "pd_request_id": "addresses",
    "pd_extra_routes": [],
    "pd_pass_paths": [],
    "pd_prefill_response_bytes": 64 << 20,
    "pd_strip_client_params": "auto",
    "pd_drain_secs": 60,
    "pd_usage": "decode",
    "pd_logprobs": "merge",
    "pd_sglang_rank_fields": False,
}


def test_each_has_its_default_and_may_change_while_the_server_runs():
    options = testing.server_options()
    assert {name: options[name]["default"] for name in DEFAULTS} == DEFAULTS
    assert {FLAGS[name].live for name in DEFAULTS} == {"request"}


def test_the_connector_is_fixed_from_the_start():
    assert testing.server_options()["kv_connector"]["default"] == "nixl"
    assert FLAGS["kv_connector"].live == "restart"
