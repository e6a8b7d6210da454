"""cpp/proxy/server/option_checks.h: options that make no sense together end the start."""

import pytest


def test_nobody_can_be_passed_over_without_polls(harness):
    with pytest.raises(
        ValueError, match=r"exclude_waiting_above is 4 and load_poll_interval_secs is 0.*leave it out"
    ):
        harness.router(harness.worker(), exclude_waiting_above=4, load_poll_interval_secs=0)


def test_an_unknown_connector_is_rejected_with_those_that_there_are(harness):
    with pytest.raises(ValueError, match=r'kv_connector is "flying"; it must be one of .*nixl'):
        harness.router(harness.worker(), kv_connector="flying")


def test_where_workers_register_must_be_an_address(harness):
    with pytest.raises(ValueError, match="vllm_discovery_allow"):
        harness.router(harness.worker(), vllm_discovery_allow=["here"])
