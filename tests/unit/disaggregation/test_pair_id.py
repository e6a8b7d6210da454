"""cpp/disaggregation/pair_id.h: the id that both workers of a pair get."""

import uuid

import pytest

from vllm_router._core_testing import host_and_port, pair_id, pair_id_prefix, plain_pair_id, tx_id, xfer_id


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
    assert made.startswith(pair_id_prefix("10.0.0.1:8000", "[fd00::2]:8001"))


def test_a_plain_id_is_the_clients_and_8_hex_digits():
    assert plain_pair_id("req-1", 0xAB) == "req-1-000000ab"


def test_the_ids_of_transfers_are_a_random_uuid_and_32_hex_digits():
    assert xfer_id(0x0123456789ABCDEF, 0xFEDCBA9876543210) == "xfer-01234567-89ab-4def-bedc-ba9876543210"
    assert tx_id(0x0123456789ABCDEF, 0xFEDCBA9876543210) == "tx-0123456789abcdeffedcba9876543210"
    for high, low in ((0, 0), (2**64 - 1, 2**64 - 1), (1, 2**63)):
        made = uuid.UUID(xfer_id(high, low).removeprefix("xfer-"))
        assert (made.version, made.variant) == (4, uuid.RFC_4122)
