"""cpp/simulation/transfer_params.h: which parameters are whole, and which bodies are refused."""

import json

import pytest

from vllm_router import _core_testing as testing

WHOLE = {
    "do_remote_prefill": True,
    "remote_engine_id": "e",
    "remote_request_id": "r",
    "remote_host": "h",
    "remote_port": 1,
    "remote_block_ids": [[1, 2]],
}
NOTHING = (False, False, False, [])


def read(params):
    return testing.read_transfer_params(json.dumps({"kv_transfer_params": params}).encode())


@pytest.mark.parametrize("blocks", [[1, 2], [[1, 2]], [[1], [2]]])
def test_blocks_are_read_at_any_depth(blocks):
    assert read({**WHOLE, "remote_block_ids": blocks}) == (False, True, True, [1, 2])


@pytest.mark.parametrize("member", list(WHOLE)[1:])
def test_parameters_without_one_of_the_five_are_not_whole(member):
    assert not read({**WHOLE, member: None})[2]
    assert not read({name: value for name, value in WHOLE.items() if name != member})[2]


@pytest.mark.parametrize("port", [-1, 65536, "1"])
def test_a_port_that_is_none_is_missing(port):
    assert not read({**WHOLE, "remote_port": port})[2]


def test_a_block_number_too_large_for_any_memory_stays_too_large():
    assert read({**WHOLE, "remote_block_ids": [[2**40]]})[3] == [2**32 - 1]


def test_a_prefill_request_has_its_flag_alone():
    assert read({"do_remote_decode": True, "remote_host": None}) == (True, False, False, [])


@pytest.mark.parametrize("body", [b"", b"no JSON", b"[]", b"{}", b'{"kv_transfer_params":null}'])
def test_without_parameters_nothing_is_set(body):
    assert testing.read_transfer_params(body) == NOTHING


@pytest.mark.parametrize(
    "body",
    [
        b'{"a":1,"a":1}',
        b'{"a":{"b":1,"c":2,"b":3}}',
        b'{"a":[[{"b":1,"b":2}]]}',
        rb'{"a":1,"\u0061":2}',
    ],
)
def test_a_member_that_is_there_twice_is_refused(body):
    with pytest.raises(ValueError, match="is a member twice; send it once"):
        testing.read_transfer_params(body)


def test_members_of_two_objects_may_have_the_same_name():
    assert testing.read_transfer_params(b'{"a":{"a":1},"b":[{"a":1},{"a":1}]}') == NOTHING


@pytest.mark.parametrize("params", [[], 1, "x", True])
def test_parameters_that_are_no_object_are_refused(params):
    with pytest.raises(ValueError, match="must be an object or null"):
        read(params)


def test_a_byte_order_mark_is_skipped_as_engines_do():
    body = json.dumps({"kv_transfer_params": WHOLE})
    assert testing.read_transfer_params(("\ufeff" + body).encode()) == read(WHOLE) != NOTHING
