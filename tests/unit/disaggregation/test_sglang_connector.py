"""cpp/disaggregation/sglang_connector.h: both workers are told the same rooms."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.pd_connectors import attempt
from tests.rows import for_each_row
from vllm_router._core_testing import (
    decode_copy,
    draw_room,
    kv_connector_traits,
    missing_for_pair,
    order_of,
    prefill_copy,
    read_prefill_response,
)

MOST = 2**63 - 1
BODY = b'{"model":"m","stream":true,"max_tokens":7,"prompt":"hi"}'
TOLD = attempt(prefill={"bootstrap_port": 8998})


def both(body, told, route="completions"):
    return prefill_copy(route, body, "sglang", told), decode_copy(route, body, "sglang", b"", told)[0]


def test_both_are_told_the_same_and_nothing_else_is_edited():
    expected = (
        b'{"bootstrap_host":"10.0.0.1","bootstrap_port":8998,"bootstrap_room":4611686018427387904,'
        b'"model":"m","stream":true,"max_tokens":7,"prompt":"hi"}'
    )
    assert both(BODY, TOLD) == (expected, expected)


def test_a_list_of_prompts_has_arrays():
    told = attempt(prefill={"bootstrap_port": 8998}, rooms=[7, MOST], listed_prompts=2)
    expected = (
        b'{"bootstrap_host":["10.0.0.1","10.0.0.1"],"bootstrap_port":[8998,8998],'
        b'"bootstrap_room":[7,9223372036854775807],"prompt":["a","b"]}'
    )
    assert both(b'{"prompt":["a","b"]}', told) == (expected, expected)
    told = attempt(prefill={"bootstrap_port": None}, rooms=[0], listed_prompts=1)
    expected = b'{"bootstrap_host":["10.0.0.1"],"bootstrap_port":[null],"bootstrap_room":[0],"text":["a"]}'
    assert both(b'{"text":["a"]}', told, "generate") == (expected, expected)


@pytest.mark.parametrize("host", ["fd00::1", "[fd00::1]"])
def test_an_ipv6_host_is_in_brackets_and_an_unknown_port_null(host):
    told = attempt(prefill={"host": host, "bootstrap_port": None}, rooms=[1])
    expected = b'{"bootstrap_host":"[fd00::1]","bootstrap_port":null,"bootstrap_room":1,"a":1.0}'
    assert both(b'{"a":1.0}', told) == (expected, expected)


def test_the_clients_rooms_and_ranks_are_removed():
    body = (
        b'{"bootstrap_room":1,"bootstrap_host":"evil","bootstrap_x":1,"routed_dp_rank":3,"a":1.0,'
        b'"disagg_prefill_dp_rank":3,"data_parallel_rank":3}'
    )
    expected = (
        b'{"bootstrap_host":"10.0.0.1","bootstrap_port":8998,"bootstrap_room":4611686018427387904,"a":1.0}'
    )
    assert both(body, TOLD) == (expected, expected)


def test_ranks_are_told_by_name_if_that_is_on():
    told = {"prefill": {"rank": 3, "bootstrap_port": 8998}, "decode": {"rank": 1}, "rooms": [7]}
    rooms = b'"bootstrap_host":"10.0.0.1","bootstrap_port":8998,"bootstrap_room":7'
    plain = b"{" + rooms + b',"prompt":"hi"}'
    assert both(b'{"prompt":"hi"}', attempt(**told)) == (plain, plain)
    assert both(b'{"prompt":"hi","routed_dp_rank":9}', attempt(**told, rank_fields=True)) == (
        b"{" + rooms + b',"routed_dp_rank":3,"prompt":"hi"}',
        b"{" + rooms + b',"routed_dp_rank":1,"disagg_prefill_dp_rank":3,"prompt":"hi"}',
    )


@pytest.mark.parametrize(
    ("prefill", "decode", "to_prefill", "to_decode"),
    [
        ({}, {}, b"", b""),
        ({"rank": 3}, {}, b',"routed_dp_rank":3', b',"disagg_prefill_dp_rank":3'),
        ({}, {"rank": 1}, b"", b',"routed_dp_rank":1'),
    ],
)
def test_a_worker_without_ranks_has_none_to_tell(prefill, decode, to_prefill, to_decode):
    told = attempt(prefill=prefill | {"bootstrap_port": 8998}, decode=decode, rooms=[7], rank_fields=True)
    rooms = b'{"bootstrap_host":"10.0.0.1","bootstrap_port":8998,"bootstrap_room":7'
    expected = tuple(rooms + ranks + b',"prompt":"hi"}' for ranks in (to_prefill, to_decode))
    assert both(b'{"prompt":"hi"}', told) == expected


def test_a_list_of_prompts_has_one_rank_of_each_worker():
    told = attempt(
        prefill={"rank": 3, "bootstrap_port": 8998},
        decode={"rank": 1},
        rooms=[7, 11],
        listed_prompts=2,
        rank_fields=True,
    )
    to_prefill, to_decode = (json.loads(copy) for copy in both(b'{"text":["a","b"]}', told, "generate"))
    assert to_prefill["bootstrap_room"] == [7, 11]
    assert to_prefill["routed_dp_rank"] == 3
    assert (to_decode["routed_dp_rank"], to_decode["disagg_prefill_dp_rank"]) == (1, 3)


@for_each_row(
    ("told", "missing"),
    [
        (TOLD, ""),
        (attempt(prefill={"bootstrap_port": None}), ""),
        (attempt(prefill={"host": None}), "the host of the prefill worker's bootstrap server"),
        (attempt(rooms=None), "a bootstrap room for each prompt"),
        (attempt(rooms=[1, 2]), "a bootstrap room for each prompt"),
        (attempt(rooms=[1], listed_prompts=2), "a bootstrap room for each prompt"),
        (attempt(rooms=[2**63]), "bootstrap rooms of the prefill worker's rank"),
        (
            attempt(prefill={"rank": 0, "dp_size": None}),
            "the number of the prefill worker's data-parallel ranks",
        ),
        (attempt(prefill={"rank": 4}), "the number of the prefill worker's data-parallel ranks"),
        (attempt(prefill={"rank": 3}, rooms=[7]), ""),
        (attempt(prefill={"rank": 3}, rooms=[8]), "bootstrap rooms of the prefill worker's rank"),
        (
            attempt(prefill={"rank": 3}, rooms=[7, 8], listed_prompts=2),
            "bootstrap rooms of the prefill worker's rank",
        ),
    ],
)
def test_what_is_missing_is_said_and_neither_is_told_half(told, missing):
    assert missing_for_pair("sglang", told) == missing
    if missing:
        assert both(BODY, told) == (BODY, BODY)


@pytest.mark.parametrize(
    ("bits", "rank", "dp_size", "room"),
    [
        (0, 0, 1, 0),
        (0, 3, 4, 3),
        (9, 1, 4, 9),
        (10, 1, 4, 9),
        (2**64 - 1, 0, 1, MOST),
        (2**64 - 1, 3, 4, MOST),
        (2**64 - 1, 2, 3, MOST - MOST % 3 + 2 - 3),
        (2**63 + 5, 0, 1, 5),
    ],
)
def test_a_room_is_drawn_for_the_rank(bits, rank, dp_size, room):
    assert draw_room(bits, rank, dp_size) == room


@given(st.integers(0, 2**64 - 1), st.integers(1, 2**32 - 1), st.data())
def test_every_room_is_within_its_limits_and_of_its_rank(bits, dp_size, data):
    rank = data.draw(st.integers(0, dp_size - 1))
    room = draw_room(bits, rank, dp_size)
    assert 0 <= room <= MOST
    assert room % dp_size == rank
    assert abs(room - bits % 2**63) < 2 * dp_size, "as random as the bits"


def test_traits():
    assert order_of("sglang", TOLD) == "sglang"
    assert read_prefill_response(b'{"kv_transfer_params":{"a":1}}', "sglang") == ("not_used", None, False)
    assert kv_connector_traits("sglang") == {
        "name": "sglang",
        "order": "sglang",
        "hands_parameters": False,
        "shortens_prefill": False,
        "ends_by_length": False,
        "decode_can_prefill": False,
        "rebindable": False,
        "id_form": "plain",
        "needs_parameters": False,
        "meets_in_rooms": True,
        "prefill_needs_pair": False,
        "registers": False,
    }
