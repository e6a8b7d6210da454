"""The request id: the client's, or one made here."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vllm_router import _core_testing as testing

NAMES = ["x-request-id", "x-correlation-id"]


def choose(fields, names=NAMES, prefix="chatcmpl-", seed=1):
    return testing.choose_request_id(fields, names, prefix, testing.Random(seed))


def test_a_made_id_has_the_prefix_and_24_letters_and_digits():
    made, header, to_worker = choose([("Host", "a")])
    assert re.fullmatch(r"chatcmpl-[0-9A-Za-z]{24}", made)
    assert header == ""
    assert to_worker == made.removeprefix("chatcmpl-")  # vLLM adds its own


@given(st.integers(0, 2**64 - 1))
def test_the_same_dice_make_the_same_id_and_go_on_to_another(seed):
    dice = testing.Random(seed)
    ids = [testing.choose_request_id([], NAMES, "req-", dice)[0] for _ in range(3)]
    assert len(set(ids)) == 3
    assert ids[0] == testing.choose_request_id([], NAMES, "req-", testing.Random(seed))[0]


def test_every_letter_and_digit_turns_up(seed):
    dice = testing.Random(seed)
    letters = "".join(testing.choose_request_id([], [], "", dice)[0] for _ in range(400))
    assert len(set(letters)) == 62


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ([("x-request-id", "mine")], ("mine", "x-request-id")),
        ([("X-REQUEST-ID", "mine")], ("mine", "X-REQUEST-ID")),
        # the order of the names counts, not that of the fields
        ([("x-correlation-id", "second"), ("x-request-id", "first")], ("first", "x-request-id")),
        ([("x-request-id", ""), ("x-correlation-id", "second")], ("second", "x-correlation-id")),
        ([("x-request-id", "a"), ("x-request-id", "b")], ("a", "x-request-id")),
    ],
)
def test_the_clients_id_goes_on_unchanged(fields, expected):
    chosen, header, to_worker = choose(fields)
    assert (chosen, header) == expected
    assert to_worker == chosen


def test_an_id_of_the_client_that_looks_like_ours_keeps_its_prefix():
    assert choose([("x-request-id", "chatcmpl-1")])[2] == "chatcmpl-1"


def test_without_names_an_id_is_made():
    assert choose([("x-request-id", "mine")], names=[])[0].startswith("chatcmpl-")
