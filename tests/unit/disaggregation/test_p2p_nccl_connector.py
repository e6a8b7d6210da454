"""cpp/disaggregation/p2p_nccl_connector.h: workers find each other by the request id."""

import pytest

from tests.models.pd_connectors import BITS, attempt
from vllm_router._core_testing import (
    decode_copy,
    missing_for_pair,
    new_pair_id,
    prefill_copy,
)

BODY = b'{"model":"m","stream":true,"max_tokens":7,"prompt":"hi"}'
ENDS = {"prefill": {"zmq_address": "10.0.0.1:21001"}, "decode": {"zmq_address": "10.0.0.2:22001"}}
ID = "___prefill_addr_10.0.0.1:21001___decode_addr_10.0.0.2:22001_0123456789abcdeffedcba9876543210"
TOLD = attempt(id=ID, **ENDS)


def test_the_id_has_the_addresses_that_workers_registered():
    for plain in (False, True):
        assert new_pair_id("p2p_nccl", attempt(bits=BITS, **ENDS), "client-id", plain) == ID


def test_prefill_is_told_the_six_members_and_decode_what_it_sent():
    assert prefill_copy("completions", BODY, "p2p_nccl", TOLD) == (
        b'{"max_tokens":1,"stream":false,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,'
        b'"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null},'
        b'"model":"m","prompt":"hi"}'
    )
    response = b'{"kv_transfer_params": {"a" : 1.0}}'
    expected = b'{"kv_transfer_params":{"a" : 1.0},' + BODY[1:]
    assert decode_copy("completions", BODY, "p2p_nccl", response, TOLD) == (expected, True)
    assert decode_copy("completions", BODY, "p2p_nccl", b'{"kv_transfer_params":null}', TOLD) == (BODY, False)
    assert decode_copy("completions", BODY, "p2p_nccl", b"{}", TOLD) == (BODY, False)


@pytest.mark.parametrize(
    ("told", "missing"),
    [
        (TOLD, ""),
        (attempt(prefill={"zmq_address": None}), "the ZMQ addresses of both workers, which they register"),
        (attempt(decode={"zmq_address": None}), "the ZMQ addresses of both workers, which they register"),
        (attempt(id="client-id"), "a request id with the ZMQ addresses of both workers"),
        (attempt(id=ID), "a request id with the ZMQ addresses of both workers"),
    ],
)
def test_what_is_missing_is_said_and_neither_is_told_half(told, missing):
    assert missing_for_pair("p2p_nccl", told) == missing
    if missing:
        assert b"kv_transfer_params" not in prefill_copy("completions", BODY, "p2p_nccl", told)
