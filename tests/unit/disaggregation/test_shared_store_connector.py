"""cpp/disaggregation/shared_store_connector.h: neither worker is told anything."""

from vllm_router._core_testing import decode_copy, parameters_are_whole, prefill_copy

BODY = b'{"prompt":"hi","max_tokens":7,"kv_transfer_params":{"remote_host":"evil"}}'


def test_prefill_is_shortened_and_nothing_else():
    assert (
        prefill_copy("completions", BODY, "shared_store") == b'{"max_tokens":1,"stream":false,"prompt":"hi"}'
    )


def test_decode_gets_the_clients_body_whatever_prefill_sent():
    response = b'{"kv_transfer_params":{"remote_host":"h"}}'
    assert decode_copy("completions", BODY, "shared_store", response) == (
        b'{"prompt":"hi","max_tokens":7}',
        False,
    )
    assert not parameters_are_whole("shared_store", b"{}")
