"""cpp/disaggregation/kv_connector.h: the table of connectors, and the ids of pairs."""

import pytest

from vllm_router._core_testing import connector_of, knows_kv_connector, kv_connectors, new_pair_id, pd_plan

FLAGS = [
    *("hands_parameters", "shortens_prefill", "ends_by_length", "decode_can_prefill", "rebindable"),
    *("needs_parameters", "meets_in_rooms", "prefill_needs_pair", "registers"),
]
TABLE = {
    "nixl": ("serial", "either", "hands_parameters shortens_prefill decode_can_prefill rebindable"),
    "nixl_push": ("serial", "either", "hands_parameters shortens_prefill decode_can_prefill"),
    "mooncake": ("concurrent", "either", "shortens_prefill ends_by_length decode_can_prefill"),
    "moriio": (
        *("serial", "addresses"),
        "hands_parameters shortens_prefill ends_by_length needs_parameters prefill_needs_pair registers",
    ),
    "p2p_nccl": ("serial", "addresses", "hands_parameters shortens_prefill prefill_needs_pair registers"),
    "sglang": ("sglang", "plain", "meets_in_rooms"),
    "shared_store": ("serial", "either", "shortens_prefill decode_can_prefill rebindable"),
}


def test_the_table_has_each_connector_once_with_its_traits():
    assert {traits["name"]: traits for traits in kv_connectors()} == {
        name: {"name": name, "order": order, "id_form": form}
        | {flag: flag in flags.split() for flag in FLAGS}
        for name, (order, form, flags) in TABLE.items()
    }
    assert len(kv_connectors()) == len(TABLE)
    assert all(map(knows_kv_connector, TABLE))
    assert not any(map(knows_kv_connector, ["", "NIXL", "nixl ", "nccl", "auto"]))


def test_auto_is_the_connector_of_the_engine():
    assert connector_of("auto", "vllm") == "nixl"
    assert connector_of("auto", "sglang") == "sglang"
    assert connector_of("auto", "") is None
    assert connector_of("mooncake", "sglang") == "mooncake"
    assert connector_of("nccl", "vllm") is None


@pytest.mark.parametrize("body", [b'{"prompt":"hi","n":2}', b'{"prompt":["a","b"]}'])
def test_only_where_a_worker_serves_a_request_alone_it_may_be_local(body):
    for traits in kv_connectors():
        kind = pd_plan("completions", body, traits["name"])["kind"]
        assert (kind == "local") == traits["decode_can_prefill"]


ENDS = {
    "prefill": {"host": "10.0.0.1", "port": 8000},
    "decode": {"host": "fd00::2", "port": 8001},
    "bits": (0x5F, 0xAB),
}
REGISTERED = ENDS | {"prefill": {"host": "10.0.0.1", "port": 8000, "zmq_address": "10.0.0.1:21001"}}
HEX = "000000000000005f00000000000000ab"


@pytest.mark.parametrize("connector", ["nixl", "nixl_push", "mooncake", "moriio", "p2p_nccl", "shared_store"])
def test_an_id_has_the_addresses_that_are_registered_else_those_of_the_urls(connector):
    assert new_pair_id(connector, ENDS, "c", False) == (
        f"___prefill_addr_10.0.0.1:8000___decode_addr_[fd00::2]:8001_{HEX}"
    )
    assert new_pair_id(connector, REGISTERED, "c", False) == (
        f"___prefill_addr_10.0.0.1:21001___decode_addr_[fd00::2]:8001_{HEX}"
    )


@pytest.mark.parametrize(
    ("connector", "id_"),
    [
        ("nixl", "c-000000ab"),
        ("nixl_push", "c-000000ab"),
        ("mooncake", "c-000000ab"),
        ("shared_store", "c-000000ab"),
        ("sglang", "c-000000ab"),
        ("moriio", f"___prefill_addr_10.0.0.1:8000___decode_addr_[fd00::2]:8001_{HEX}"),
        ("p2p_nccl", f"___prefill_addr_10.0.0.1:8000___decode_addr_[fd00::2]:8001_{HEX}"),
    ],
)
def test_an_id_is_plain_unless_workers_read_addresses_in_it(connector, id_):
    assert new_pair_id(connector, ENDS, "c", True) == id_
    assert new_pair_id("sglang", ENDS, "c", False) == "c-000000ab"
