"""cpp/routing/pair_id.h: the id that both workers of a pair get."""

import pytest

from vllm_router._core_testing import host_and_port, pair_id, plain_pair_id


@pytest.mark.parametrize(
    ("host", "text"),
    [
        ("10.0.0.1", "10.0.0.1:8000"),
        ("gpu-0", "gpu-0:8000"),
        ("fd00::2", "[fd00::2]:8000"),
        ("[::1]", "[::1]:8000"),
    ],
)
def test_an_ipv6_address_stands_in_brackets(host, text):
    assert host_and_port(host, 8000) == text


def test_the_id_names_both_addresses_before_32_hex_digits():
    made = pair_id(host_and_port("10.0.0.1", 8000), host_and_port("fd00::2", 8001), 0x5F, 1)
    assert made == "___prefill_addr_10.0.0.1:8000___decode_addr_[fd00::2]:8001_" + f"{0x5F:016x}{1:016x}"


def test_a_plain_id_is_the_clients_and_8_hex_digits():
    assert plain_pair_id("req-1", 0xAB) == "req-1-000000ab"
