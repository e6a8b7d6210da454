"""cpp/net/ip_range.h, against Python's ipaddress."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router._core_testing import ip_range_contains

V4 = st.integers(0, 2**32 - 1).map(ipaddress.IPv4Address)
V6 = st.integers(0, 2**128 - 1).map(ipaddress.IPv6Address)


def expected(network, address):
    address = getattr(address, "ipv4_mapped", None) or address
    return address.version == network.version and address in network


@given(st.data())
def test_it_contains_what_the_standard_library_says(data):
    version = data.draw(st.sampled_from([V4, V6]))
    first = data.draw(version)
    bits = data.draw(st.integers(0, first.max_prefixlen))
    network = ipaddress.ip_network((first, bits), strict=False)
    # Near its ends, and anywhere.
    ends = [network.network_address, network.broadcast_address]
    near = st.sampled_from(ends).flatmap(
        lambda end: st.integers(-2, 2).map(lambda step: type(end)((int(end) + step) % 2**end.max_prefixlen))
    )
    address = data.draw(near | version)
    if network.version == 6:
        mapped = ipaddress.IPv6Network("::ffff:0:0/96")
        if network.subnet_of(mapped):
            return  # these are IPv4
    assert ip_range_contains(f"{first}/{bits}", str(address)) == expected(network, address)


def test_one_address_is_a_range_of_one():
    assert ip_range_contains("10.0.0.7", "10.0.0.7")
    assert not ip_range_contains("10.0.0.7", "10.0.0.8")
    assert ip_range_contains("::1", "::1")


def test_an_ipv4_address_may_come_within_ipv6():
    assert ip_range_contains("10.0.0.0/8", "::ffff:10.1.2.3")
    assert not ip_range_contains("10.0.0.0/8", "::ffff:11.1.2.3")
    assert not ip_range_contains("0.0.0.0/0", "fd00::1")
    assert ip_range_contains("fe80::/10", "fe80::1%eth0")


@pytest.mark.parametrize("address", ["", "vllm-0", "10.0.0", "10.0.0.300", "[::1]", "10.0.0.1:80", "%"])
def test_what_is_no_address_is_in_no_range(address):
    assert not ip_range_contains("0.0.0.0/0", address)
    assert not ip_range_contains("::/0", address)


@pytest.mark.parametrize(
    "text",
    ["", "/", "/8", "10.0.0.0/", "10.0.0.0/33", "::/129", "10.0.0.0/-1", "10.0.0.0/8x", "host/8", "10/8"],
)
def test_what_is_no_range_is_an_error(text):
    with pytest.raises(ValueError, match=r'^allowed is ".*"; it must be an IP address or a range of them'):
        ip_range_contains(text, "10.0.0.1")
