"""cpp/proxy/api/continue_settings.h: what an operator sets of streams that go on at another worker."""

from vllm_router import _core
from vllm_router import _core_testing as testing

OPTIONS = testing.server_options()
LIVE = {
    "continue_streams": "off",
    "continue_max": 2,
    "continue_keepalive_secs": 5,
    "continue_wait_secs": 30,
    "continue_drain_secs": 0,
    "continue_stall_secs": 0,
    "continue_rerun_tokens": 512,
    "continue_max_tokens": 131_072,
}
FIXED = {"continue_memory_mb": 256}


def test_what_may_change_while_requests_run():
    live = {name for name in _core.Server.live_option_names if name.startswith("continue_")}
    assert live == LIVE.keys()


def test_each_has_its_default():
    found = {name: row["default"] for name, row in OPTIONS.items() if name.startswith("continue_")}
    assert found == LIVE | FIXED


def test_what_one_stream_may_count_to():
    assert OPTIONS["continue_max"]["largest"] == 255
