"""cpp/routing/transfer_members.h: what a client may not say."""

import json

import pytest

from vllm_router._core_testing import strip_transfer_members


def stripped(body):
    copy, counts = strip_transfer_members(body)
    return copy, {name: count for name, count in counts.items() if count}


@pytest.mark.parametrize(
    ("name", "counted"),
    [
        *(("kv_transfer_params", "kv_transfer_params"), ("ec_transfer_params", "ec_transfer_params")),
        *(("bootstrap_host", "bootstrap"), ("bootstrap_port", "bootstrap"), ("bootstrap_room", "bootstrap")),
        (r"kv_tr\u0061nsfer_params", "kv_transfer_params"),
    ],
)
def test_each_is_removed_wherever_it_stands_and_counted(name, counted):
    value = b'{"remote_host":"10.9.9.9","prompt_token_ids":[1]}'
    member = f'"{name}":'.encode() + value
    assert stripped(b"{" + member + b"}") == (b"{}", {counted: 1})
    assert stripped(b'{"a":1.0, "b" : 2,' + member + b"}") == (b'{"a":1.0, "b" : 2}', {counted: 1})
    assert stripped(b"{" + member + b',"a":1,' + member + b"}") == (b'{"a":1}', {counted: 2})


def test_a_body_without_any_stays_as_it_is():
    body = b' {"kv_transfer_paramsx":1,"bootstrap":2, "in":{"kv_transfer_params":3},"vllm_xargs":{"a":1.0}} '
    assert stripped(body) == (body, {})


def test_what_vllm_merges_into_the_same_arguments_is_searched():
    inner = b'{"x":1e5,"kv_transfer_params":"a","ec_transfer_params":1}'
    counts = {"kv_transfer_params": 1, "ec_transfer_params": 1}
    assert stripped(b'{"a":1,"vllm_xargs":' + inner + b"}") == (b'{"vllm_xargs":{"x":1e5},"a":1}', counts)
    assert stripped(b'{"sampling_params":{"n":1.0,"extra_args":' + inner + b'},"a":1}') == (
        b'{"sampling_params":{"extra_args":{"x":1e5},"n":1.0},"a":1}',
        counts,
    )


def test_of_several_the_last_is_left_since_it_counts():
    bad = b'"vllm_xargs":{"kv_transfer_params":1,"x":1}'
    good = b'"vllm_xargs":{"y":2}'
    counts = {"kv_transfer_params": 1}
    assert stripped(b"{" + bad + b"," + good + b"}") == (b'{"vllm_xargs":{"y":2}}', counts)
    assert stripped(b"{" + good + b"," + bad + b"}") == (b'{"vllm_xargs":{"x":1}}', counts)
    assert stripped(b"{" + bad + b',"vllm_xargs":7}') == (b'{"vllm_xargs":7}', counts)


def test_an_object_with_too_many_members_is_not_readable():
    many = json.dumps({"vllm_xargs": {str(i): i for i in range(1025)}}).encode()
    assert stripped(many) == (many, {"unreadable": True})
    many = json.dumps({"sampling_params": {"extra_args": {str(i): i for i in range(1025)}}}).encode()
    assert stripped(many) == (many, {"unreadable": True})


def test_a_damaged_object_is_left_to_the_worker():
    body = b'{"vllm_xargs":{"kv_transfer_params":1,}}'
    assert stripped(body) == (body, {})
