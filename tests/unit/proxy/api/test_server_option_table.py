"""cpp/proxy/api/server_option_table.h: names, units and defaults, as bindings/server.cc uses them."""

from vllm_router import _core
from vllm_router import _core_testing as testing

OPTIONS = testing.server_options()


def test_the_server_takes_the_options_of_the_table():
    assert list(OPTIONS) == _core.Server.option_names
    assert len(set(_core.Server.option_names)) == len(_core.Server.option_names)


def test_times_in_seconds_and_sizes_in_mebibytes_are_shown_in_these():
    assert OPTIONS["queue_timeout_secs"]["default"] == 60
    assert OPTIONS["worker_startup_check_interval"]["default"] == 30
    assert OPTIONS["body_memory_mb"]["default"] == 256
    assert OPTIONS["tokenize_timeout_ms"]["default"] == 100


def test_what_is_unset_is_none():
    assert OPTIONS["admin_port"]["default"] is None
    assert OPTIONS["prometheus_port"]["default"] is None
    assert OPTIONS["load_poll_interval_secs"]["default"] is None


def test_a_word_may_stand_for_a_switch():
    assert OPTIONS["half_closed_clients"]["words"] == ["abort", "serve"]
    assert OPTIONS["half_closed_clients"]["default"] == "abort"
    assert OPTIONS["hold_stream_head"]["default"] == "on"
