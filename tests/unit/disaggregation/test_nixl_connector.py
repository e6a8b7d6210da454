"""cpp/disaggregation/nixl_connector.h: what vLLM's NIXL workers are told, and which parameters are whole."""

import json

import pytest

from vllm_router._core_testing import decode_copy, parameters_are_whole, prefill_copy

# As vLLM 0.32 sends them.
WHOLE = {
    "do_remote_prefill": True,
    "do_remote_decode": False,
    "remote_block_ids": [[1, 2, 3]],
    "remote_engine_id": "95fb9348",
    "remote_request_id": "cmpl-1-0-9eac8b9f",
    "remote_host": "127.0.0.1",
    "remote_port": 5601,
    "tp_size": 1,
    "remote_blocks_expiry_time": None,
}
NEEDED = ["remote_engine_id", "remote_request_id", "remote_host", "remote_port", "remote_block_ids"]


def is_whole(parameters):
    return parameters_are_whole("nixl", json.dumps(parameters).encode())


def test_prefill_is_told_exactly_six_members():
    copy = prefill_copy("completions", b'{"prompt":"hi"}', "nixl")
    told = (
        b'"kv_transfer_params":{"do_remote_decode":true,"do_remote_prefill":false,"remote_engine_id":null,'
        b'"remote_block_ids":null,"remote_host":null,"remote_port":null}'
    )
    assert copy == b'{"max_tokens":1,"stream":false,' + told + b',"prompt":"hi"}'


def test_decode_is_told_the_same_bytes():
    raw = (
        b'{ "remote_block_ids":[[1]],"remote_engine_id":"e","remote_request_id":"r","remote_host":"h" ,'
        b' "later":12345678901234567890, "remote_port":5600}'
    )
    response = b'{"choices":[{"finish_reason":"stop"}],"kv_transfer_params" : ' + raw + b"}"
    assert decode_copy("completions", b'{"prompt":"hi"}', "nixl", response) == (
        b'{"kv_transfer_params":' + raw + b',"prompt":"hi"}',
        True,
    )


def test_parameters_with_all_that_decode_reads_are_whole():
    assert is_whole(WHOLE)
    assert is_whole({name: WHOLE[name] for name in NEEDED})


@pytest.mark.parametrize("name", NEEDED)
def test_parameters_without_one_are_half(name):
    assert not is_whole({other: value for other, value in WHOLE.items() if other != name})
    assert not is_whole({**WHOLE, name: None})
    assert not is_whole({**WHOLE, name: {}})
    assert not is_whole({**WHOLE, name: True})


@pytest.mark.parametrize("blocks", [[], [[]], [[], []]])
def test_parameters_without_a_block_are_half(blocks):
    assert not is_whole({**WHOLE, "remote_block_ids": blocks}), (
        "fewer blocks than decode needs end its process"
    )


def test_parameters_with_a_member_twice_are_half():
    text = json.dumps(WHOLE)[:-1]
    assert not parameters_are_whole("nixl", (text + ',"remote_host":"10.0.0.1"}').encode())
    assert not parameters_are_whole("nixl", (text + r',"remote_h\u006fst":null}').encode())
    assert parameters_are_whole("nixl", (text + ',"tp_size":2}').encode()), (
        "decode does not read it to find blocks"
    )


@pytest.mark.parametrize("text", [b"", b"[]", b"{", b"{}", b"null"])
def test_what_is_no_object_is_half(text):
    assert not parameters_are_whole("nixl", text)


def test_an_empty_host_is_none():
    assert not is_whole({**WHOLE, "remote_host": ""})
