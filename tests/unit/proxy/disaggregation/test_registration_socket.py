"""cpp/proxy/disaggregation/registration_socket.h: the address at which workers register."""

import pytest

from tests.fakes.registrant import starting


@pytest.fixture
def start(harness):
    with starting(harness) as start:
        yield start


def test_an_address_that_is_taken_is_an_error_at_the_start(start):
    fleet = start()
    address = fleet.endpoint.removeprefix("tcp://")
    with pytest.raises(
        OSError, match=f"vllm_discovery_address is {address}: cannot listen on tcp://.*in use"
    ):
        start(vllm_discovery_address=address)


@pytest.mark.parametrize(
    "address", ["", ":1", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000", "a.b:1", "[::1:1"]
)
def test_a_bad_address_is_named(start, address):
    with pytest.raises(ValueError, match=r"vllm_discovery_address is|kv_connector is"):
        start(vllm_discovery_address=address)
