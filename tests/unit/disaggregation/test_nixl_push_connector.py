"""cpp/disaggregation/nixl_push_connector.h: what workers are told before and after it is known who pushes."""

import pytest

from tests.models.pd_connectors import attempt
from vllm_router._core_testing import (
    decode_copy,
    missing_for_pair,
    order_of,
    parameters_are_whole,
    prefill_copy,
    read_prefill_response,
)

BODY = b'{"model":"m","stream":true,"max_tokens":7,"prompt":"hi"}'
XFER = b"xfer-01234567-89ab-4def-bedc-ba9876543210"
TO_PREFILL = (
    b'{"max_tokens":1,"stream":false,"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,'
    b'"remote_engine_id":null,"remote_block_ids":null,"remote_host":null,"remote_port":null,'
    b'"transfer_id":"' + XFER + b'"},"model":"m","prompt":"hi"}'
)
FROM_PREFILL = (
    b'{"choices":[{"finish_reason":"length"}],"kv_transfer_params":{"do_remote_prefill":true,'
    b'"remote_engine_id":"e1","remote_host":"10.0.0.9","remote_port":5601,"transfer_mode":"push"}}'
)
PUSH = {"engine_id": "e0", "host": "10.0.0.1", "port": 5600, "tp_size": 2, "pp_size": 4}
FIRST = attempt(id="id-1")
LATER = attempt(id="id-1", prefill={"push": PUSH})


def told_to_decode(members):
    return (
        b'{"kv_transfer_params":{"do_remote_decode":false,"do_remote_prefill":true,'
        + members
        + b"},"
        + BODY[1:]
    )


@pytest.mark.parametrize("connector", ["nixl", "nixl_push"])
def test_requests_are_serial_until_the_identity_is_known(connector):
    assert order_of(connector, FIRST) == "serial"
    assert order_of(connector, LATER) == "concurrent"


@pytest.mark.parametrize("told", [FIRST, LATER])
def test_prefill_is_told_the_six_members_and_the_transfer(told):
    assert prefill_copy("completions", BODY, "nixl_push", told) == TO_PREFILL


def test_decode_of_the_first_request_is_told_what_prefills_response_says():
    expected = told_to_decode(
        b'"remote_engine_id":"e1","remote_host":"10.0.0.9","remote_port":5601,"tp_size":1,'
        b'"remote_request_id":"id-1","transfer_id":"' + XFER + b'"'
    )
    assert decode_copy("completions", BODY, "nixl_push", FROM_PREFILL, FIRST) == (expected, False)


@pytest.mark.parametrize("connector", ["nixl", "nixl_push"])
def test_decode_of_a_later_request_is_told_at_once_what_is_known(connector):
    expected = told_to_decode(
        b'"remote_engine_id":"e0","remote_host":"10.0.0.1","remote_port":5600,"tp_size":2,"pp_size":4,'
        b'"remote_request_id":"id-1","transfer_id":"' + XFER + b'"'
    )
    assert decode_copy("completions", BODY, connector, b"", LATER) == (expected, False)
    assert prefill_copy("completions", BODY, connector, LATER) == TO_PREFILL


def test_behind_nixl_the_first_request_has_no_id_of_the_transfer():
    six = TO_PREFILL.replace(b',"transfer_id":"' + XFER + b'"', b"")
    assert prefill_copy("completions", BODY, "nixl", FIRST) == six
    expected = told_to_decode(
        b'"remote_engine_id":"e1","remote_host":"10.0.0.9","remote_port":5601,"tp_size":1,'
        b'"remote_request_id":"id-1"'
    )
    assert decode_copy("completions", BODY, "nixl", FROM_PREFILL, FIRST) == (expected, False)


@pytest.mark.parametrize("connector", ["nixl", "nixl_push"])
def test_a_response_without_the_identity_hands_over_nothing(connector):
    half = FROM_PREFILL.replace(b'"10.0.0.9"', b"null")
    assert read_prefill_response(half, connector) == ("half", None, False)
    assert decode_copy("completions", BODY, connector, half, FIRST) == (BODY, False)
    assert read_prefill_response(FROM_PREFILL, connector)[::2] == ("whole", True)


def test_a_worker_that_is_pulled_from_is_none_of_this_connectors():
    pulled = FROM_PREFILL.replace(b'"push"', b'"pull"')
    assert read_prefill_response(pulled, "nixl_push") == ("half", None, False)
    old = FROM_PREFILL.replace(b',"transfer_mode":"push"', b"")
    assert read_prefill_response(old, "nixl_push")[::2] == ("whole", True)
    assert not parameters_are_whole("nixl", b'{"remote_engine_id":"e","remote_host":"h","remote_port":1}')


def test_without_an_id_of_the_transfer_neither_is_told_half():
    told = attempt(bits=None, prefill={"push": PUSH})
    for connector in ("nixl", "nixl_push"):
        assert missing_for_pair(connector, told) == "the id of the transfer"
        assert b"kv_transfer_params" not in prefill_copy("completions", BODY, connector, told)
        assert decode_copy("completions", BODY, connector, FROM_PREFILL, told) == (BODY, False)
    assert missing_for_pair("nixl", attempt(bits=None)) == ""
    assert missing_for_pair("nixl_push", LATER) == missing_for_pair("nixl_push", FIRST) == ""
