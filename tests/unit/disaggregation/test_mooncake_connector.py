"""cpp/disaggregation/mooncake_connector.h: what both workers are told at once; prefill ends by length."""

import json

import pytest

from tests.models.pd_connectors import attempt
from vllm_router._core_testing import (
    decode_copy,
    kv_connector_traits,
    missing_for_pair,
    order_of,
    pd_plan,
    prefill_copy,
    read_prefill_response,
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
    ("route", "body", "copy"),
    [
        (
            "completions",
            b'{"stop":["\\n"],"a":1.0,"stop_token_ids":[1,2],"ignore_eos":false,"prompt":"hi"}',
            b'{"max_tokens":1,"stream":false,"ignore_eos":true,KV,"a":1.0,"prompt":"hi"}',
        ),
        (
            "chat",
            b'{"stop":"x","stop":null,"messages":[{}],"stop_sequences":["kept"]}',
            b'{"max_tokens":1,"stream":false,"ignore_eos":true,KV,"messages":[{}],"stop_sequences":["kept"]}',
        ),
        (
            "messages",
            b'{"max_tokens":9,"stop_sequences":["x"],"messages":[{}]}',
            b'{"max_tokens":1,"stream":false,"ignore_eos":true,KV,"messages":[{}]}',
        ),
        (
            "responses",
            b'{"input":"hi"}',
            b'{"max_output_tokens":1,"store":false,"stream":false,"ignore_eos":true,KV,"input":"hi"}',
        ),
        (
            "inference_generate",
            b'{"token_ids":[1],"sampling_params":{"stop":["x"],"top_p":1.0,"stop_token_ids":[7],"ignore_eos":null}}',
            b'{"sampling_params":{"max_tokens":1,"ignore_eos":true,"top_p":1.0},"stream":false,KV,"token_ids":[1]}',
        ),
        (
            "inference_generate",
            b'{"token_ids":[1]}',
            b'{"sampling_params":{"max_tokens":1,"min_tokens":1,"ignore_eos":true},"stream":false,KV,"token_ids":[1]}',
        ),
    ],
)
def test_nothing_but_its_limit_stops_prefill(route, body, copy):
    assert prefill_copy(route, body, "mooncake", TOLD) == copy.replace(b"KV", KV)


@pytest.mark.parametrize(
    ("route", "members"),
    [
        ("completions", {"ignore_eos": "true"}),
        ("completions", {"stop": 7}),
        ("completions", {"stop": ["a", 7]}),
        ("completions", {"stop_token_ids": ["7"]}),
        ("completions", {"stop_token_ids": [1.5]}),
        ("completions", {"stop_token_ids": "7"}),
        ("inference_generate", {"token_ids": [1], "sampling_params": {"stop": {}}}),
        ("messages", {"max_tokens": 1, "messages": [{}], "stop_sequences": [1]}),
    ],
)
def test_what_decode_rejects_and_prefills_copy_hides_is_local(route, members):
    body = json.dumps(members).encode()
    assert pd_plan(route, body, "mooncake")["reason"] == "wrong_type"
    assert pd_plan(route, body, "nixl")["kind"] == "two_stages"


def test_stops_as_they_should_be_take_two_stages():
    body = b'{"stop":"x","stop_token_ids":[],"ignore_eos":true,"prompt":"hi"}'
    assert pd_plan("completions", body, "mooncake")["kind"] == "two_stages"
    assert pd_plan("completions", body.replace(b'"x"', b'["a","b"]'), "mooncake")["kind"] == "two_stages"
    assert pd_plan("completions", b'{"stop":null,"stop_token_ids":null}', "mooncake")["kind"] == "two_stages"


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


def test_traits():
    assert order_of("mooncake", TOLD) == "concurrent"
    assert read_prefill_response(b'{"kv_transfer_params":{"a":1}}', "mooncake") == ("not_used", None, False)
    assert kv_connector_traits("mooncake") == {
        "name": "mooncake",
        "order": "concurrent",
        "hands_parameters": False,
        "shortens_prefill": True,
        "ends_by_length": True,
        "decode_can_prefill": True,
        "rebindable": False,
        "id_form": "either",
        "needs_parameters": False,
        "meets_in_rooms": False,
        "prefill_needs_pair": False,
        "registers": False,
    }
