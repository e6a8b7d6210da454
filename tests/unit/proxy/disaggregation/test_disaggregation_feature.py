"""cpp/proxy/disaggregation/disaggregation_feature.h: a connector that cannot be used ends the start."""

import pytest


def test_an_unknown_connector_is_rejected_with_those_that_there_are(harness):
    with pytest.raises(ValueError, match=r'kv_connector is "flying"; it must be one of .*nixl'):
        harness.router(harness.worker(), kv_connector="flying")


def test_who_may_register_is_a_range_of_addresses(harness):
    with pytest.raises(ValueError, match="vllm_discovery_allow"):
        harness.router(harness.worker(), vllm_discovery_allow=["here"])
