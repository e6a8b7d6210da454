"""cpp/disaggregation/mooncake_connector.h: what both workers are told at once; prefill ends by length."""

import pytest

from tests.models.pd_connectors import attempt
from vllm_router._core_testing import (
    decode_copy,
    missing_for_pair,
    prefill_copy,
)

BODY = b'{"model":"m","stream":true,"max_tokens":7,"prompt":"hi"}'
TOLD = attempt()
XFER = b"xfer-01234567-89ab-4def-bedc-ba9876543210"
KV = b'"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"transfer_id":"' + XFER + b'"}'


def test_prefill_is_told_the_transfer_and_ends_by_length():
    assert prefill_copy("completions", BODY, "mooncake", TOLD) == (
        b'{"max_tokens":1,"stream":false,"ignore_eos":true,' + KV + b',"model":"m","prompt":"hi"}'
    )


@pytest.mark.parametrize(
    ("told", "address"),
    [
        (TOLD, b"http://10.0.0.1:8997"),
        (attempt(prefill={"bootstrap_port": None}), b"http://10.0.0.1:8998"),
        (attempt(prefill={"host": "fd00::1"}), b"http://[fd00::1]:8997"),
    ],
)
def test_decode_is_told_the_bootstrap_server_and_the_engine(told, address):
    copy, _ = decode_copy("completions", BODY, "mooncake", b"", told)
    assert copy == (
        b'{"kv_transfer_params":{"do_remote_decode":false,"do_remote_prefill":true,"transfer_id":"'
        + XFER
        + b'",'
        b'"remote_bootstrap_addr":"' + address + b'","remote_engine_id":"e-mooncake"},' + BODY[1:]
    )


@pytest.mark.parametrize(
    ("told", "missing"),
    [
        (TOLD, ""),
        (attempt(prefill={"engine_id": None}), "the engine id of the prefill worker's rank"),
        (attempt(bits=None), "the id of the transfer"),
        (attempt(prefill={"host": None}), "the host of the prefill worker's bootstrap server"),
    ],
)
def test_what_is_missing_is_said_and_neither_is_told_half(told, missing):
    assert missing_for_pair("mooncake", told) == missing
    if missing:
        assert b"kv_transfer_params" not in prefill_copy("completions", BODY, "mooncake", told)
        assert decode_copy("completions", BODY, "mooncake", b"", told) == (BODY, False)
