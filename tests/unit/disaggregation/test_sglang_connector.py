"""cpp/disaggregation/sglang_connector.h: both workers are told the same rooms."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.pd_connectors import attempt
from tests.rows import for_each_row
from vllm_router._core_testing import (
    decode_copy,
    draw_room,
    missing_for_pair,
    prefill_copy,
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
