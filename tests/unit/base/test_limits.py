"""cpp/base/limits.h: the limits fit each other."""

import pytest

from vllm_router import _core_testing as testing


@pytest.fixture(scope="module")
def limits():
    return testing.limits()


def test_every_limit_is_positive(limits):
    assert [name for name, value in limits.items() if value <= 0] == []


def test_a_target_and_a_field_name_fit_into_a_head(limits):
    assert limits["kMaxTargetBytes"] < limits["kMaxHeadBytes"]
    assert limits["kMaxFieldNameBytes"] < limits["kMaxHeadBytes"]
    assert limits["kMaxTrailerBytes"] < limits["kMaxHeadBytes"]


def test_a_relay_buffer_grows_to_its_most_by_doubling(limits):
    growth = limits["kRelayBufferMost"] // limits["kRelayBufferFirst"]
    assert limits["kRelayBufferFirst"] * growth == limits["kRelayBufferMost"]
    assert growth & (growth - 1) == 0


def test_the_end_of_a_stream_fits_into_the_smallest_buffer(limits):
    assert limits["kStreamTailBytes"] <= limits["kRelayBufferFirst"]


def test_the_default_weight_lies_between_the_smallest_and_the_largest(limits):
    assert limits["kMinWeight"] < limits["kWeightOne"] < limits["kMaxWeight"]


def test_the_weights_of_a_full_fleet_add_up_in_64_bits(limits):
    assert limits["kMaxWeight"] * limits["kMaxWorkers"] < 2**63
