"""cpp/disaggregation/moriio_connector.h: what both modes tell each worker of its peer."""

import pytest

from tests.models.pd_connectors import attempt
from vllm_router._core_testing import (
    decode_copy,
    missing_for_pair,
    parameters_are_whole,
    prefill_copy,
)

# P: dp_size 4, tp_size 8. D: dp_size 2, tp_size 16.
READ = attempt(mode="READ")
WRITE = attempt(mode="WRITE")
RANKED = {"prefill": {"rank": 3}, "decode": {"rank": 1}}
BODY = b'{"model":"m","stream":true,"max_tokens":7,"prompt":"hi"}'
FROM_PREFILL = (
    b'{"choices":[{"finish_reason":"length"}],"kv_transfer_params":{"do_remote_prefill":true, '
    b'"remote_engine_id":"e1","remote_block_ids":[[1,2]],"transfer_id":"tx-0123","later":1.0}}'
)
TX = b'"transfer_id":"tx-0123456789abcdeffedcba9876543210"'
NO_BLOCKS = b'"remote_engine_id":null,"remote_block_ids":null,'


def to_prefill(members):
    return (
        b'{"max_tokens":1,"stream":false,"ignore_eos":true,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,'
        + NO_BLOCKS
        + TX
        + b","
        + members
        + b'},"model":"m","prompt":"hi"}'
    )


def to_decode(object_):
    return b'{"kv_transfer_params":' + object_ + b"," + BODY[1:]


@pytest.mark.parametrize("told", [READ, attempt(mode="READ", **RANKED)])
def test_read_tells_prefill_the_size_of_its_peer(told):
    assert prefill_copy("completions", BODY, "moriio", told) == to_prefill(b'"remote_dp_size":2')


@pytest.mark.parametrize(
    ("told", "ours"),
    [
        (READ, b'"remote_dp_size":4,"remote_tp_size":8'),
        (attempt(mode="READ", **RANKED), b'"remote_dp_size":4,"remote_tp_size":8,"remote_dp_rank":3'),
    ],
)
def test_read_splices_prefills_sizes_into_its_object(told, ours):
    kept = (
        b'"do_remote_prefill":true, "remote_engine_id":"e1","remote_block_ids":[[1,2]],'
        b'"transfer_id":"tx-0123","later":1.0}'
    )
    expected = to_decode(b"{" + ours + b"," + kept)
    assert decode_copy("completions", BODY, "moriio", FROM_PREFILL, told)[0] == expected


@pytest.mark.parametrize("name", [b"remote_engine_id", b"remote_block_ids"])
def test_read_puts_no_half_object_into_decodes_copy(name):
    half = FROM_PREFILL.replace(b'"' + name + b'":', b'"x":')
    assert decode_copy("completions", BODY, "moriio", half, READ) == (BODY, False)
    assert decode_copy("completions", BODY, "moriio", b"{}", READ) == (BODY, False)
    assert not parameters_are_whole("moriio", b"{")


@pytest.mark.parametrize(
    ("told", "members"),
    [
        (WRITE, b'"remote_dp_size":2,"remote_tp_size":16'),
        (attempt(mode="WRITE", **RANKED), b'"remote_dp_size":2,"remote_tp_size":16,"remote_dp_rank":1'),
    ],
)
def test_write_tells_prefill_the_sizes_and_rank_of_decode(told, members):
    assert prefill_copy("completions", BODY, "moriio", told) == to_prefill(members)


@pytest.mark.parametrize(
    ("told", "members"),
    [
        (WRITE, b'"remote_dp_size":4,"remote_tp_size":8'),
        (attempt(mode="WRITE", **RANKED), b'"remote_dp_size":4,"remote_tp_size":8,"remote_dp_rank":3'),
    ],
)
def test_write_tells_decode_the_sizes_and_rank_of_prefill_at_once(told, members):
    expected = to_decode(
        b'{"do_remote_decode":false,"do_remote_prefill":true,' + NO_BLOCKS + TX + b"," + members + b"}"
    )
    for response in (b"", FROM_PREFILL):
        assert decode_copy("completions", BODY, "moriio", response, told) == (expected, False)


@pytest.mark.parametrize(
    ("told", "missing"),
    [
        (READ, ""),
        (WRITE, ""),
        (attempt(mode=None), "the MoRI-IO mode, READ or WRITE, which workers register"),
        (attempt(bits=None), "the id of the transfer"),
        (attempt(prefill={"dp_size": None}), "the parallel sizes of both workers, which they register"),
        (attempt(decode={"tp_size": None}), "the parallel sizes of both workers, which they register"),
        (attempt(decode={"zmq_address": None}), "the ZMQ addresses of both workers, which they register"),
        (
            attempt(id="___prefill_addr_a:1___decode_addr_b:2_00"),
            "a request id with the ZMQ addresses of both workers",
        ),
    ],
)
def test_what_is_missing_is_said_and_neither_is_told_half(told, missing):
    assert missing_for_pair("moriio", told) == missing
    if missing:
        assert b"kv_transfer_params" not in prefill_copy("completions", BODY, "moriio", told)
        assert decode_copy("completions", BODY, "moriio", FROM_PREFILL, told) == (BODY, False)
